"""The lines of Python that launch a kernel: its memory, its parameters, its grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fuseblock.export.shapes import General, Term

if TYPE_CHECKING:
    from fuseblock.export.kernels import Kernel

__all__ = [
    "AXES",
    "DTYPES",
    "MEMBER",
    "in_domain",
    "launch_lines",
    "members",
    "summed_outputs",
    "tensor_name",
]

AXES = "ncdhw"
_WIDTH = 110
DTYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}
MEMBER = re.compile(r"^\s*[\w<> ]+[*]?\s*\b(\w+);.*\n", re.MULTILINE)  # of Arguments


def tensor_name(name: str) -> str:
    """The name of a plan's tensor as an identifier."""
    return re.sub(r"\W+", "_", name)


def members(texts: Sequence[str]) -> list[str]:
    """The names of the members of Arguments."""
    for text in texts:
        if match := re.search(r"struct Arguments \{\n(.*?)\};", text, re.DOTALL):
            return [found[1] for found in MEMBER.finditer(match[1])]
    raise ValueError("a kernel without Arguments")


def _text(value: int | Term) -> str:
    return str(value) if isinstance(value, int) else value.text


def in_domain(text: str, domain: Sequence[int | Term]) -> str:
    """An expression of the kernel's extents as one of the block's."""
    for axis, extent in zip(AXES, domain, strict=True):
        word = rf"(?<![\w.]){axis}(?![\w.])"
        value = _text(extent)
        if value == axis:
            continue
        if value == "1":
            text = re.sub(rf"{word} \* ", "", text)
            text = re.sub(rf" \* {word}", "", text)
        text = re.sub(word, value, text)
    return re.sub(r" \* 1\b(?! *\*)", "", re.sub(r"(?<![\w.] )(?<![\w.])1 \* ", "", text))


def launch_lines(
    general: General, i: int, kernel: Kernel, places: dict[int, str], keeps: bool = True
) -> list[str]:
    """The lines that launch one kernel of a plan; `places` has the names of its slots in memory.

    keeps: whether a kernel of the file has shared memory that its launch asks for.
    """
    launch = general.plan["launches"][i]

    def local(text: str) -> str:
        return in_domain(general.fill(text, lambda _, term: term.text), launch["domain"])

    lines = [f"{value['name']} = {local(value['text'])}" for value in launch["values"]]
    tensors: list[str] = []
    named: dict[str, str] = {}  # the same by the members of Arguments
    axes_of: list[str] = []
    made: dict[int, Mapping[str, Any]] = {}  # slots that are this launch's first
    for name, number in zip(members([text for _, text in kernel.texts]), launch["tensors"], strict=False):
        slot = general.plan["slots"][number]
        axes = AXES
        if slot["kind"] in ("input", "output"):
            tensor = general.plan[slot["kind"] + "s"][slot["number"]]
            places[number], axes = tensor_name(tensor["name"]), tensor["axes"]
        else:
            axes = _varying(slot["extents"])
            if number not in places and name in kernel.members:
                places[number] = name if launch["addresses"] else f"{name}_memory"
                made[number] = slot
        if name in kernel.members:
            tensors.append(places[number])
            axes_of.append(axes)
            named[name] = places[number]
    lines += _buffers(made, places)
    if launch["addresses"]:
        for each in launch["counters"]:
            _, count = _of_bytes(local(each["text"]))
            lines.append(f"{each['name']} = x.new_zeros({count}, dtype=torch.int32)")
        lists: dict[str, list[str]] = {}
        lines += _batch_lists(launch, local)
        summed = {each["list"] for each in launch["batch_sums"]}
        for each in launch["scratch"]:
            if each["name"] in summed:
                continue
            size, count = _of_bytes(local(each["text"]))
            lists.setdefault(count if size == 4 else f"{count}, {size // 4}", []).append(each["name"])
        for shape, own in lists.items():
            several = f"{len(own)}, " if len(own) > 1 else ""
            shape = f"({several}{shape})" if several or "," in shape else shape
            lines.append(f"{', '.join(own)} = x.new_empty({shape})")
    zeroed = [each for each in launch["counters"] if each["name"] in kernel.members]
    if zeroed and not launch["addresses"]:
        names = ", ".join(each["name"] for each in zeroed) + ("," if len(zeroed) == 1 else "")
        sizes = ", ".join(local(each["text"]) for each in zeroed)
        lines.append(f"{names} = zeros(x, {sizes})")
    for each in launch["scratch"] if not launch["addresses"] else ():
        lines.append(f"{each['name']} = x.new_empty({local(each['text'])}, dtype=torch.uint8)")
    memory = {each["name"] for each in (*zeroed, *launch["scratch"])}
    scalars = {scalar["name"]: scalar["text"] for scalar in launch["scalars"]}
    numbers = []
    for name in kernel.members if launch["addresses"] else kernel.members[len(tensors) :]:
        if name in named:
            numbers.append(named[name])
        elif match := re.fullmatch(r"number(\d+)", name):
            term = kernel.numbers[int(match[1]) - 1]
            numbers.append(term.text if term.kind == "long long" or term.inverse else f"float({term.text})")
        else:
            numbers.append(local(scalars[name]) or (name if name in memory else "0"))
    if launch["addresses"]:
        shared = f"{launch['shared_bytes']}, " if keeps else ""
        call = f'launch("{kernel.namespace}", {local(launch["blocks"])}, {shared}'
        if len(given := f"        {call}[{', '.join(numbers)}])") <= _WIDTH:
            lines.append(given.strip())
        else:
            lines += [*_list("arguments", numbers), f"{call}arguments)"]
        return [*lines, *_batch_sums(launch, general.plan)]
    lines += _list("tensors", tensors)
    lines += _list("numbers", numbers)
    lines.append(f'axes = "{" ".join(axes_of)}"')
    lines.append(
        f'launch("{kernel.namespace}", {local(launch["blocks"])}, {launch["threads"]}, '
        f"{launch['shared_bytes']}, {local(launch['cooperative'])}, tensors, axes, numbers)"
    )
    return lines


