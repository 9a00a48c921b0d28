"""One self-contained file with a model's blocks as CUDA kernels.

    fuseblock.export_module(Model, (3, 16, 4), [torch.rand(8, 3, 16, 32, 32)], "model_new.py")
    python -m fuseblock.export problem.py -o model_new.py

docs/export.md has a walk through such a file.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fuseblock._capi import Plan
from fuseblock.aten import DEFAULT_AXES
from fuseblock.export.capture import CapturedBlock, CapturedModel, capture, example
from fuseblock.export.kernels import Kernels
from fuseblock.export.launches import tensor_name
from fuseblock.export.planned import PlannedBlock
from fuseblock.export.shapes import General, generalise, parse_type
from fuseblock.export.source import model_source
from fuseblock.export.writer import example_text, write_file

__all__ = ["DEVICES", "MODES", "export_module", "export_text", "plan_model"]

MODES = ("auto", "tf32", "strict")
# The device of the planner's table that stands for an architecture.
_MOST_AGAIN = 3  # names of values that are computed again; of more the first and the last
_MOST_INSIDE = 80  # letters of a value that stands where it is used
# Kernels with a short text: a channel's positions that are worth a block, and elements in whose time it does
# not count how long teams of blocks wait between sweeps. On an H200 2**25 of them took 3 % more time than by
# `rows`, which begins the next unit before the last is ended, and less backward; 2**23 took 9 % more.
_PLAIN_POSITIONS = 8192
_PLAIN_ELEMENTS = 2**25
DEVICES = {"sm_80": "a100", "sm_89": "l4", "sm_90a": "h200", "sm_100a": "b200", "sm_120": "rtx5090"}


def export_module(
    model_class: type[nn.Module],
    init_args: Sequence[Any],
    inputs: Sequence[Any],
    path: str | Path,
    keep: Sequence[str] = ("conv",),
    *,
    mode: str = "auto",
    arch: str = "sm_90a",
) -> Path:
    """Writes one Python file that defines ModelNew, in place of a model.

    model_class: the model; its source must be at hand.
    init_args: arguments of its constructor, plain values.
    inputs: example arguments of its forward: their dtypes and numbers of channels are fixed in the file.
    path: the file.
    keep: what stays PyTorch's own; convolutions and linear layers always do so far.
    mode: precision of f32 convolutions that forward calls: `tf32`, `strict`, or `auto`, which leaves it to
        PyTorch's switches, as backward's always is.
    arch: the architecture that is planned for, such as `sm_90a`; the file runs on others too.

    Raises NotImplementedError where forward cannot be traced, has no block that kernels can take, or uses
    more than PyTorch and Python's own modules; and ValueError where constructor or forward fail with these
    arguments.

    >>> import pathlib, tempfile, torch, fuseblock
    >>> new = pathlib.Path(tempfile.mkdtemp()) / "group_norm_new.py"
    >>> path = fuseblock.export_module(torch.nn.GroupNorm, (4, 8), [torch.rand(2, 8, 4, 4)], new)
    >>> "class ModelNew(" in path.read_text()
    True
    """
    text = export_text(model_class, init_args, inputs, keep, mode=mode, arch=arch)
    path = Path(path)
    path.write_text(text)
    return path


def export_text(
    model_class: type[nn.Module],
    init_args: Sequence[Any],
    inputs: Sequence[Any],
    keep: Sequence[str] = ("conv",),
    *,
    mode: str = "auto",
    arch: str = "sm_90a",
    functions: Sequence[Callable[..., Any]] = (),
    command: str = "fuseblock.export_module",
) -> str:
    """The text of the file; `functions` are get_inputs and get_init_inputs where the caller has them."""
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {', '.join(MODES)}, got {mode}")
    if arch not in DEVICES:
        raise ValueError(f"arch: expected one of {', '.join(DEVICES)}, got {arch}")
    unknown = [name for name in ([keep] if isinstance(keep, str) else keep) if name not in ("conv", "linear")]
    if unknown:
        raise ValueError(f"keep: expected conv or linear, got {', '.join(unknown)}")
    model = _constructed(model_class, init_args, inputs)
    captured, planned, kernels = plan_model(model, inputs, DEVICES[arch])
    source, model_text = model_source(model_class, functions)
    examples = ""
    if not functions:
        examples = example_text(inputs, init_args)
    return write_file(captured, planned, kernels, source, model_text, model_class, examples, command, mode)


def _constructed(model_class: type[nn.Module], init_args: Sequence[Any], inputs: Sequence[Any]) -> nn.Module:
    """The model. Raises ValueError where the caller's values do not make one."""
    if not (isinstance(model_class, type) and issubclass(model_class, nn.Module)):
        raise ValueError(f"expected a class of torch.nn.Module, got {model_class!r}")
    for name, given in (("the constructor's", init_args), ("forward's", inputs)):
        if not isinstance(given, list | tuple):
            raise ValueError(f"expected {name} arguments as a list, got {type(given).__name__}")
    for each in inputs:
        if isinstance(each, Tensor) and each.device.type != "cpu":
            raise ValueError(f"expected example inputs on the CPU, got one on {each.device}")
    try:
        return model_class(*init_args)
    except Exception as error:
        called = f"{model_class.__name__}({', '.join(map(repr, init_args))})"
        raise ValueError(f"{called} fails: {type(error).__name__}: {error}") from error


