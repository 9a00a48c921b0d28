"""Exported files: the examples are what the program writes, they compile, and they compute the same.

The device code is compiled by NVRTC; whole files are built where there is nvcc. Nothing here needs a GPU.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import export_renew
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torch.utils.cpp_extension
from export_support import CASES, CHECKOUT, EXAMPLES, PROBLEMS, compile_each, device_texts, load_file
from fuseblock._capi import Plan
from fuseblock.export import DEVICES, divide, export_module, export_text, load_problem, plan_model
from fuseblock.export.capture import CapturedModel
from fuseblock.export.kernels import general_axes
from fuseblock.export.planned import PlannedBlock
from fuseblock.export.shapes import Term, generalise, parse_type
from fuseblock.export.writer import by_pytorch_text
from torch import Tensor, nn

# Every kind of kernel is in these; the others run, and compile, with FUSEBLOCK_LONG.
EMULATED = ("conv3d_hardswish_gn_mean", "conv2d_gn_tanh_hardswish_residual_lse", "rms_norm_silu")
TAILS = (
    "conv3d_gn_mean",
    "conv_transpose3d_relu_gn",
    "conv3d_hardswish_gn_mean",
    "conv2d_gn_tanh_hardswish_residual_lse",
)
COMPILED = ("conv3d_hardswish_gn_mean", "residual_block", "rms_norm_silu")
COMPILED_CASES = ("adagn", "group_norm_f16", "layer_norm_all", "max_pool_all_tied")
LONG = "FUSEBLOCK_LONG" in os.environ
RENEW = "run .venv/bin/python tests/python/export_renew.py"


def small_inputs(problem: str) -> list[Tensor]:
    """A problem's inputs with fewer samples and positions."""
    module = load_file(EXAMPLES / "problems" / f"{problem}.py")
    inputs = []
    for each in module.get_inputs():
        extents = [
            min(extent, 3) if i == 0 else extent if i == 1 else min(extent, 9)
            for i, extent in enumerate(each.shape)
        ]
        inputs.append(each[tuple(slice(extent) for extent in extents)].clone())
    return inputs


@pytest.mark.parametrize("problem", PROBLEMS)
def test_examples_are_what_the_program_writes(problem: str) -> None:
    module = load_problem(EXAMPLES / "problems" / f"{problem}.py")
    text = export_text(
        module.Model,
        module.get_init_inputs(),
        module.get_inputs(),
        functions=(module.get_inputs, module.get_init_inputs),
        command="python -m fuseblock.export",
    )
    written = (EXAMPLES / f"{problem}.py").read_text()
    assert text == written, f"examples/exported/{problem}.py is not what the program writes: {RENEW}"


@pytest.mark.parametrize("problem", TAILS)
def test_tails_of_the_reference_blocks_are_short(problem: str) -> None:
    lines = (EXAMPLES / f"{problem}.py").read_text().splitlines()
    assert len(lines) <= 350
    assert [line for line in lines if len(line) > 110] == []


@pytest.mark.parametrize("problem", TAILS)
def test_comments_are_those_of_the_device_files(problem: str) -> None:
    """What is renamed in device code is not in its comments."""
    device = "\n".join(path.read_text() for path in (CHECKOUT / "src" / "cuda" / "device").glob("*.cu*"))
    exported = load_file(EXAMPLES / f"{problem}.py")
    comments = re.findall(r"^// .*", "\n".join(device_texts(exported).values()), re.MULTILINE)
    assert comments
    assert [line for line in comments if line not in device] == []


@pytest.mark.parametrize("problem", PROBLEMS)
def test_examples_compile(problem: str) -> None:
    """As planned for sm_90a, and as it would be for sm_80."""
    if problem not in COMPILED and not LONG:
        pytest.skip("in the long form")
    original = load_file(EXAMPLES / "problems" / f"{problem}.py")
    model = original.Model(*original.get_init_inputs())
    _, _, kernels = plan_model(model, original.get_inputs(), DEVICES["sm_80"])
    exported = load_file(EXAMPLES / f"{problem}.py")
    device = exported.CUDA.partition("// Launches one of the kernels")[0]
    compile_each({"sm_90a": device, "sm_80": kernels.device()})