def _batch_lists(launch: Mapping[str, Any], local: Callable[[str], str]) -> list[str]:
    """The line that allocates lists of what is to be summed over the batch."""
    sums = launch["batch_sums"]
    if not sums:
        return []
    extents = [str(len(sums)), local("n"), str(sums[0]["channels"])]
    extents += [str(sums[0]["parts"])] if sums[0]["parts"] > 1 else []
    names = ", ".join(each["list"] for each in sums) + ("," if len(sums) == 1 else "")
    return [f"{names} = sums = x.new_empty(({', '.join(extents)}))"]


def _batch_sums(launch: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """The line that sums them."""
    sums = launch["batch_sums"]
    if not sums:
        return []
    outputs = [plan["outputs"][plan["slots"][each["output"]]["number"]] for each in sums]
    names = ", ".join(tensor_name(each["name"]) for each in outputs) + ("," if len(sums) == 1 else "")
    axes = "(1, 3)" if sums[0]["parts"] > 1 else "1"
    return [f"{names} = sums.sum({axes})  # over the batch"]


def summed_outputs(plan: Mapping[str, Any]) -> set[str]:
    """The names of outputs that are sums over the batch, made by PyTorch."""
    return {
        plan["outputs"][plan["slots"][each["output"]]["number"]]["name"]
        for launch in plan["launches"]
        for each in launch["batch_sums"]
    }


def _of_bytes(text: str) -> tuple[int, str]:
    """Bytes of one number of those that `16 * (n * 4)` is for, and how many these are."""
    match = re.fullmatch(r"(\d+) \* \((.*)\)", text)
    assert match is not None, text
    return int(match[1]), match[2]


def _varying(extents: Sequence[int | Term]) -> str:
    """The axes of a slot up to the last that varies."""
    last = max((i for i, extent in enumerate(extents) if extent != 1), default=0)
    return AXES[: last + 1]


def _buffers(slots: Mapping[int, Mapping[str, Any]], places: Mapping[int, str]) -> list[str]:
    """The lines that allocate memory beside the tensors, those of one dtype at once."""
    lines = []
    for dtype in dict.fromkeys(slot["dtype"] for slot in slots.values()):
        own = {number: slot for number, slot in slots.items() if slot["dtype"] == dtype}
        shapes = []
        for slot in own.values():
            extents = [_text(extent) for extent in slot["extents"][: len(_varying(slot["extents"]))]]
            shapes.append(f"({', '.join(extents)}{',' if len(extents) == 1 else ''})")
        names = ", ".join(places[number] for number in own)
        make = f"x.new_empty({{}}, dtype=torch.{DTYPES[dtype]})"
        if len(own) == 1:
            lines.append(f"{names} = {make.format(shapes[0])}")
        elif len(set(shapes)) == 1:
            lines.append(f"{names} = {make.format(f'({len(own)}, {shapes[0][1:]}')}")
        else:
            lines.append(f"shapes = [{', '.join(shapes)}]")
            lines.append(f"{names} = ({make.format('shape')} for shape in shapes)")
    return lines


def _list(name: str, items: Sequence[str]) -> list[str]:
    """A list in as few lines as hold it."""
    lines: list[str] = []
    row: list[str] = []
    for item in items:
        if row and len(f"        {name} += [{', '.join([*row, item])}]") > _WIDTH:
            lines.append(f"{name} {'+=' if lines else '='} [{', '.join(row)}]")
            row = []
        row.append(item)
    return [*lines, f"{name} {'+=' if lines else '='} [{', '.join(row)}]"]