def plan_model(
    model: nn.Module, inputs: Sequence[Any], device: str
) -> tuple[CapturedModel, list[PlannedBlock], Kernels]:
    """A model's graph, its blocks with their launches, and the kernels, which equal blocks share."""
    captured = capture(model, inputs)
    planned: list[PlannedBlock] = []
    shared: dict[tuple[str, ...], PlannedBlock] = {}
    for block in captured.blocks:
        key = (block.notation, block.input_type, *block.types().values())
        try:
            if key in shared:
                planned.append(dataclasses.replace(shared[key], block=block, owner=shared[key]))
            else:
                planned.append(_planned(block, device))
                shared[key] = planned[-1]
        except (NotImplementedError, ValueError) as error:
            captured.left.update(dict.fromkeys(block.nodes, str(error)))
    if not planned:
        nodes: dict[str, list[str]] = {}
        for node, reason in captured.left.items():
            nodes.setdefault(reason.partition("\n")[0], []).append(node.name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in nodes.items())
        raise NotImplementedError(f"{type(model).__name__}: no block that kernels can take. {reasons}")
    kernels = Kernels()
    own = [each for each in planned if each.owner is None]
    for i, each in enumerate(own):
        each.number = str(i + 1) if len(own) > 1 else ""
        kernels.add_plan(each.name("forward"), each.forward)
        if each.backward:
            kernels.add_plan(each.name("backward"), each.backward)
    kernels.finish()
    for each in planned:
        if each.owner is not None:
            each.number = each.owner.number
    return captured, planned, kernels


def _planned(block: CapturedBlock, device: str) -> PlannedBlock:
    """The plans of a block: with kernels of a short text, where these can do all of it, else with others."""
    axes = DEFAULT_AXES[example(block.x).dim()]
    extents = parse_type(block.input_type, axes).extents
    positions = math.prod(extents.get(axis, 1) for axis in "dhw")
    if positions >= _PLAIN_POSITIONS and math.prod(extents.values()) >= _PLAIN_ELEMENTS:
        planned = _planned_with(block, device, plain=True)
        if all(launch["addresses"] for one in planned.plans() for launch in one.plan["launches"]):
            return planned
    try:
        return _planned_with(block, device, plain=False)
    except NotImplementedError:
        if not block.input_type.endswith(":cl"):
            raise
        return _planned_with(block, device, plain=False, dense=True)