@pytest.mark.parametrize("problem", PROBLEMS)
def test_examples_compute_the_same_on_the_cpu(problem: str) -> None:
    original = load_file(EXAMPLES / "problems" / f"{problem}.py")
    exported = load_file(EXAMPLES / f"{problem}.py")
    assert exported.get_init_inputs() == original.get_init_inputs()
    torch.manual_seed(3)
    model = original.Model(*original.get_init_inputs())
    torch.manual_seed(3)
    new = exported.ModelNew(*exported.get_init_inputs())
    expected_state, state = model.state_dict(), new.state_dict()
    assert list(state) == list(expected_state)
    assert all(torch.equal(state[name], expected_state[name]) for name in state)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.add_(torch.rand_like(parameter))
    model.load_state_dict(new.state_dict())
    new.load_state_dict(model.state_dict())
    inputs = small_inputs(problem)
    results = []
    for each in (model, new):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        output = each(*leaves)
        output.square().sum().backward()
        results.append([output, *(leaf.grad for leaf in leaves), *(p.grad for p in each.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_file_needs_pytorch_alone(tmp_path: Path) -> None:
    path = tmp_path / "model_new.py"
    shutil.copy(EXAMPLES / "group_norm_silu.py", path)
    program = (
        "import sys, importlib.util, torch\n"
        f"spec = importlib.util.spec_from_file_location('model_new', {str(path)!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "model = module.ModelNew(*module.get_init_inputs())\n"
        "assert model(torch.rand(1, 512, 3, 4)).shape == (1, 512, 3, 4)\n"
        "assert not [name for name in sys.modules if name.startswith('fuseblock')]\n"
        "assert 'torch.utils.cpp_extension' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-I", "-c", program], check=True, cwd=tmp_path)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_imports_are_torch_and_the_standard_library(problem: str) -> None:
    modules: set[str] = set()
    for node in ast.walk(ast.parse((EXAMPLES / f"{problem}.py").read_text())):
        if isinstance(node, ast.Import):
            modules.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names | {"torch"}


@pytest.mark.parametrize("problem", ["group_norm_silu", "conv2d_gn_tanh_hardswish_residual_lse"])
def test_whole_files_build(problem: str, tmp_path: Path) -> None:
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if compiler is None or shutil.which("ninja") is None:
        pytest.skip("no nvcc or no ninja here: the device code is compiled by NVRTC in test_examples_compile")
    program = (
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('new', {str(EXAMPLES / f'{problem}.py')!r})\n"
        "new = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(new)\n"
        "assert new.library().launch\n"
    )
    environment = {
        **os.environ,
        "CUDA_HOME": str(Path(compiler).parents[1]),
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "TORCH_EXTENSIONS_DIR": str(tmp_path),
    }
    # Two at once: one builds, the other waits for it.
    started = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait() for process in started] == [0, 0]


class _OnGpu:
    """A tensor that says it is on a GPU."""

    is_cuda = True

    def __init__(self, *extents: int, dtype: torch.dtype = torch.float32) -> None:
        self._tensor = torch.empty(extents, dtype=dtype, device="meta")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


@pytest.mark.parametrize(
    ("major", "shared_bytes", "x", "expected"),
    [
        (9, 233472, _OnGpu(1, 512, 16, 16), True),
        (9, 233472, _OnGpu(7, 512, 32, 8), True),
        (7, 233472, _OnGpu(1, 512, 16, 16), False),
        (8, 102400, _OnGpu(1, 512, 16, 16), False),
        (9, 233472, _OnGpu(1, 512, 16, 16, dtype=torch.bfloat16), False),
        (9, 233472, _OnGpu(1, 512, 5, 7), False),
        (9, 233472, _OnGpu(1, 256, 16, 16), False),
        (9, 233472, _OnGpu(0, 512, 16, 16), False),
        (9, 233472, _OnGpu(1, 512, 256), False),
    ],
)
def test_what_the_kernels_take(
    major: int, shared_bytes: int, x: _OnGpu, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = load_file(EXAMPLES / "group_norm_silu.py")
    gpu = SimpleNamespace(
        major=major, shared_memory_per_multiprocessor=shared_bytes, multi_processor_count=132
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    assert exported.takes(x, _OnGpu(512), _OnGpu(512)) is expected


@pytest.mark.parametrize("knows", [True, False])
def test_torchs_headers_are_left_out_where_that_is_known(
    knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = load_file(EXAMPLES / "group_norm_silu.py")
    asked: list[dict[str, Any]] = []

    def newer(*_: Any, no_implicit_headers: bool = False, **options: Any) -> str:
        asked.append({**options, "no_implicit_headers": no_implicit_headers})
        return "kernels.so"

    def older(*_: Any, is_python_module: bool = True) -> str:
        asked.append({"is_python_module": is_python_module})
        return "kernels.so"

    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", newer if knows else older)
    monkeypatch.setattr(
        exported.ctypes, "CDLL", lambda path: SimpleNamespace(launch=SimpleNamespace(), at=path)
    )
    assert exported.library().at == "kernels.so"
    expected = {"is_python_module": False} | ({"no_implicit_headers": True} if knows else {})
    assert asked == [expected]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_kernels_on_the_emulated_gpu(problem: str) -> None:
    """Kernels and host code, forward and backward, for extents that are not the example's."""
    if problem not in EMULATED and not LONG:
        pytest.skip("in the long form")
    command = [sys.executable, str(CHECKOUT / "tests" / "python" / "export_emulated.py"), problem]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_are_those_that_ran_on_a_gpu() -> None:
    """Every example ran with the CUDA text it has now, and passed, in 1.05 of the library's time at most."""
    record = CHECKOUT / "benchmarks" / "results" / "h200" / "exported.json"
    if not record.exists():
        pytest.skip("there is no record yet: run `tools/test_gpu --only exported` on a GPU")
    rows = json.loads(record.read_text())["rows"]
    failed = [row for row in rows if row["status"] != "passed"]
    assert [f"{row['case']} {row['direction']}: {row['message']}" for row in failed] == []
    recorded = {row["case"]: row["digest"] for row in rows}
    now = {
        problem: hashlib.sha256(load_file(EXAMPLES / f"{problem}.py").CUDA.encode()).hexdigest()
        for problem in PROBLEMS
    }
    assert recorded == now


def test_the_recorded_figures_stand_beside_the_files() -> None:
    assert (EXAMPLES / "README.md").read_text() == export_renew.readme(), RENEW


def case_block(name: str) -> str:
    """The block of a case, as the printer writes it."""
    for path in sorted((CHECKOUT / "tests" / "cases").glob("*.cases")):
        if found := re.search(
            rf"^{name}: (.*) @ (\w+\[[^\]]*\](?::cl)?)(.*)$", path.read_text(), re.MULTILINE
        ):
            others = dict(re.findall(r", (\w+)=(\w+\[[^\]]*\])", found[3]))
            return canonical(Plan.make(found[1], found[2], others, "cpu"))
    raise AssertionError(f"{name} is no case")


def canonical(plan: Plan) -> str:
    """A plan's block without the names of values that its operations would give them anyway."""
    return str(json.loads(plan.explain_json())["block"])


def by_pytorch(
    planned: PlannedBlock, captured: CapturedModel, model: nn.Module, inputs: Sequence[Tensor]
) -> Tensor:
    """A block as an exported file has it for the CPU."""
    known: dict[str, Any] = {"torch": torch, "F": F}
    exec(by_pytorch_text(planned), known)
    given = iter(inputs)
    values = {
        node: model.get_parameter(str(node.target)) if node.op == "get_attr" else next(given)
        for node in captured.graph.nodes
        if node.op in ("placeholder", "get_attr")
    }
    nodes = {"x": planned.block.x, **planned.block.arguments}
    result: Tensor = known["by_pytorch"](*(values[nodes[each]] for each in planned.identifiers()))
    return result


@pytest.mark.parametrize("name", CASES)
def test_cases_are_captured_and_compile(name: str) -> None:
    case = CASES[name]
    model, inputs = case.model(), case.arguments()
    captured, planned, kernels = plan_model(model, inputs, DEVICES["sm_90a"])
    assert len(planned) == 1
    assert torch.equal(by_pytorch(planned[0], captured, model, inputs), model(*inputs))
    block = planned[0].block
    assert canonical(Plan.make(block.notation, block.input_type, block.types(), "cpu")) == case_block(name)
    if name not in COMPILED_CASES and not LONG:
        return
    _, _, others = plan_model(case.model(), case.arguments(), DEVICES["sm_80"])
    compile_each({"sm_90a": kernels.device(), "sm_80": others.device()})


@pytest.mark.parametrize(
    "type_",
    [
        "f32[1,512,256,256]",
        "bf16[2,320,128,128]",
        "f32[128,24,22,30,30]",
        "f32[16,128,34,34,34]",
        "f16[64,256,56,56]",
        "f32[1,64,1024,1024]",
    ],
)
@pytest.mark.parametrize("block", ["group_norm(8) | silu", "group_norm(8) | mean(c,h,w)"])
def test_divisions_are_the_planners(block: str, type_: str) -> None:
    """What an exported file works out for the example's extents is what the library launches."""
    if type_.count(",") == 4:
        block = block.replace("(c,h,w)", "(c,d,h,w)")
    for plan in Plan.make(block, type_, {}, "h200").for_training():
        numbers = [kernel["division"] for kernel in json.loads(plan.explain_json())["kernels"]]
        for launch, planned in zip(json.loads(plan.launches_json())["launches"], numbers, strict=True):
            if launch["name"] != "rows" or launch["cluster"] > 1:
                continue
            known = {**vars(divide), "multiprocessors": 132}
            known |= dict(zip("ncdhw", launch["domain"], strict=True))
            for value in launch["values"]:
                exec(f"{value['name']} = {value['text']}", known)
            own = {name: known[name] for name in ("units", "team", "teams", "steps")}
            assert own == {name: planned[name] for name in own}


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?f?(?![\w.])")


@pytest.mark.parametrize(
    ("block", "base", "others"),
    [
        ("group_norm(4) | silu", "f32[n=2,c=12,h=8,w=8]", [(5, 12, 4), (7, 20, 8), (64, 8, 28)]),
        (
            "hardswish | group_norm(4) | mean(d,h,w)",
            "f32[n=4,c=16,d=3,h=5,w=7]",
            [(2, 3, 9, 7), (9, 5, 5, 5)],
        ),
        ("group_norm(8) | mean(c,d,h,w)", "bf16[n=2,c=24,d=2,h=3,w=8]", [(3, 5, 7, 8), (2, 3, 3, 24)]),
        (
            "l2_normalize(c) | mul(2) | silu",
            "f32[n=2,c=96,h=60,w=104]",
            [(6, 60, 104), (2, 180, 104), (10, 60, 104)],
        ),
    ],
)
@pytest.mark.parametrize("direction", [0, 1])
def test_launches_for_any_extents_are_the_librarys(
    block: str, base: str, others: list[tuple[int, ...]], direction: int
) -> None:
    """The texts, filled in for other extents, are what the library has for these."""
    x = parse_type(base)

    def describe(extents: Mapping[str, int]) -> str:
        changed = type(x)(x.dtype, {**x.extents, **extents}, "")
        plans = [Plan.make(block, str(each), {}, "h200").for_training()[direction] for each in (changed, x)]
        return plans[0].launches_json(plans[1])

    general = generalise(describe, {axis: extent for axis, extent in x.extents.items() if axis != "c"})
    assert not general.fixed
    axes = [axis for axis in x.extents if axis != "c"]
    assert general_axes(general) == set(axes)
    for other in others:
        extents = dict(zip(axes, other, strict=True))
        expected = json.loads(describe(extents))
        for launch, own in zip(general.plan["launches"], expected["launches"], strict=True):
            for piece, text in zip(launch["pieces"], own["pieces"], strict=True):
                filled = general.fill(piece["text"], functools.partial(written, extents))
                assert NUMBER.sub("#", filled) == NUMBER.sub("#", text["text"])
                for a, b in zip(NUMBER.findall(filled), NUMBER.findall(text["text"]), strict=True):
                    assert float(a.rstrip("f")) == pytest.approx(float(b.rstrip("f")), rel=2e-7)
        for slot, own in zip(general.plan["slots"], expected["slots"], strict=True):
            for key in ("extents", "strides"):
                values = [
                    each if isinstance(each, int) else eval(each.text, {}, extents) for each in slot[key]
                ]
                assert values == own[key], (slot, own)


def written(extents: Mapping[str, int], _: int, term: Term) -> str:
    """A term as a number."""
    return repr(float(eval(term.text, {}, extents)))


class Branching(nn.Module):
    """Its forward depends on what the tensor holds."""

    def forward(self, x: Tensor) -> Tensor:
        """One of two activations."""
        return torch.relu(x) if x.sum() > 0 else torch.tanh(x)


class Plain(nn.Module):
    """Nothing but a convolution."""

    def __init__(self) -> None:
        """A convolution."""
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        return self.conv(x)  # type: ignore[no-any-return]


class Normed(nn.Module):
    """A norm behind a convolution, and a linear layer."""

    def __init__(self, channels: int) -> None:
        """For so many channels."""
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3)
        self.norm = nn.GroupNorm(2, channels)
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """The mean over positions through the linear layer."""
        y = torch.relu(self.norm(self.conv(x)) * scale)
        return self.head(y.mean((2, 3)))  # type: ignore[no-any-return]


class Small(nn.Module):
    """A norm whose groups are few and small: blocks that share one are a cluster."""

    def __init__(self) -> None:
        """Eight groups."""
        super().__init__()
        self.norm = nn.GroupNorm(8, 64)

    def forward(self, x: Tensor) -> Tensor:
        """The norm and SiLU."""
        return F.silu(self.norm(x))


def test_clusters_are_exported() -> None:
    x = torch.rand(1, 64, 64, 64)
    _, planned, kernels = plan_model(Small(), [x], DEVICES["sm_90a"])
    assert planned[0].capability() == 9
    device = kernels.device()
    assert "__cluster_dims__(8)" in device
    compile_each({"sm_90a": device})
    _, planned, kernels = plan_model(Small(), [x], DEVICES["sm_80"])
    assert planned[0].capability() == 8
    assert "__cluster_dims__" not in kernels.device()


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    x = torch.rand(2, 3, 8, 8)
    with pytest.raises(NotImplementedError, match=r"Branching\.forward cannot be traced"):
        export_module(Branching, (), [x], tmp_path / "new.py")
    with pytest.raises(NotImplementedError, match=r"Plain: no block that kernels can take\. conv: kept"):
        export_module(Plain, (), [x], tmp_path / "new.py")
    with pytest.raises(ValueError, match="mode: expected one of auto, tf32, strict, got bf16"):
        export_module(Normed, (4,), [x], tmp_path / "new.py", mode="bf16")
    with pytest.raises(ValueError, match=r"arch: expected one of sm_80.*got sm_70"):
        export_module(Normed, (4,), [x], tmp_path / "new.py", arch="sm_70")
    with pytest.raises(ValueError, match="keep: expected conv or linear, got norm"):
        export_module(Normed, (4,), [x], tmp_path / "new.py", keep=("norm",))
    assert not (tmp_path / "new.py").exists()


class Scaled(nn.Module):
    """A norm and a factor that are the constructor's to choose, behind a convolution that is kept."""

    def __init__(self, width: int, groups: int, eps: float = 1e-5, factor: float = 2.0) -> None:
        """For an input of so many channels."""
        super().__init__()
        self.width = width
        self.factor = factor
        self.conv = nn.Conv2d(width, 8, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(groups, 8, eps=eps)])
        self.heads = nn.ModuleDict({"by-1": nn.Conv2d(8, 4, 1)})

    def forward(self, x: Tensor) -> Tensor:
        """A convolution of the norm's SiLU, times the factor."""
        return self.heads["by-1"](F.silu(self.norms[0](self.conv(x))) * self.factor)  # type: ignore[no-any-return]


def test_constructors_refuse_what_kernels_were_not_made_for(tmp_path: Path) -> None:
    new = load_file(export_module(Scaled, (3, 2), [torch.rand(2, 3, 8, 8)], tmp_path / "new.py")).ModelNew
    with pytest.raises(ValueError, match=r"norms\[0\]: expected GroupNorm\(2, 8, .*got GroupNorm\(4, 8, "):
        new(3, 4)
    with pytest.raises(ValueError, match=r"norms\[0\]: expected .*eps=1e-05.*as exported, got .*eps=0.1"):
        new(3, 2, eps=0.1)
    with pytest.raises(ValueError, match=r"factor: expected 2\.0, as exported, got 3\.0"):
        new(3, 2, factor=3.0)
    # What is kept may be another: nothing else depends on it.
    model, other = Scaled(5, 2), new(5, 2)
    other.load_state_dict(model.state_dict())
    x = torch.rand(2, 5, 8, 8)
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("mode", ["auto", "tf32", "strict"])
def test_modules_are_exported_from_classes(mode: str, tmp_path: Path) -> None:
    x = torch.rand(2, 3, 8, 8)
    path = export_module(Normed, (4,), [x], tmp_path / "new.py", mode=mode, arch="sm_80")
    text = path.read_text()
    assert (
        text == export_module(Normed, (4,), [x], tmp_path / "again.py", mode=mode, arch="sm_80").read_text()
    )
    assert ", for sm_80." in text
    assert ("allow_tf32" in text) == ("Convolutions of forward run with" in text) == (mode != "auto")
    new = load_file(path)
    if mode != "auto":
        cudnn = torch.backends.cudnn
        with cudnn.flags(enabled=True, benchmark=True, deterministic=True, allow_tf32=mode == "strict"):
            with new.precision():
                assert (cudnn.benchmark, cudnn.deterministic) == (True, True)
                assert cudnn.allow_tf32 is (mode == "tf32")
            assert cudnn.allow_tf32 is (mode == "strict")
    assert new.get_init_inputs() == [4]
    assert [each.shape for each in new.get_inputs()] == [x.shape]
    model = Normed(4)
    other = new.ModelNew(4)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuseblock.export"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}
    problem = EXAMPLES / "problems" / "adagn.py"
    done = subprocess.run(
        [*command, problem, "-o", tmp_path / "new.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, (tmp_path / "new.py").read_text()) == ("", (EXAMPLES / "adagn.py").read_text())
    (tmp_path / "empty.py").write_text("")
    done = subprocess.run(
        [*command, tmp_path / "empty.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "empty.py: expected it to define Model" in done.stderr
