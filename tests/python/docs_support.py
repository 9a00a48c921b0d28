"""The documents of the project as data: fenced blocks with their notes, what they print, generated parts.

A fence is run or read by its language: sh, python, cpp, notation, json. `text` right behind one that runs is
what it prints. A comment in front of a fence says what is special about it:

    <!-- status: 2 -->        an sh fence that ends with this exit status
    <!-- not run: why -->     a fence that is left alone
    <!-- file: path -->       written to that file in the scratch folder before what follows runs
    <!-- excerpt: path -->    stands word for word in that file of the checkout

`docs_cpp` runs the C++, `docs_renew` makes generated parts and writes the documents anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cli_support import CHECKOUT, NO_CACHE, binary

NOTE = re.compile(r"<!-- (status|not run|file|excerpt): (.+) -->")
# Commands that set a machine up. They are not run; of `make` it is checked that the target exists.
SET_UP = re.compile(r"(make|git clone|cd|sudo|export PATH=)\b")


@dataclass
class Fence:
    """A fenced block of a document."""

    language: str
    text: str
    # The line of the opening fence, from 1, and how far the block is indented.
    line: int
    indent: str = ""
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        """Whether it is a complete C++ program rather than some lines of one."""
        return self.language == "cpp" and "int main(" in self.text


@dataclass
class Document:
    """A Markdown file of the checkout."""

    path: Path
    text: str
    fences: list[Fence]

    @property
    def name(self) -> str:
        """The path from the root of the checkout."""
        return self.path.relative_to(CHECKOUT).as_posix()

    @property
    def prose(self) -> str:
        """The text without its fenced blocks and comments, line numbers kept."""
        lines = self.text.splitlines()
        for fence in self.fences:
            end = fence.line + fence.text.count("\n") + 1
            lines[fence.line - 1 : end] = [""] * (end - fence.line + 1)
        return re.sub(
            r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), "\n".join(lines), flags=re.DOTALL
        )

    def printed(self, fence: Fence) -> Fence | None:
        """The `text` fence right behind a fence, which shows what that one prints."""
        for other in self.fences:
            if other.language == "text" and other.line == fence.line + fence.text.count("\n") + 3:
                return other
        return None


def read_document(path: Path) -> Document:
    """Reads a file; a fence without an end is an error."""
    text = path.read_text()
    fences: list[Fence] = []
    notes: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if note := NOTE.fullmatch(line.strip()):
            notes[note[1]] = note[2]
        elif opening := re.fullmatch(r"( *)```(\S*)", line):
            body = []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                body.append(inner.removeprefix(opening[1]) + "\n")
            else:
                raise ValueError(f"{path}:{number}: the block has no end")
            fences.append(Fence(opening[2], "".join(body), number, opening[1], notes))
            notes = {}
        elif line.strip():
            notes = {}
    return Document(path, text, fences)


def documents() -> list[Path]:
    """The papers of the project: those whose every block is run."""
    named = [
        CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
    ]
    return [*named, *sorted((CHECKOUT / "docs").glob("*.md"))]


def folder_readmes() -> list[Path]:
    """The short READMEs beside the code: their links and file names are checked."""
    return sorted(
        path
        for folder in ("src", "tests", "tools", "python", "benchmarks")
        for path in (CHECKOUT / folder).rglob("README.md")
    )


# Running


def make_scratch(folder: Path) -> None:
    """Fills a folder with links to what the checkout has, so that commands run there as in the root."""
    for entry in CHECKOUT.iterdir():
        if not entry.name.startswith((".git", "build", ".mypy", ".pytest", ".ruff")):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(binary().parent)


def environment() -> dict[str, str]:
    """The environment of the commands: the built command and this Python come first on the path."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("FUSEBLOCK_", "GTEST_", "PYTEST_"))
    }
    path = os.pathsep.join([str(binary().parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return kept | {
        "PATH": path,
        "PYTHONPATH": str(CHECKOUT / "python"),
        "NO_COLOR": "1",
        "LC_ALL": "C",
        "CI": "true",
        "FUSEBLOCK_CACHE_DIR": NO_CACHE,
    }


def runnable_lines(fence: Fence) -> str:
    """The commands of an sh fence without those that set a machine up."""
    return "".join(line for line in fence.text.splitlines(keepends=True) if not SET_UP.match(line))


def run_fence(fence: Fence, scratch: Path) -> str | None:
    """What an sh or python fence prints; None where nothing is to run. A wrong exit status is an error."""
    if "not run" in fence.notes or "excerpt" in fence.notes:
        return None
    if "file" in fence.notes:
        path = scratch / fence.notes["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fence.text)
        return None
    if fence.language == "sh":
        commands = runnable_lines(fence)
        if not commands.strip():
            return None
        command = ["bash", "-euo", "pipefail", "-c", commands]
    elif fence.language == "python":
        command = [sys.executable, "-c", fence.text]
    else:
        return None
    done = subprocess.run(
        command,
        cwd=scratch,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    expected = int(fence.notes.get("status", "0"))
    if done.returncode != expected:
        raise ValueError(f"line {fence.line}: status {done.returncode} instead of {expected}\n{done.stdout}")
    return done.stdout


def run_document(document: Document) -> Iterator[tuple[Fence, str]]:
    """Runs the sh and python fences in their order in a folder of their own: each with what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        make_scratch(Path(folder))
        for fence in document.fences:
            printed = run_fence(fence, Path(folder))
            if printed is not None:
                yield fence, printed


# Comparing


def comparable(text: str) -> list[str]:
    """Lines without what differs from run to run or between machines.

    That is times and their ratios (`1.50x`), in rows with ratios also amounts of memory, digests,
    rounding errors, and with them the width of columns.
    """
    lines = []
    for line in text.rstrip().splitlines():
        plain = re.sub(r"\b\d+(\.\d+)? (ns|us|ms|s|min)\b", "TIME", line)
        # A row of the demo: its workspace depends on the number of cores, its errors may vanish.
        plain, ratios = re.subn(r"\b\d+\.\d+x(?= )", "RATIO", plain)
        if ratios:
            plain = re.sub(r"\b\d+(\.\d+)? (B|kB|MB|GB)\b", "SIZE", plain)
            plain = re.sub(r"\b0\.0e\+00\b", "TINY", plain)
        plain = re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", plain)
        plain = re.sub(r"-?\b\d(\.\d+)?e-(0[5-9]|[1-9]\d)\b", "TINY", plain)
        lines.append(re.sub(r"(?<=\S)\s+", " ", plain).rstrip())
    return lines


def matches(shown: str, printed: str) -> bool:
    """Whether a text shows what was printed; a line `...` stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in comparable(shown)
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in comparable(printed))) is not None