def _planned_with(block: CapturedBlock, device: str, plain: bool, dense: bool = False) -> PlannedBlock:
    """The plans of a block; `dense`: channels_last inputs are copied first, as other views are."""
    axes = DEFAULT_AXES[example(block.x).dim()]
    x = parse_type(block.input_type.removesuffix(":cl") if dense else block.input_type, axes)
    given = block.types()
    others = {name: parse_type(text) for name, text in given.items() if "." not in name}
    # A batch of one would be a plan for a batch of one.
    extents = {axis: max(extent, 2) if axis == "n" else extent for axis, extent in x.extents.items()}
    free = {axis: extent for axis, extent in extents.items() if axis != "c"}

    example_extents = {axis: x.extents[axis] for axis in free}

    @functools.cache
    def plans(key: tuple[tuple[str, int], ...]) -> tuple[Plan, Plan | None]:
        changed = {**extents, **dict(key)}
        own = type(x)(x.dtype, changed, x.layout)
        types = {}
        for name, other in others.items():
            sizes = {
                axis: changed[axis] if extent == x.extents.get(axis) and extent != 1 else extent
                for axis, extent in other.extents.items()
            }
            if "n" in sizes and x.extents.get("n") == 1 and len(sizes) == len(x.extents):
                sizes["n"] = changed["n"] if other.extents["n"] == 1 and _varies(block, name) else sizes["n"]
            types[name] = str(type(other)(other.dtype, sizes, ""))
        types |= {name: text for name, text in given.items() if "." in name}
        plan = Plan.make(block.notation, str(own), types, device, plain=plain)
        try:
            forward, backward = plan.for_training()
        except NotImplementedError:
            return plan, None
        try:
            backward.launches_json()
        except NotImplementedError:
            return plan, None
        return forward, backward

    def describe(which: int) -> Callable[[Mapping[str, int]], str]:
        def launches(changed: Mapping[str, int]) -> str:
            plan = plans(tuple(changed.items()))[which]
            if plan is None:
                raise NotImplementedError("there is no backward plan")
            # Constants are those of the example's own extents.
            return plan.launches_json(plans(tuple(example_extents.items()))[which])

        return launches

    def general() -> tuple[General, General | None]:
        backward = plans(tuple(free.items()))[1]
        return generalise(describe(0), free), generalise(describe(1), free) if backward else None

    forward, backward = general()
    _rename_saved([one.plan for one in (forward, backward) if one is not None])
    if x.extents.get("n") == 1 and any(one is not None and "n" in one.fixed for one in (forward, backward)):
        extents["n"] = free["n"] = 1
        forward, backward = general()
        _rename_saved([one.plan for one in (forward, backward) if one is not None])
    own_plans, example_plans = plans(tuple(free.items())), plans(tuple(example_extents.items()))
    explanation = _explanation(own_plans, example_plans, axes, x.extents["c"])
    both = [one.plan for one in (forward, backward) if one is not None]
    if all(launch["addresses"] for one in both for launch in one["launches"]):
        if backward is not None:
            explanation = _join_saved(forward.plan, backward.plan, len(block.outputs), explanation)
        explanation = _rename_parameters(both, explanation)
    if dense:
        explanation = [
            "Inputs in channels_last are copied first, which these kernels do not take.",
            *explanation,
        ]
    return PlannedBlock(block, forward, backward, explanation, axes)


def _rename_saved(plans: Sequence[dict[str, Any]]) -> None:
    """What forward saves is called as what it is, where nothing else is."""
    tensors = [tensor for plan in plans for kind in ("inputs", "outputs") for tensor in plan[kind]]
    names = {tensor_name(tensor["name"]) for tensor in tensors}
    for tensor in tensors:
        name = tensor["name"].removeprefix("saved.")
        if tensor_name(name) not in names:
            tensor["name"] = name


