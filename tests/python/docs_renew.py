"""Writes the printed and the generated parts of the documents anew, where they no longer match:

    .venv/bin/python tests/python/docs_renew.py [document...]

A generated part stands between <!-- generated: name --> and <!-- end of generated -->; GENERATORS has the
names. docs/operations.md is generated as a whole.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli_support import CHECKOUT, binary
from docs_cpp import FragmentProgram, fragments, program_output, programs
from docs_support import Document, Fence, documents, environment, matches, read_document, run_document

OPERATIONS_PAGE = CHECKOUT / "docs" / "operations.md"
GENERATED = re.compile(r"(<!-- generated: ([a-z ]+) -->\n)(.*?)(<!-- end of generated -->)", re.DOTALL)


def command_output(*arguments: str) -> str:
    """What the fuseblock command prints."""
    return subprocess.run(
        [binary(), *arguments], env=environment(), capture_output=True, text=True, check=True
    ).stdout


def operations_page() -> str:
    """The page docs/operations.md."""
    return command_output("ops", "--markdown")


def slope_table() -> str:
    """The slopes of the pointwise operations at their kinks, by the catalogue."""
    rows = ["| operation | at | slope | formula |", "|---|---|---|---|"]
    for operation in json.loads(command_output("ops", "--json"))["operations"]:
        rows += [
            f"| `{operation['name']}` | {kink['at']:g} | {kink['slope']:g} | `{operation['formula']}` |"
            for kink in operation.get("kinks", [])
        ]
    return "\n".join(rows) + "\n"


def block_table() -> str:
    """The reference blocks."""
    rows = ["| name | block | input of its users |", "|---|---|---|"]
    for block in json.loads(command_output("info", "--json"))["reference_blocks"]:
        notation = block["notation"].replace("|", "\\|")
        rows.append(f"| `@{block['name']}` | `{notation}` | `{block['input']}` |")
    return "\n".join(rows) + "\n"


GENERATORS = {"slopes": slope_table, "reference blocks": block_table}


def generated_part(name: str) -> str:
    """What stands between the two comments of a generated part."""
    return "\n" + GENERATORS[name]() + "\n"


def all_outputs(document: Document) -> Iterator[tuple[Fence, str]]:
    """Everything in a document that runs, with what it prints."""
    yield from run_document(document)
    with tempfile.TemporaryDirectory() as folder:
        if fragments(document):
            yield from FragmentProgram.make([document], Path(folder)).outputs(document)
        for fence in programs(document):
            yield fence, program_output(fence, Path(folder))


def renewed(document: Document) -> str:
    """The document with its printed and generated parts made anew; those that match stay as they are."""
    lines = document.text.splitlines(keepends=True)
    replacements: list[tuple[Fence, str]] = []
    for fence, printed in all_outputs(document):
        shown = document.printed(fence)
        if shown is not None and not matches(shown.text, printed):
            replacements.append((shown, printed))
    for shown, printed in sorted(replacements, key=lambda each: each[0].line, reverse=True):
        body = [shown.indent + line if line else line for line in printed.rstrip().splitlines()]
        lines[shown.line : shown.line + shown.text.count("\n")] = [line + "\n" for line in body]
    return GENERATED.sub(lambda part: part[1] + generated_part(part[2]) + part[4], "".join(lines))


def main() -> None:
    """Writes what has changed."""
    wanted = [Path(argument).resolve() for argument in sys.argv[1:]] or [*documents(), OPERATIONS_PAGE]
    for path in wanted:
        before = path.read_text() if path.exists() else ""
        after = operations_page() if path == OPERATIONS_PAGE else renewed(read_document(path))
        if after != before:
            path.write_text(after)
            print(f"written: {path.relative_to(CHECKOUT)}")


if __name__ == "__main__":
    main()
