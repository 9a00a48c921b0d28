"""The documentation: what it runs runs, what it shows is so, what it names exists."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from case_support import build_folder_held
from cli_support import CHECKOUT, fuseblock
from docs_cpp import FragmentProgram, blocks, cpp_fences, program_output, programs
from docs_renew import GENERATED, OPERATIONS_PAGE, generated_part, operations_page
from docs_support import Document, comparable, documents, folder_readmes, matches, read_document, run_document

LANGUAGES = {"sh", "text", "cpp", "cmake", "python", "json", "notation", "ebnf", "formula"}

# Hosts that links may lead to.
HOSTS = {"github.com", "keepachangelog.com", "pytorch.org", "semver.org"}

# Words that the documents go without: praise, and what is no part of fuseblock.
UNWANTED = re.compile(
    r"\b(simply|easily|blazing\w*|powerful|seamless\w*|state-of-the-art|revolution\w*|world-class|"
    r"agents?|sessions?|registry|utils)\b",
    re.IGNORECASE,
)

# Absolute paths that only some machines have.
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|work|mnt|opt|srv|data)\b")

# Inline code that is a file or a folder: a path with a known beginning, or a name with a known ending.
PATH_START = re.compile(
    r"(include|src|tests|tools|docs|python|examples|cmake|requirements|bindings|benchmarks|\.ci)/\S+"
)
FILE_NAME = re.compile(r"[\w./*-]+\.(md|cc|h|py|txt|cmake|cases|svg|toml)")
# Files that a document tells the reader to write, or that commands write.
NOT_OURS = {"block.json"}


@cache
def read(path: Path) -> Document:
    """A document, read once."""
    return read_document(path)


def each(paths: list[Path]) -> pytest.MarkDecorator:
    """One test for each of some documents."""
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.relative_to(CHECKOUT).as_posix())


by_name = each(documents())
by_name_with_readmes = each([*documents(), *folder_readmes()])
by_name_with_cpp = each([path for path in documents() if cpp_fences(read(path))])
by_name_with_blocks = each([path for path in documents() if blocks(read(path))])


def assert_shows(document: Document, line: int, shown: str, printed: str) -> None:
    """Fails with both texts where a document does not show what was printed."""
    if not matches(shown, printed):
        ours, theirs = "\n".join(comparable(shown)), "\n".join(comparable(printed))
        pytest.fail(
            f"{document.name}:{line} shows\n\n{ours}\n\nbut this was printed:\n\n{theirs}\n\n"
            "To write it anew: .venv/bin/python tests/python/docs_renew.py"
        )


# What runs


@by_name
def test_commands_and_python_run_and_print_what_is_shown(path: Path) -> None:
    document = read(path)
    with build_folder_held():
        for fence, printed in run_document(document):
            if shown := document.printed(fence):
                assert_shows(document, shown.line, shown.text, printed)


@pytest.fixture(scope="module")
def fragment_program(tmp_path_factory: pytest.TempPathFactory) -> FragmentProgram:
    """The C++ fragments of all documents, built once."""
    return FragmentProgram.make([read(path) for path in documents()], tmp_path_factory.mktemp("fragments"))


@by_name_with_cpp
def test_cpp_runs_and_prints_what_is_shown(
    path: Path, fragment_program: FragmentProgram, tmp_path: Path
) -> None:
    document = read(path)
    outputs = fragment_program.outputs(document)
    outputs += [(fence, program_output(fence, tmp_path)) for fence in programs(document)]
    for fence, printed in outputs:
        if shown := document.printed(fence):
            assert_shows(document, shown.line, shown.text, printed)


@by_name_with_blocks
def test_blocks_read_and_print(path: Path, fragment_program: FragmentProgram) -> None:
    assert not fragment_program.complaints(read(path))


@by_name
def test_excerpts_stand_in_their_files(path: Path) -> None:
    for fence in read(path).fences:
        if source := fence.notes.get("excerpt"):
            wanted, held = (" ".join(text.split()) for text in (fence.text, (CHECKOUT / source).read_text()))
            assert wanted in held, f"{path.name}:{fence.line}: not in {source}"


@by_name
def test_fences_have_a_language_that_is_checked(path: Path) -> None:
    for fence in read(path).fences:
        assert fence.language in LANGUAGES, f"{path.name}:{fence.line}: `{fence.language}`"


@by_name
def test_printed_text_follows_what_prints_it(path: Path) -> None:
    document = read(path)
    printed = [
        document.printed(fence) for fence in document.fences if fence.language in ("sh", "cpp", "python")
    ]
    for fence in document.fences:
        assert fence.language != "text" or fence in printed, f"{path.name}:{fence.line}: printed by what?"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for path in [*documents(), *folder_readmes()]:
        named = re.findall(r"^\s*make ([a-z-]+)|`make ([a-z-]+)`", path.read_text(), re.MULTILINE)
        unknown = {one or other for one, other in named} - targets
        assert not unknown, f"{path}: no such targets: {unknown}"


# What is generated


def test_operations_page() -> None:
    page = operations_page()
    assert OPERATIONS_PAGE.read_text() == page, "run: .venv/bin/python tests/python/docs_renew.py"


def test_generated_parts() -> None:
    found = 0
    for path in documents():
        for part in GENERATED.finditer(path.read_text()):
            found += 1
            assert part[3] == generated_part(part[2]), (
                f"{path}: run .venv/bin/python tests/python/docs_renew.py"
            )
    assert found > 0


def test_figures_are_drawn_by_their_script() -> None:
    folder = CHECKOUT / "docs" / "figures"
    figures = runpy.run_path(str(folder / "draw.py"))["FIGURES"]
    measured = runpy.run_path(str(CHECKOUT / "benchmarks" / "gpu" / "draw.py"))
    assert measured["PICTURE"].parent == folder
    assert {path.name for path in folder.glob("*.svg")} == {*figures, measured["PICTURE"].name}
    for name, make in figures.items():
        assert (folder / name).read_text() == make(), "run: python3 docs/figures/draw.py"
    record = json.loads(measured["RECORD"].read_text())
    assert measured["PICTURE"].read_text() == measured["picture"](record), (
        "run: python3 benchmarks/gpu/draw.py"
    )


def test_the_picture_of_norms_has_every_recorded_time() -> None:
    """A bar and its figure for each, the fewer times the floor the shorter."""
    measured = runpy.run_path(str(CHECKOUT / "benchmarks" / "gpu" / "draw.py"))
    record = json.loads(measured["RECORD"].read_text())
    tree = ElementTree.fromstring(measured["PICTURE"].read_text())
    svg = "{http://www.w3.org/2000/svg}"
    width, height = float(tree.attrib["width"]), float(tree.attrib["height"])
    bars = [shape for shape in tree.iter(f"{svg}rect") if shape.attrib["height"] != "10"]
    assert len(bars) == sum(1 + len(row["peers"]) for row in record["rows"])
    for bar in bars:
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) < width
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) < height
    figures = [shape.text for shape in tree.iter(f"{svg}text")]
    row = record["rows"][-1]
    assert measured["figure_text"](row["fuseblock_ms"] / row["floor_ms"]) in figures


# What is named


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", read(path).prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@by_name_with_readmes
def test_links_lead_somewhere(path: Path) -> None:
    document = read(path)
    for target in re.findall(r"\]\(([^)\s]+)\)", document.prose):
        if "://" in target:
            assert target.split("/")[2] in HOSTS, target
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{document.name}: {target} does not exist"
        assert found.is_relative_to(CHECKOUT), f"{document.name}: {target} is not in the checkout"
        if anchor:
            assert anchor in anchors(found), f"{document.name}: {target}: there is no such heading"


def named_files(document: Document) -> Iterator[str]:
    """Inline code that looks like a file or a folder of the checkout."""
    written = {fence.notes["file"] for fence in document.fences if "file" in fence.notes}
    for code in re.findall(r"`([^`\n]+)`", document.prose):
        if (PATH_START.fullmatch(code) or FILE_NAME.fullmatch(code)) and code not in written | NOT_OURS:
            yield code


@by_name_with_readmes
def test_file_names_exist(path: Path) -> None:
    document = read(path)
    folders = (CHECKOUT, path.parent, CHECKOUT / "src/block", CHECKOUT / "include/fuseblock")
    for name in named_files(document):
        # A program is named without the ending of its source.
        patterns = (name.rstrip("/"), name + ".cc")
        found = any(next(folder.glob(pattern), None) for folder in folders for pattern in patterns)
        assert found, f"{document.name}: `{name}`"


def test_each_folder_of_src_has_a_readme() -> None:
    folders = {path.parent for path in (CHECKOUT / "src").glob("*/*.cc")}
    assert not [folder for folder in folders if not (folder / "README.md").exists()]


@by_name
def test_words(path: Path) -> None:
    document = read(path)
    for number, line in enumerate(document.text.splitlines(), 1):
        found = UNWANTED.search(line)
        assert not found, f"{document.name}:{number}: {found and found[0]}"
        assert not MACHINE_PATH.search(line), f"{document.name}:{number}: a path of one machine"
        assert "../.." not in line, f"{document.name}:{number}: a path that leaves the checkout"


# What the tables say


def test_every_environment_variable_is_in_the_table() -> None:
    table = set(
        re.findall(r"^\| `([A-Z_]+)` \|", (CHECKOUT / "docs/environment.md").read_text(), re.MULTILINE)
    )
    sources = [
        path
        for folder in ("src", "tests", "tools", "python", ".ci", "examples")
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and path.suffix in ("", ".cc", ".h", ".py")
    ]
    text = "\n".join(path.read_text(errors="replace") for path in sources)
    patterns = (
        r'getenv\("([A-Z_]+)"\)',
        r'set\("([A-Z_]+)"\)',
        r'environ\.get\("([A-Z_]+)"',
        r"\$\{([A-Z_]+):-",
    )
    read_by_code = {name for pattern in patterns for name in re.findall(pattern, text)}
    assert not read_by_code - table, "docs/environment.md lacks some"
    assert not [name for name in table if name not in text], (
        "docs/environment.md has some that nothing mentions"
    )


def test_changelog_has_the_version() -> None:
    version = fuseblock("--version").stdout.split()[-1]
    assert f"## [{version}]" in (CHECKOUT / "CHANGELOG.md").read_text()
