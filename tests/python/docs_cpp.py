"""The C++, the notation and the JSON in the documents, checked by one program built against the library.

The fragments of a document become the body of one function, in their order, so that later ones may use the
variables of earlier ones. Includes are moved to the top. Complete programs are built by themselves.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli_support import CHECKOUT, binary
from docs_support import Document, Fence, environment

SEPARATOR = "\x1e"
LEFT_ALONE = {"not run", "file", "excerpt"}

HEAD = """\
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

#include <fuseblock/fuseblock.h>
"""

# Reads entries that end with a separator, `n` or `j` and a block, and says for each what is wrong with it.
READER = """
static std::string complaint(const std::string& entry) {
  using fuseblock::Block;
  try {
    const std::string text = entry.substr(1);
    const Block block = entry[0] == 'j' ? Block::from_json(text) : Block::parse(text);
    if (Block::parse(block.to_string()) != block) return "reads differently: " + block.to_string();
    if (Block::parse(block.to_statements()) != block) return "reads differently as statements";
    if (Block::from_json(block.to_json()) != block) return "reads differently as JSON";
    return "";
  } catch (const fuseblock::Error& error) {
    return error.report();
  }
}

static void read_blocks() {
  for (std::string entry; std::getline(std::cin, entry, '\\x1e');) std::cout << complaint(entry) << '\\x1e';
}
"""


def fragments(document: Document) -> list[Fence]:
    """The C++ fences that are not complete programs."""
    return [fence for fence in cpp_fences(document) if not fence.is_program]


def programs(document: Document) -> list[Fence]:
    """The C++ fences that are complete programs."""
    return [fence for fence in cpp_fences(document) if fence.is_program]


def cpp_fences(document: Document) -> list[Fence]:
    """The C++ fences that are to be run."""
    return [
        fence for fence in document.fences if fence.language == "cpp" and not LEFT_ALONE & fence.notes.keys()
    ]


def blocks(document: Document) -> list[tuple[Fence, str]]:
    """The blocks in `notation` and `json` fences, each after a letter for its form.

    A line of notation is a block; one that ends with `;` or `|` goes on in the next line.
    """
    found = []
    for fence in document.fences:
        if LEFT_ALONE & fence.notes.keys():
            continue
        if fence.language == "json" and "statements" in json.loads(fence.text):
            found.append((fence, "j" + fence.text))
        if fence.language == "notation":
            text = ""
            for line in fence.text.splitlines():
                text += line + "\n"
                if line.strip() and not line.rstrip().endswith((";", "|")):
                    found.append((fence, "n" + text))
                    text = ""
    return found


def build(source: str, target: Path) -> None:
    """Compiles and links a program against the library; what the compiler says becomes the error."""
    code = target.with_suffix(".cc")
    code.write_text(source)
    folder = binary().parent
    command = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable"]
    command += [
        f"-I{CHECKOUT / 'include'}",
        f"-I{folder / 'include'}",
        str(code),
        str(folder / "libfuseblock.a"),
    ]
    command += ["-lhwy", "-ltbb", "-pthread", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr)


@dataclass(frozen=True)
class FragmentProgram:
    """All fragments of some documents, and the reader of blocks, as one program."""

    program: Path

    @staticmethod
    def make(documents: Sequence[Document], folder: Path) -> FragmentProgram:
        """Builds it in a folder."""
        includes: list[str] = []
        functions: list[str] = []
        calls: list[str] = []
        for number, document in enumerate(documents):
            body = ""
            for fence in fragments(document):
                body += f'#line {fence.line + 1} "{document.name}"\n'
                for line in fence.text.splitlines():
                    if line.startswith("#include"):
                        includes.append(line)
                    body += ("" if line.startswith("#include") else line) + "\n"
                body += "std::cout << '\\x1e';\n"
            functions.append(f"static void document_{number}() {{\n{body}}}\n")
            calls.append(f'if (which == "{document.name}") document_{number}();\n')
        main = "int main(int, char** arguments) {\nconst std::string which = arguments[1];\n"
        main += 'if (which == "blocks") read_blocks();\n' + "".join(calls) + "}\n"
        build(HEAD + "\n".join(includes) + READER + "".join(functions) + main, folder / "fragments")
        return FragmentProgram(folder / "fragments")

    def outputs(self, document: Document) -> list[tuple[Fence, str]]:
        """Each fragment of a document with what it prints."""
        printed = self._run(document.name, "").split(SEPARATOR)[:-1]
        return list(zip(fragments(document), printed, strict=True))

    def complaints(self, document: Document) -> list[str]:
        """What is wrong with the document's blocks."""
        found = blocks(document)
        answers = self._run("blocks", "".join(text + SEPARATOR for _, text in found)).split(SEPARATOR)[:-1]
        return [
            f"{document.name}:{fence.line}: {answer}"
            for (fence, _), answer in zip(found, answers, strict=True)
            if answer
        ]

    def _run(self, which: str, text: str) -> str:
        done = subprocess.run(
            [self.program, which], input=text, env=environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ValueError(f"{which}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def program_output(fence: Fence, folder: Path) -> str:
    """What a complete program prints."""
    target = folder / f"program_{fence.line}"
    build(fence.text, target)
    return subprocess.run([target], env=environment(), capture_output=True, text=True, check=True).stdout
