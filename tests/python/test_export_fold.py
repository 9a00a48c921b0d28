"""Conditions that constants decide, in exported device code."""

from __future__ import annotations

import pytest
from fuseblock.export import fold

KNOWN = {"kOne": 1, "kZero": 0, "kFour": 4}


def squeezed(text: str) -> str:
    """Without white space."""
    return "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ if (kOne) a(); else b(); c(); }", "{ a(); c(); }"),
        ("{ if constexpr (kZero > 0) { a(); } else { b(); } }", "{ b(); }"),
        ("{ if (kZero) a(); c(); }", "{ c(); }"),
        ("{ if (x) a(); else if (kZero) b(); else c(); }", "{ if (x) a(); else c(); }"),
        ("{ if (x) a(); else if (kZero) b(); d(); }", "{ if (x) a(); d(); }"),
        ("{ if (kOne || f(x, 2)) { a(); return; } b(); } e", "{ a(); return;} e"),
        ("{ if (kFour == 4 && f(x)) a(); }", "{ if (f(x)) a(); }"),
        ("{ if (kZero || f(x) && !kOne) a(); b(); }", "{ b(); }"),
        ("{ y = kFour > 1 ? 1 : 3; }", "{ y = 1; }"),
        ("{ f(kZero && i < n ? g(a, b) : h(c), 2); }", "{ f( h(c), 2); }"),
        ("{ return kOne && x < 2 ? a : b; }", "{ return x < 2 ? a : b; }"),
        ('{ // if (kOne) a();\n b("kOne ? 1 : 2"); }', '{ // if (kOne) a(); b("kOne ? 1 : 2"); }'),
        (
            "{ for (int i = 0; i < 2; ++i) if (kOne) { a(); b(); } }",
            "{ for (int i = 0; i < 2; ++i) { a(); b(); } }",
        ),
        ("{ for (;;) if (kZero) a(); }", "{ for (;;) if (kZero) a(); }"),
        (
            "  constexpr int kOne = sizeof(T);\n{ if (kOne) a(); }",
            "constexpr int kOne = sizeof(T); { if (kOne) a(); }",
        ),
        ("{ if (unknown > kOne) a(); }", "{ if (unknown > kOne) a(); }"),
    ],
)
def test_fold(text: str, expected: str) -> None:
    assert squeezed(fold.fold(text, KNOWN)) == squeezed(expected)


def test_numbers_that_nothing_takes_are_left_out() -> None:
    text = "{\n  const real t1 = f(x);\n  const real t2 = t1 * t1;\n  y = x;\n}\n"
    assert squeezed(fold.fold(text, {})) == "{y=x;}"


def test_constants_are_those_of_the_text() -> None:
    text = "constexpr int kA = 4;\nconstexpr int kB = kA / 2;  // two\nconstexpr int kC = sizeof(int);\n"
    assert fold.constants(text) == {"kA": 4, "kB": 2}
