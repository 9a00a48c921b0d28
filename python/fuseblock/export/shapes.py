"""A plan's launches for any extents, out of the launches for a few.

The library plans for one set of extents. Here it is asked for several, of which each differs from the
first in one axis, and what differs in the answers is written as a product of extents, or one over such a
product: the count of a statistic, the strides of a tensor. An axis for which that fails stays as the example
has it. What is decided by extents (the width of a vector, say) is the same in all answers that are compared;
the library's conditions say for which extents it holds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Term", "Type", "generalise", "parse_type"]

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?f?(?![\w.])")
_MULTIPLIERS = (3, 5, 7, 9, 11, 13, 15, 2, 4, 6)
_MARK = "\u27e6{}\u27e7"
_MARKED = re.compile("\u27e6(\\d+)\u27e7")


@dataclass(frozen=True)
class Type:
    """A tensor's type in parts: dtype, extents by axis, and `:cl` or nothing."""

    dtype: str
    extents: Mapping[str, int]
    layout: str

    def __str__(self) -> str:
        """As the notation writes it."""
        extents = ",".join(f"{axis}={extent}" for axis, extent in self.extents.items())
        return f"{self.dtype}[{extents}]{self.layout}"


def parse_type(text: str, axes: str = "") -> Type:
    """A type from the notation; `axes` are those of extents without a letter."""
    match = re.fullmatch(r"(\w+)\[([^\]]*)\](:cl)?", text)
    if match is None:
        raise ValueError(f"expected a type such as f32[2,8,16,16], got {text}")
    extents: dict[str, int] = {}
    for i, part in enumerate(filter(None, match[2].split(","))):
        axis, _, extent = part.rpartition("=")
        extents[axis or axes[i]] = int(extent)
    return Type(match[1], extents, match[3] or "")


@dataclass(frozen=True)
class Term:
    """A number that depends on extents: `factor` times those of `axes`, or one over that."""

    factor: int
    axes: tuple[str, ...]
    inverse: bool
    kind: str  # long long, float, double

    @property
    def text(self) -> str:
        """As an expression of C++ and of Python."""
        product = " * ".join(([str(self.factor)] if self.factor != 1 else []) + list(self.axes))
        if self.inverse:
            return f"1.0 / ({product})" if " " in product else f"1.0 / {product}"
        return product


@dataclass
class General:
    """Launches whose texts have marks, and arrays terms, in the places of numbers that depend on extents."""

    plan: dict[str, Any]
    terms: list[Term]
    fixed: dict[str, int]  # axes that stay as they are

    def fill(self, text: str, write: Callable[[int, Term], str]) -> str:
        """A text with its marks replaced."""
        return _MARKED.sub(lambda match: write(int(match[1]), self.terms[int(match[1])]), text)


def _numbers(item: Any) -> Iterator[str]:
    """All numbers of a description in order, those inside of texts included."""
    if isinstance(item, dict):
        for value in item.values():
            yield from _numbers(value)
    elif isinstance(item, list):
        for value in item:
            yield from _numbers(value)
    elif isinstance(item, str):
        yield from (match.group() for match in _NUMBER.finditer(item))
    elif isinstance(item, int) and not isinstance(item, bool):
        yield str(item)