def _join_saved(
    forward: dict[str, Any], backward: dict[str, Any], own: int, explanation: Sequence[str]
) -> list[str]:
    """What forward saves and returns, too, is saved as it is returned: the first outputs are its own."""
    parts = {slot["number"]: slot["part"] for slot in forward["slots"] if slot["kind"] == "output"}
    for i, saved in enumerate(forward["outputs"][own:], own):
        for k, returned in enumerate(forward["outputs"][:own]):
            if parts[i] == parts[k] and saved["type"] == returned["type"]:
                for tensor in backward["inputs"]:
                    if tensor["name"] == saved["name"]:
                        tensor["name"] = returned["name"]
                label, name = f"saved.{saved['name'].removeprefix('saved.')}", returned["name"]
                saved["name"] = saved["copy_of"] = name
                text = "\n".join(explanation).replace(f"{name}, {label}", name)
                explanation = re.sub(rf"\b{re.escape(label)}\b", name, text).split("\n")
                break
    return list(explanation)


def _rename_parameters(plans: Sequence[dict[str, Any]], explanation: Sequence[str]) -> list[str]:
    """Parameters of the only layer that has some are `weight` and `bias`; the explanation with that."""
    tensors = [tensor for plan in plans for kind in ("inputs", "outputs") for tensor in plan[kind]]
    parameter = re.compile(r"(?<![\w.])(d_|)(\w+)\.(weight|bias)\b")
    found = [match for tensor in tensors if (match := parameter.fullmatch(tensor["name"]))]
    layers = {match[2] for match in found}
    taken = {tensor["name"] for tensor in tensors} & {match[1] + match[3] for match in found}
    if len(layers) != 1 or taken:
        return list(explanation)
    for tensor in tensors:
        if match := parameter.fullmatch(tensor["name"]):
            tensor["notation"], tensor["name"] = tensor["name"], match[1] + match[3]
    return [parameter.sub(lambda match: match[1] + match[3], line) for line in explanation]


def _varies(block: CapturedBlock, name: str) -> bool:
    """Whether an extra input of a batch of one has an element for each sample: it is no parameter."""
    return block.arguments[name].op != "get_attr"


def _explanation(
    plans: tuple[Plan, Plan | None], example_plans: tuple[Plan, Plan | None], axes: str, channels: int
) -> list[str]:
    """The sweeps of the plans with their formulas, and how the example's work is divided."""
    over = ",".join(str(channels) if axis == "c" else axis for axis in axes)
    lines = []
    seen: set[str] = set()
    for title, plan, of_example in zip(("Forward", "Backward"), plans, example_plans, strict=True):
        if plan is None or of_example is None:
            lines.append(f"{title}: no kernels; PyTorch's operators run where gradients are needed.")
            continue
        divisions = _divisions(of_example)
        count = f"{len(divisions)} kernel{'s' if len(divisions) > 1 else ''}"
        divisions[0] = f"{title}, {count}, {divisions[0].strip()}"
        lines += [*(f"{line};" for line in divisions[:-1]), divisions[-1]]
        lines += [re.sub(r"sweep over \[.*?\]", f"sweep over [{over}]", line) for line in _steps(plan, seen)]
    return lines


def _steps(plan: Plan, seen: set[str]) -> list[str]:
    """The steps of a plan without their estimates; `seen` has the formulas that stand before them."""
    text = plan.explain().partition("\nplan for ")[2].partition("\n\n")[0]
    steps: list[str] = []
    for line in text.splitlines()[1:]:
        line = re.sub(r", about \d.*", "", line)
        # What a finalise step hands on as it is, and totals, say nothing that its outputs do not say.
        if re.fullmatch(r" {5,}[\w.]+", line) or line.startswith(
            (
                "in all",
                "device ",
                "saved by forward",
                "choice for ",
                "  * save",
                "    recompute",
                "never written",
            )
        ):
            continue
        if line.strip().startswith("saved for backward"):
            continue
        # Sums and moments stand in the formulas that take them.
        if re.fullmatch(r" {5,}(sum|moments|largest|smallest|exp_sum)( of groups)?\(.*\)", line):
            continue
        line = line if line.startswith(" ") else f"  {line}"
        if (found := re.fullmatch(r" {5,}output (.*)", line)) and "-> output" in steps[-1]:
            steps[-1] += f", {found[1]}"
            continue
        steps.append(line)
    return _once((line for line in _with_parts(steps) if line.strip()), seen)


