"""The text of an exported file."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx

from fuseblock.export import divide, graph_text
from fuseblock.export.capture import CapturedModel
from fuseblock.export.constants import checked_constructor
from fuseblock.export.device_text import format_python
from fuseblock.export.forward_text import TF32, forward_text
from fuseblock.export.kernels import Kernels
from fuseblock.export.launches import DTYPES, in_domain, summed_outputs, tensor_name
from fuseblock.export.names import keep_apart
from fuseblock.export.planned import PlannedBlock
from fuseblock.export.shapes import Term
from fuseblock.export.source import ModelSource
from fuseblock.export.values import value_text

__all__ = ["by_pytorch_text", "write_file"]

_MOST_ALLOCATED = 84  # letters of names and shapes that are allocated by one line
_HEAD_WIDTH = 110


_LAY_OUT_DENSE = '''
def lay_out(tensor):
    """The tensor as the kernels take it: dense, and aligned to 16 bytes. Other views are copied."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
'''

_LAY_OUT = '''
def lay_out(tensor, channels_last=False):
    """The tensor as the kernels take it: dense, and aligned to 16 bytes. Other views are copied."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim()) if channels_last else None
    tensor = tensor.contiguous(memory_format=last or torch.contiguous_format)
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
'''

_ZEROS = '''
def zeros(x, *sizes):
    """Memory of so many bytes each, all of them zero."""
    sizes = [(size + 15) // 16 * 16 for size in sizes]
    return x.new_zeros(sum(sizes), dtype=torch.uint8).split(sizes)
'''

_RUNTIME = '''
@functools.cache
def library():
    """The compiled kernels. PyTorch builds them at the first call, one process at a time, and keeps them."""
    from torch.utils.cpp_extension import load_inline
    bare = "no_implicit_headers"  # without torch's headers it builds in seconds
    options = {bare: True} if bare in inspect.signature(load_inline).parameters else {}
    name = f"fuseblock_export_{hashlib.sha256(CUDA.encode()).hexdigest()[:16]}"
    return ctypes.CDLL(load_inline(name, "", CUDA, is_python_module=False, **options))


def launch(kernel, blocks, threads, shared_bytes, cooperative, tensors, axes, numbers):
    """Launches a kernel: tensors with the strides of their axes, then numbers, are its Arguments."""
    words = []
    for tensor, own in zip(tensors, axes.split(" "), strict=True):
        sizes = zip(own, tensor.shape, tensor.stride(), strict=True)
        strides = {axis: stride for axis, extent, stride in sizes if extent > 1}
        words += [tensor.data_ptr(), *(strides.get(axis, 0) for axis in "ncdhw")]
    words += [each.data_ptr() if torch.is_tensor(each) else each for each in numbers]
    packed = struct.pack("".join("d" if isinstance(word, float) else "q" for word in words), *words)
    with torch.cuda.device(tensors[0].device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        number = list(KERNELS).index(kernel)
        error = library().launch(number, packed, blocks, threads, shared_bytes, cooperative, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")
'''


_LAUNCH_ADDRESSES = '''
def launch(kernel, blocks, shared_bytes, arguments):
    """Launches a kernel: addresses of tensors and numbers are its parameters."""
    words = [each.data_ptr() if torch.is_tensor(each) else each for each in arguments]
    packed = (ctypes.c_int64 * len(words))(*words)
    with torch.cuda.device(arguments[0].device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = library().launch(list(KERNELS).index(kernel), packed, blocks, shared_bytes, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")
'''

_PRECISION = '''
def precision():
    """Convolutions {with_or_without} TF32 where forward calls them; backward is PyTorch's to choose."""
    cudnn = torch.backends.cudnn
    kept = ("enabled", "benchmark", "benchmark_limit", "deterministic")
    return cudnn.flags(**{{name: getattr(cudnn, name) for name in kept}}, allow_tf32={allowed})