def _structure(item: Any) -> Any:
    """A description without its numbers; named constants keep theirs, since they are decisions."""
    if isinstance(item, dict):
        return {key: _structure(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_structure(value) for value in item]
    if isinstance(item, str):
        constants = re.findall(r"^constexpr int k\w+ = .*$", item, re.MULTILINE)
        return [_NUMBER.sub("#", item), constants]
    return "#" if isinstance(item, int) and not isinstance(item, bool) else item


def _value(number: str) -> float:
    return float(number.rstrip("f"))


def _exponents(base: list[str], other: list[str], ratio: float) -> list[int] | None:
    """By which power of an axis each number grew; None where one grew otherwise."""
    result = []
    for a, b in zip(base, other, strict=True):
        if a == b:
            result.append(0)
            continue
        grown = _value(b) / _value(a) if _value(a) != 0 else math.nan
        for exponent in (1, -1):
            if math.isclose(grown, ratio**exponent, rel_tol=1e-6):
                result.append(exponent)
                break
        else:
            return None
    return result


def _term(number: str, exponents: Mapping[str, int], extents: Mapping[str, int]) -> Term | None:
    axes = tuple(axis for axis, exponent in exponents.items() if exponent != 0)
    signs = {exponents[axis] for axis in axes}
    if len(signs) != 1:
        return None
    inverse = signs == {-1}
    value = _value(number)
    product = math.prod(extents[axis] for axis in axes)
    factor = (1 / value if inverse else value) / product
    if round(factor) < 1 or not math.isclose(factor, round(factor), rel_tol=1e-6):
        return None
    kind = "float" if number.endswith("f") else "double" if re.search(r"[.e]", number) else "long long"
    return Term(round(factor), axes, inverse, kind)


def generalise(describe: Callable[[Mapping[str, int]], str], extents: Mapping[str, int]) -> General:
    """The launches of a block for any extents.

    describe: the launches as JSON for extents by axis, channels excepted.
    extents: those of the example.
    """
    base = json.loads(describe(extents))
    numbers = list(_numbers(base))
    structure = _structure(base)
    fixed: dict[str, int] = {}
    exponents: dict[str, list[int]] = {}
    for axis, extent in extents.items():
        found = None
        for multiplier in _MULTIPLIERS if extent > 1 else ():
            try:
                other = json.loads(describe({**extents, axis: extent * multiplier}))
            except ValueError:  # a parameter has the example's extents
                break
            if _structure(other) == structure:
                found = _exponents(numbers, list(_numbers(other)), float(multiplier))
            if found is not None:
                break
        if found is None:
            fixed[axis] = extent
        else:
            exponents[axis] = found
    places: dict[int, Term] = {}
    while True:
        places.clear()
        bad: set[str] = set()
        for place, number in enumerate(numbers):
            own = {axis: powers[place] for axis, powers in exponents.items()}
            if not any(own.values()):
                continue
            term = _term(number, own, extents)
            if term is None:
                bad.update(axis for axis, power in own.items() if power != 0)
            else:
                places[place] = term
        bad.update(_out_of_reach(base, places))
        if not bad:
            break
        for axis in bad:
            fixed[axis] = extents[axis]
            del exponents[axis]
    terms = list(dict.fromkeys(places.values()))
    return General(_marked(base, iter(range(len(numbers))), places, terms), terms, fixed)


def _out_of_reach(base: Mapping[str, Any], places: Mapping[int, Term]) -> set[str]:
    """The axes of numbers in device code where the launch's arguments `a` cannot be seen."""
    result: set[str] = set()
    place = 0

    def visit(item: Any, in_text: bool) -> None:
        nonlocal place
        if isinstance(item, dict):
            for key, value in item.items():
                visit(value, in_text or key == "pieces")
        elif isinstance(item, list):
            for value in item:
                visit(value, in_text)
        elif isinstance(item, str):
            for match in _NUMBER.finditer(item):
                if in_text and place in places:
                    begin = max(item.rfind(word, 0, match.start()) for word in ("__device__", "__global__"))
                    head = item[begin : match.start()]
                    if not re.search(r"Arguments&? a\b", head):
                        result.update(places[place].axes)
                place += 1
        elif isinstance(item, int) and not isinstance(item, bool):
            place += 1

    visit(base, False)
    return result


def _marked(item: Any, counter: Iterator[int], places: Mapping[int, Term], terms: list[Term]) -> Any:
    """The description with a term for each array element that depends on extents, and marks in texts."""
    if isinstance(item, dict):
        return {key: _marked(value, counter, places, terms) for key, value in item.items()}
    if isinstance(item, list):
        return [_marked(value, counter, places, terms) for value in item]
    if isinstance(item, str):

        def mark(match: re.Match[str]) -> str:
            place = next(counter)
            return _MARK.format(terms.index(places[place])) if place in places else match.group()

        return _NUMBER.sub(mark, item)
    if isinstance(item, int) and not isinstance(item, bool):
        return places.get(next(counter), item)
    return item
