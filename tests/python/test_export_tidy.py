"""What nothing takes is left out of exported device code."""

from __future__ import annotations

import re

import pytest
from export_support import EXAMPLES, PROBLEMS, device_texts, load_file
from fuseblock.export import tidy
from fuseblock.export.device_text import parse, pruned
from fuseblock.export.fold import fold, without_comments


def squeezed(text: str) -> str:
    """Without white space."""
    return "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Parameters that no function of the name uses, here and where it is called.
        (
            "__device__ int f(int a, int b) { return b; }\n"
            "__device__ int g(int c) { return f(max[1] * (2 + c), c); }\n",
            "__device__ int f(int b) { return b; }\n__device__ int g(int c) { return f(c); }\n",
        ),
        (
            "struct A { static __device__ void f(int a, int b) { a; } };\n"
            "struct B { static __device__ void f(int a, int b) { b; } };\n",
            "struct A { static __device__ void f(int a, int b) { a; } };\n"
            "struct B { static __device__ void f(int a, int b) { b; } };\n",
        ),
        # Not those by which a template's parameter is found, nor what does something when it is given.
        ("template <class T>\n__device__ int f(T a) { return 1; }\n", None),
        ("__device__ int f(int a) { return 1; }\n__device__ int g(int c) { return f(++c); }\n", None),
        ("__device__ int f(int a) { return 1; }\n__device__ int g(int c) { return f(h(c)); }\n", None),
        # Calls inside of what goes.
        (
            "__device__ int one(int a) { return 1; }\n__device__ int h(int a) { return one(a); }\n"
            "__device__ int f(int a, int b) { return b; }\n"
            "__device__ int g(int c) { return f(one(c), c); }\n",
            "__device__ int one() { return 1; }\n__device__ int h() { return one(); }\n"
            "__device__ int f(int a, int b) { return b; }\n__device__ int g(int c) { return f(one(), c); }\n",
        ),
        # A caller's own that nothing else takes then.
        (
            "__device__ int f(int a) { return 1; }\n__device__ int g(int c) { return f(c); }\n",
            "__device__ int f() { return 1; }\n__device__ int g() { return f(); }\n",
        ),
        # Loops of one turn.
        (
            "__device__ void f(int* x) {\n#pragma unroll\n  for (int i = 0; i < 1; ++i) {\n"
            "    x[4 * i + 2] = x[i];\n  }\n}\n",
            "__device__ void f(int* x) {\n x[2] = x[0];\n}\n",
        ),
        (
            "__device__ void f(int* x) {\n  constexpr int kBytes = 16;\n"
            "  for (int i = 0; i < kBytes / 16; ++i) g(x + 16 * i);\n}\n",
            "__device__ void f(int* x) {\n g(x);\n}\n",
        ),
        ("__device__ void f(int* x) {\n  for (int i = 0; i < 2; ++i) x[i] = 0;\n}\n", None),
        # Names of values, and fields that are only written.
        (
            "__device__ void f(int& x) {\n  const int y = x + 1;\n  x = 2;\n}\n",
            "__device__ void f(int& x) {x = 2;}",
        ),
        ("__device__ void f(int& x) {\n  const int y = atomicAdd(&x, 1);\n}\n", None),
        ("__device__ void f(int& x) {\n  Site y;\n  x = 2;\n}\n", "__device__ void f(int& x) {x = 2;}"),
        ("__device__ void f(int& x) {\n  Site y;\n  x = y.n;\n}\n", None),
        (
            "struct S {\n  int a;\n  int b;\n};\n__device__ int f(S& s) {\n  s.b = 1;\n  return s.a;\n}\n",
            "struct S {\n  int a;\n};\n__device__ int f(S& s) {\n  return s.a;\n}\n",
        ),
        ("struct S {\n  int a;\n  int b;\n};\n__device__ S f(int x) {\n  return {x, x};\n}\n", None),
        (
            "struct S {\n  int a;\n  int nothing;\n};\n__device__ int f(S s) { return s.a; }\n",
            "struct S {\n  int a;\n};\n__device__ int f(S s) { return s.a; }\n",
        ),
        # A mask that is always full.
        (
            "__device__ void add(float v, unsigned int taken) {\n  if (taken == 0) return;\n"
            "  if (taken >> i & 1) sum += v;\n  count += __popc(taken);\n}\n"
            "__device__ void f(float v) { add(v, kAllElements); }\n",
            "__device__ void add(float v) {sum += v;  count += kElements;}\n"
            "__device__ void f(float v) { add(v); }\n",
        ),
        (
            "__device__ void add(float v, unsigned int taken) { if (taken >> i & 1) sum += v; }\n"
            "__device__ void f(float v, unsigned int taken) { add(v, kAllElements); add(v, taken); }\n",
            None,
        ),
    ],
)
def test_tidied(text: str, expected: str | None) -> None:
    assert squeezed(tidy.tidied([text])[0]) == squeezed(text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Numbers of templates that are always the same.
        (
            "template <int kParts>\n__device__ inline float f(float* x, int i) { return x[i / kParts]; }\n"
            "__device__ inline float g(float* x) { return f<4>(x, 1) + f<4>(x, 2); }\n",
            "__device__ inline float f(float* x, int i) { return x[i / 4]; }\n"
            "__device__ inline float g(float* x) { return f(x, 1) + f(x, 2); }\n",
        ),
        (
            "template <int kParts, class T>\n__device__ inline T f(T* x, int i) { return x[i * kParts]; }\n"
            "__device__ inline float g(float* x) { return f<1>(x, 1); }\n",
            "template <class T>\n__device__ inline T f(T* x, int i) { return x[i]; }\n"
            "__device__ inline float g(float* x) { return f(x, 1); }\n",
        ),
        (
            "template <int kSharers>\n__device__ inline int f() { return threadIdx.x % kSharers; }\n"
            "__device__ inline int g() { return f<kThreads>(); }\n",
            "__device__ inline int f() { return threadIdx.x; }\n__device__ inline int g() { return f(); }\n",
        ),
        (
            "template <int kParts>\n__device__ inline int f(int i) { return i / kParts; }\n"
            "__device__ inline int g() { return f<4>(1) + f<2>(1); }\n",
            None,
        ),
        # Names beside others.
        (
            "__device__ void f(int* x) {\n  const int a = 1, b = 2, c = a + 1;\n  x[b] = 1;\n}\n",
            "__device__ void f(int* x) {\n  const int b = 2;\n  x[b] = 1;\n}\n",
        ),
    ],
)
def test_tidied_plain(text: str, expected: str | None) -> None:
    """Of kernels whose tensors are addresses alone."""
    assert squeezed(tidy.tidied([text], plain=True)[0]) == squeezed(text if expected is None else expected)