'''

_ASSEMBLY = r"""
CUDA = "".join(f"namespace {name} {{\n{''.join(texts)}\n}}\n" for name, texts in KERNELS.items()) + HOST
""".lstrip()


def _quoted(name: str, text: str) -> str:
    return f'{name} = r"""\n{text.strip(chr(10))}\n"""\n'


def _wrapped(text: str, width: int = _HEAD_WIDTH) -> str:
    """The text in lines; products stay whole."""
    whole = text.replace(" * ", "\0*\0")
    lines = textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


_NOTATION = (
    "Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v "
    "over what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v "
    "is the gradient by v. A sweep is one pass over all elements, a finalise step works on statistics."
)


def _wrapped_line(line: str) -> str:
    """An indented line, and what does not fit into it further in; formulas stay whole where they can."""
    indent = " " * (len(line) - len(line.lstrip()))
    lines: list[str] = []
    for part in re.split(r"(?<=;) | (?=-> )", line.lstrip()):
        if lines and len(indent) + len(lines[-1]) + 1 + len(part) <= _HEAD_WIDTH:
            lines[-1] += " " + part
        else:
            lines.append(("    " if lines else "") + part)
    return "\n".join(
        "\n".join(
            textwrap.wrap(
                indent + text, _HEAD_WIDTH, subsequent_indent=indent + "      ", break_on_hyphens=False
            )
        )
        for text in lines
    )


def _head(model: CapturedModel, planned: Sequence[PlannedBlock], name: str, command: str, mode: str) -> str:
    lines = [f"{name} with its blocks as CUDA kernels: `ModelNew`, in place of `{name}`.", ""]
    lines.append(f"Written by `{command}`; it needs PyTorch alone. Compiled at the first call on a GPU.")
    lines += [""] if len(planned) > 1 else []
    for each in planned:
        plan = each.forward.plan
        title = f"Block {each.number}" if each.number else "Block"
        planned_for = f"on {each.block.input_type}, for {plan['architecture']}"
        lines.append(_wrapped(f"{title}: {plan['block']}, {planned_for}."))
        lines += [_wrapped_line(line) for line in each.explanation]
        fixed = each.fixed()
        free = [axis for axis in each.axes if axis not in fixed and axis != "c"]
        taken = f"The kernels take any extents along {', '.join(free)}{_but(each)}" if free else ""
        if fixed:
            kept = ", ".join(f"{axis} = {extent}" for axis, extent in sorted(fixed.items()))
            taken += f" They are for {kept}."
        lines.append(_wrapped(taken.strip()))
    notation = _NOTATION
    if any("multiprocessors" in line for line in lines):
        notation += " multiprocessors is how many the GPU has."
    lines += ["", _wrapped(notation)]
    capability = max(each.capability() for each in planned)
    others = (
        "By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute "
        f"capability {capability}.0 or with less shared memory. Other layouts are copied first."
    )
    left = [f"{_call_name(node)} ({reason})" for node, reason in model.left.items() if node.op != "get_attr"]
    if mode in TF32:
        others += f" Convolutions of forward run {'with' if TF32[mode] else 'without'} TF32."
    if left:
        others += " Left as it was: " + ", ".join(dict.fromkeys(left)) + "."
    lines.append(_wrapped(others))
    body = "\n".join(lines)
    return f'"""{body}\n"""\n'


def _but(each: PlannedBlock) -> str:
    found = _conditions(each)
    return f" with {' and '.join(found)}." if found else "."


def _call_name(node: torch.fx.Node) -> str:
    if node.op == "call_module":
        return f"self.{node.target}"
    return node.name


def _conditions(each: PlannedBlock) -> list[str]:
    """What must hold of the extents, as expressions of Python."""
    found: dict[str, None] = {}
    for general in each.plans():
        for launch in general.plan["launches"]:
            for condition in launch["conditions"]:
                text = general.fill(condition, lambda _, term: term.text)
                found[in_domain(text, launch["domain"])] = None
    return _ranges(found)


def _ranges(conditions: Iterable[str]) -> list[str]:
    """Conditions on the same expression as one: `16 <= d * h * w < 1000000000`."""
    least: dict[str, int] = {}
    end: dict[str, int] = {}
    divisors: dict[str, int] = {}
    others = []
    for text in conditions:
        if match := re.fullmatch(r"(.*) >= (\d+)|(\d+) <= (.*)", text):
            name, number = (match[1], match[2]) if match[1] else (match[4], match[3])
            least[name] = max(least.get(name, 0), int(number))
        elif match := re.fullmatch(r"(.*) < (\d+)", text):
            end[match[1]] = min(end.get(match[1], int(match[2])), int(match[2]))
        elif match := re.fullmatch(r"(.*) % (\d+) == 0", text):
            divisors[match[1]] = math.lcm(divisors.get(match[1], 1), int(match[2]))
        else:
            others.append(text)
    multiples = [f"{name} % {divisor} == 0" for name, divisor in divisors.items()]
    ranges = []
    for name in dict.fromkeys([*least, *end]):
        low = f"{least[name]} <= " if name in least else ""
        ranges.append(f"{low}{name} < {end[name]}" if name in end else f"{name} >= {least[name]}")
    return [*multiples, *others, *ranges]


def _shape(extents: Sequence[int | Term]) -> str:
    parts = [str(extent) if isinstance(extent, int) else extent.text for extent in extents]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _empty(tensor: dict[str, Any], dtype: str) -> str:
    text = f"x.new_empty({_shape(tensor['extents'])}"
    if tensor["dtype"] != dtype or tensor["type"].endswith(":cl"):
        text += f", dtype=torch.{DTYPES[tensor['dtype']]}"
    if tensor["type"].endswith(":cl"):
        text += f", memory_format=torch.channels_last{'_3d' if len(tensor['extents']) == 5 else ''}"
        return (
            text.replace("x.new_empty(", "torch.empty(").replace(", dtype", ", device=x.device, dtype") + ")"
        )
    return text + ")"


def _unpack(each: PlannedBlock, lines: Sequence[str]) -> list[str]:
    """The line that names the extents of x that these lines use."""
    used = set(
        re.findall(r"(?<![\w.\"])[ncdhw](?![\w.\"])", re.sub(r"'[^']*'|\"[^\"]*\"", "", " ".join(lines)))
    )
    if not used:
        return []
    return [f"        {', '.join(axis if axis in used else '_' for axis in each.axes)} = x.shape"]


def _takes(each: PlannedBlock) -> str:
    names = list(each.identifiers().values())
    dtypes = [f"torch.{DTYPES[tensor['dtype']]}" for tensor in each.inputs]
    shapes = ", ".join(_shape(tensor["extents"]) for tensor in each.inputs)
    fixed = [f"{axis} == {extent}" for axis, extent in each.fixed().items() if axis not in each.forward.fixed]
    checks = [f"gpu.major >= {each.capability()}"]
    if any(launch["shared_bytes"] for one in each.plans() for launch in one.plan["launches"]):
        shared_bytes = each.forward.plan["shared_bytes_multiprocessor"]
        checks.append(f"gpu.shared_memory_per_multiprocessor >= {shared_bytes}")
    if len(set(dtypes)) == 1:
        checks.append(f"all(t.device == x.device and t.dtype == {dtypes[0]} for t in tensors)")
    else:
        checks.append("all(t.device == x.device for t in tensors)")
        checks.append(f"[t.dtype for t in tensors] == [{', '.join(dtypes)}]")
    if each.backward is None:
        checks.append("not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))")
    conditions = [text.replace("multiprocessors", "gpu.multi_processor_count") for text in _conditions(each)]
    checks += [f"[t.shape for t in tensors] == [{shapes}]", "x.numel() > 0", *fixed, *conditions]
    used = set(re.findall(r"\b[ncdhw]\b", " ".join(checks)))
    lines = [
        f"def {each.name('takes')}({', '.join(names)}):",
        '    """Whether the kernels take these tensors."""',
        f"    tensors = ({', '.join(names)}{',' if len(names) == 1 else ''})",
        f"    if not x.is_cuda or x.dim() != {len(each.axes)} or torch.is_autocast_enabled() "
        "or torch.compiler.is_compiling():",
        "        return False",
        f"    {', '.join(axis if axis in used else '_' for axis in each.axes)} = x.shape",
        *(["    gpu = torch.cuda.get_device_properties(x.device)"] if str(checks).count("gpu.") > 1 else []),
        f"    return {' and '.join(checks)}",
    ]
    if str(checks).count("gpu.") == 1:
        lines[-1] = lines[-1].replace("gpu.", "torch.cuda.get_device_properties(x.device).")
    return "\n".join(lines) + "\n"


def _allocated(tensors: Sequence[dict[str, Any]], dtype: str, x: dict[str, Any]) -> list[str]:
    """The lines that allocate outputs; those in the type and layout of x beside each other."""
    lines = []
    row: list[tuple[str, str]] = []

    def end_row() -> None:
        if len(row) == 1:
            lines.append(f"{row[0][0]} = x.new_empty({row[0][1]})")
        elif row:
            names, shapes = (", ".join(each) for each in zip(*row, strict=True))
            lines.append(f"{names} = map(x.new_empty, [{shapes}])")
        row.clear()

    for tensor in tensors:
        name = tensor_name(tensor["name"])
        if (tensor["extents"], tensor["type"]) == (x["extents"], x["type"]):
            lines.append(f"{name} = torch.empty_like(x)")
        elif tensor["dtype"] != dtype or tensor["type"].endswith(":cl"):
            lines.append(f"{name} = {_empty(tensor, dtype)}")
        else:
            made = (name, _shape(tensor["extents"]))
            if len(", ".join(part for each in [*row, made] for part in each)) > _MOST_ALLOCATED:
                end_row()
            row.append(made)
    end_row()
    return lines


def _function_class(each: PlannedBlock, kernels: Kernels) -> str:
    forward = each.forward.plan
    inputs = each.identifiers()
    names = list(inputs.values())
    outputs = [tensor_name(tensor["name"]) for tensor in forward["outputs"]]
    own = len(each.block.outputs)
    lines = [
        f"class {each.name('Block')}(torch.autograd.Function):",
        '    """The block and its gradients by the kernels."""',
        "",
        "    @staticmethod",
        f"    def forward(ctx, {', '.join(names)}):",
    ]
    lines += _laid_out(forward["inputs"])
    dtype = each.inputs[0]["dtype"]
    made_here = [t for t in forward["outputs"] if "copy_of" not in t]
    run = _allocated(made_here, dtype, each.inputs[0])
    run += kernels.lines(each.name("forward"))
    lines += [*_unpack(each, run), *(f"        {line}" for line in run)]
    result = ", ".join(outputs[:own])
    if each.backward is None:
        return "\n".join([*lines, f"        return {result}"]) + "\n"
    backward = each.backward.plan
    known = set(names) | set(outputs)
    summed = summed_outputs(backward)
    made_here = [t for t in backward["outputs"] if t["name"] not in summed]
    run = _allocated(made_here, dtype, each.inputs[0])
    run += kernels.lines(each.name("backward"))
    used = set(re.findall(r"\w+", " ".join(run)))
    saved = [tensor_name(t["name"]) for t in backward["inputs"] if tensor_name(t["name"]) in known & used]
    # x gives the extents, dtype and device.
    saved = list(dict.fromkeys(["x", *saved]))
    lines += [f"        ctx.save_for_backward({', '.join(saved)})", f"        return {result}", ""]
    given = [f"d_{name}" for name in outputs[:own]]
    lines += [
        "    @staticmethod",
        "    @torch.autograd.function.once_differentiable",
        f"    def backward(ctx, {', '.join(given)}):",
        f"        {', '.join(saved)}{',' if len(saved) == 1 else ''} = ctx.saved_tensors",
    ]
    lines += _laid_out([t for t in backward["inputs"] if tensor_name(t["name"]) in given])
    lines += [*_unpack(each, run), *(f"        {line}" for line in run)]
    made = {tensor_name(t["name"]) for t in backward["outputs"]}
    gradients = [f"d_{name}" if f"d_{name}" in made else "None" for name in names]
    lines.append(f"        return {', '.join(gradients)}")
    return "\n".join(lines) + "\n"


def _laid_out(tensors: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    dense = []
    for tensor in tensors:
        name = tensor_name(tensor["name"])
        if tensor["type"].endswith(":cl"):
            lines.append(f"        {name} = lay_out({name}, True)")
        else:
            dense.append(name)
    if len(dense) == 1:
        lines.append(f"        {dense[0]} = lay_out({dense[0]})")
    elif dense:
        lines.append(f"        {', '.join(dense)} = map(lay_out, ({', '.join(dense)}))")
    return lines


def by_pytorch_text(each: PlannedBlock) -> str:
    """The function `by_pytorch` of a block."""
    block = each.block
    identifiers = each.identifiers()
    names = {block.x: "x"}
    for name, node in block.arguments.items():
        if name in identifiers:
            names[node] = identifiers[name]
    lines = graph_text.statements(block.nodes, names, {})
    returned = ", ".join(names[node] for node in block.outputs)
    last = f"{names[block.outputs[0]]} = "
    if len(block.outputs) == 1 and lines[-1].startswith(last):
        lines[-1] = "return " + lines[-1].removeprefix(last)
    else:
        lines.append(f"return {returned}")
    return (
        f"def {each.name('by_pytorch')}({', '.join(identifiers.values())}):\n"
        '    """The block by PyTorch\'s operators."""\n' + textwrap.indent("\n".join(lines), "    ") + "\n"
    )


def _block_function(each: PlannedBlock) -> str:
    names = ", ".join(each.identifiers().values())
    chosen = f"{each.name('Block')}.apply if {each.name('takes')}({names}) else {each.name('by_pytorch')}"
    lines = [f"    return ({chosen})({names})"]
    if len(lines[0]) > _HEAD_WIDTH:
        lines = [f"    function = {chosen}", f"    return function({names})"]
    return (
        f"def {each.name('block')}({names}):\n"
        f'    """The block `{each.forward.plan["block"]}`."""\n' + "\n".join(lines) + "\n"
    )


def _division(name: str) -> str:
    """A function of fuseblock.export.divide."""
    return re.sub(r"  # type: .*", "", inspect.getsource(getattr(divide, name)))


def _kernel_texts(kernels: Kernels) -> str:
    """CUDA, all the source, and KERNELS, by whose order a launch numbers them."""
    if kernels.one_text:
        names = [f'"{kernel.namespace}"' for kernel in kernels.kernels]
        table = f"KERNELS = ({', '.join(names)}{',' if len(names) == 1 else ''})\n"
        return _quoted("CUDA", kernels.text() + "\n" + kernels.host().strip("\n")) + "\n" + table
    files, namespaces = kernels.sections()
    texts = [_quoted(name, text) for name, text in files.items()]
    rows = []
    for namespace, pieces in namespaces:
        listed = []
        number = 0
        own_count = sum(not constant for constant, _ in pieces)
        for constant, text in pieces:
            if not constant:
                number += 1
                constant = namespace.upper() + (f"_{number}" if own_count > 1 else "")
                texts.append(_quoted(constant, text))
            listed.append(constant)
        only = "," if len(listed) == 1 else ""
        rows.append(f'"{namespace}": ({", ".join(listed)}{only})')
    texts.append(_quoted("HOST", kernels.host()))
    texts.append(f"KERNELS = {{{', '.join(rows)}}}\n" + _ASSEMBLY)
    return "\n".join(texts)


def write_file(
    model: CapturedModel,
    planned: Sequence[PlannedBlock],
    kernels: Kernels,
    source: ModelSource,
    model_text: str,
    model_class: type,
    examples: str,
    command: str,
    mode: str,
) -> str:
    """The whole text; see docs/export.md for its parts."""
    own = [each for each in planned if each.owner is None]
    keep_apart(model.graph, planned, source, model_class.__name__)
    parts = [_head(model, own, model_class.__name__, command, mode)]
    imports = [
        "import ctypes",
        "import functools",
        "import hashlib",
        "import inspect",
        "import struct",
        "import torch",
    ]
    body = []
    for each in own:
        body += [_takes(each), by_pytorch_text(each), _function_class(each, kernels), _block_function(each)]
    if kernels.all_addresses() and not kernels.has_numbers():
        imports.remove("import struct")
    forward = forward_text(model, planned, model_class.forward, mode)  # type: ignore[attr-defined]
    if any("F." in text for text in (*body, forward)):
        imports.append("import torch.nn.functional as F")
    for name in ("math", "operator"):
        if any(re.search(rf"\b{name}\.", text) for text in (*body, forward)):
            imports.append(f"import {name}")
    imports += [line for line in source.imports if line not in imports]
    parts.append("\n".join(_sorted(imports)) + "\n")
    parts += [text.rstrip() + "\n" for text in source.definitions]
    shared = (
        "# Device code that all kernels have in common; each is compiled with its own constants in front.\n"
    )
    parts.append("" if kernels.all_addresses() else shared)
    parts[-1] += _kernel_texts(kernels)
    mixed = any(", True)" in text for text in body)
    parts.append((_LAY_OUT if mixed else _LAY_OUT_DENSE).strip("\n") + "\n")
    if any(re.search(r"\bzeros\(", text) for text in body):
        parts.append(_ZEROS.strip("\n") + "\n")
    runtime = _RUNTIME.strip("\n") + "\n"
    if kernels.all_addresses():
        launch = _LAUNCH_ADDRESSES.strip("\n") + "\n"
        runtime = runtime.partition("def launch(")[0]
        if kernels.has_numbers():
            packed = 'struct.pack("".join("d" if isinstance(word, float) else "q" for word in words), *words)'
            launch = launch.replace("(ctypes.c_int64 * len(words))(*words)", packed)
        if kernels.one_text:
            launch = launch.replace("list(KERNELS)", "KERNELS")
        runtime += launch if kernels.keeps() else launch.replace("shared_bytes, ", "")
    parts.append(runtime)
    if mode in TF32:
        words = {"with_or_without": "with" if TF32[mode] else "without", "allowed": TF32[mode]}
        parts.append(_PRECISION.format(**words).strip("\n") + "\n")
    parts += [_division(name) for name in sorted(kernels.functions)]
    if any("math.isqrt" in part for part in parts) and "import math\n" not in parts[1]:
        parts[1] = parts[1].replace("import inspect\n", "import inspect\nimport math\n")
    parts += body
    model_text = checked_constructor(model_text, model.constants.lines())
    parts.append(model_text.rstrip() + "\n\n" + forward)
    parts.append(examples)
    return format_python("\n\n".join(part.rstrip("\n") + "\n" for part in parts))


def _sorted(imports: Sequence[str]) -> list[str]:
    """Imports as ruff sorts them: plain ones before `from`, the standard library before torch."""
    own = sorted(line for line in imports if "torch" not in line)
    torches = sorted(
        (line for line in imports if "torch" in line), key=lambda line: (line.startswith("from"), line)
    )
    return [*own, "", *torches]


def example_text(inputs: Sequence[Any], init_args: Sequence[Any]) -> str:
    """get_inputs for tensors like these, and get_init_inputs."""
    given, arguments = (f"[{', '.join(map(_example, each))}]" for each in (inputs, init_args))
    return f"def get_inputs():\n    return {given}\n\n\ndef get_init_inputs():\n    return {arguments}\n"


def _example(value: Any) -> str:
    if isinstance(value, list | tuple):
        parts = ", ".join(map(_example, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts}{',' if len(value) == 1 else ''})"
    if not isinstance(value, torch.Tensor):
        return value_text(value)
    shape = ", ".join(map(str, value.shape)) or "()"
    if value.is_floating_point() or value.is_complex():
        return f"torch.rand({shape}{'' if value.dtype == torch.float32 else f', dtype={value.dtype}'})"
    end = int(value.max()) + 1 if value.numel() else 1
    return f"torch.randint({end}, {value_text(value.shape)}, dtype={value.dtype})"