def _with_parts(lines: Sequence[str]) -> list[str]:
    """The lines with values that have no name of their own, and one use, where they are used."""
    kept = list(lines)
    for name in re.findall(r"^ +(?:-> )?((?:part|value)\d*) = ", "\n".join(kept), re.MULTILINE):
        word = re.compile(rf"\b{name}\b")
        places = [i for i, line in enumerate(kept) if word.search(line)]
        if sum(len(word.findall(kept[i])) for i in places) != 2 or len(places) != 2:
            continue
        made, user = places
        value = kept[made].partition(" = ")[2]
        if " = " not in kept[user] or len(value) > _MOST_INSIDE:
            continue
        argument = f"({name})" in kept[user]
        product = " + " not in value and " - " not in value
        bare = argument or (product and re.search(rf"[=(] ?{name} [-+*] ", kept[user]) is not None)
        kept[user] = word.sub(value if bare else f"({value})", kept[user])
        del kept[made]
    return kept


def _once(lines: Iterable[str], seen: set[str]) -> list[str]:
    """The lines of a plan's steps with each formula where it stands first, and no step that says nothing."""
    kept: list[str] = []
    again: list[str] = []  # names of values that are computed again
    for line in [*lines, ""]:
        formula = line.strip().removeprefix("-> ")
        if " = " in formula and formula in seen and line.startswith("     "):
            again.append(formula.partition(" = ")[0])
            continue
        if again:
            names = ", ".join(again) if len(again) <= _MOST_AGAIN else f"{again[0]} to {again[-1]}"
            kept.append(f"       -> {names} as before")
            again = []
            if " = " in formula:
                line = line.replace("-> ", "   ")
        seen.add(formula)
        if not line.startswith("   ") and kept and re.fullmatch(r"  \d+  finalise", kept[-1]):
            kept.pop()
        kept.append(line)
    return _joined(kept[:-1])


def _joined(lines: Iterable[str]) -> list[str]:
    """A line for each step: what it reads, its formulas, and behind an arrow what it gives."""
    joined: list[str] = []
    for line in lines:
        if re.match(r"  \d+  ", line):
            number = sum(bool(re.match(r"  \d+  ", each)) for each in joined) + 1
            joined.append(re.sub(r"\d+", str(number), line, count=1))
        elif line.startswith("     "):
            text = line.strip()
            # An arrow stands before formulas, too.
            text = text.removeprefix("-> ") if " = " in text or text.endswith(" as before") else text
            before = joined[-1]
            start = re.fullmatch(r"  \d+  (finalise|sweep over \[.*\])", before)
            joint = ": " if start else " " if text.startswith("->") else "; "
            joined[-1] = f"{before}{joint}{text}".replace("; ->", " ->")
        else:
            joined.append(line)
    alike = re.compile(r"sum of (\w+) for each ([\w,]+); sum of (\w+) for each \2")
    return [alike.sub(r"sums of \1, \3 for each \2", line) for line in joined]


def _divisions(plan: Plan) -> list[str]:
    """How the kernels of a plan divide their work, a line each."""
    lines = plan.explain().partition("each launched once\n")[2].splitlines()
    kept: list[str] = []
    for line in lines:
        if not line.startswith("  "):
            break
        line = re.sub(r"; [\d.]+ \w+ read, .*", "", line)
        if match := re.match(r"  (\d+)  (\w+): .*?((?:[\d.]+) blocks? .*)", line):
            kept.append(f"  {match[2]}: {match[3]}")
        else:
            kept[-1] += f", {line.strip()}".replace(" of a sample", "").replace("; ", ", ")
    return kept


def load_problem(path: str | Path) -> Any:
    """The module of a problem file."""
    path = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if not hasattr(module, name):
            raise ValueError(f"{path}: expected it to define {name}")
    return module