def test_texts_are_looked_at_together() -> None:
    texts = [
        "__device__ int f(int a, int b) { return b; }\n",
        "__device__ int g(int c) { return f(c, c); }\n",
    ]
    assert [squeezed(text) for text in tidy.tidied(texts)] == [
        squeezed("__device__ int f(int b) { return b; }"),
        squeezed("__device__ int g(int c) { return f(c); }"),
    ]


def test_functions_of_structs_are_found_by_their_arguments() -> None:
    """`add` of one argument is called for sums alone, where the other struct has a form of its own."""
    text = (
        "struct Sum {\n  int x;\n  __device__ void add(int v) { x += v; }\n};\n"
        "struct Moments {\n  int y;\n  __device__ void add(int v) { y += v; }\n};\n"
        "template <class Statistic>\nstruct Running : Statistic {\n"
        "  __device__ void add(int v, bool b) { Statistic::add(v); }\n};\n"
        "template <>\nstruct Running<Moments> {\n  int z;\n"
        "  __device__ void add(int v, bool b) { z += v; }\n};\n"
        "__global__ void kernel(Running<Sum> a, Running<Moments> b) { a.add(1, true), b.add(1, true); }\n"
    )
    piece = parse("some.cuh", text)
    left = piece.text(pruned([piece], "kernel"))
    assert "x += v" in left
    assert "z += v" in left
    assert "y += v" not in left


def test_conditions_that_all_kernels_decide_alike() -> None:
    variants = [{"kRing": 4}, {"kRing": 6}]
    assert squeezed(fold("{ if (kRing == 0 || x) a(); }", {}, variants)) == "{if(x)a();}"
    assert squeezed(fold("{ if (kRing == 4 || x) a(); }", {}, variants)) == "{if(kRing==4||x)a();}"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_examples_have_no_more_than_they_need(problem: str) -> None:
    """Every function is called, every parameter used by some function of its name; no line is too long."""
    exported = load_file(EXAMPLES / f"{problem}.py")
    whole = set(device_texts(exported).values())
    if isinstance(exported.KERNELS, dict):
        whole = {text for parts in exported.KERNELS.values() for text in parts}
    texts = sorted(whole)
    code = without_comments("\n".join(texts))
    named = re.findall(r"\w+", code)
    functions = set(re.findall(r"__device__ [^;{}()]*?\b(\w+)\([^;{}]*\)(?: const)? \{", code))
    assert [name for name in functions if named.count(name) < 2] == []
    assert all(len(line) <= 130 for text in texts for line in text.splitlines())
    assert [squeezed(text) for text in tidy.tidied(texts)] == [squeezed(text) for text in texts]
