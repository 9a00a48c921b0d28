"""Inputs that are hard on statistics and sums: the CPU engine in f32, bf16 and f16 beside PyTorch.

A mean far above the deviation, small and large scales, constant channels: outputs and gradients keep the bar
of test_cpu_against_torch.py, max|e| <= 2 max|e_torch| + 4 ulp(max|ref|), pooled over seeds, and of PyTorch
over numbers of threads, by which its sums differ: where all of a sum cancels, its error on one thread may be
a tenth of that on two. NaN and infinities stand exactly where PyTorch has them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from case_support import CaseResult, run_cases, torch_results
from test_cpu_against_torch import DTYPES, largest, peer_results, ulp
from test_reference_against_torch import CASES
from torch import Tensor

SEEDS = (1, 3, 5)
THREADS = (1, 2)

BLOCKS = [
    # Norms.
    "group_norm",
    "group_norm_one_group",
    "group_norm_each_channel",
    "group_norm_three_a_group",
    "group_norm_ten_a_group",
    "group_norm_odd",
    "group_norm_cl",
    "group_norm_3d",
    "group_norm_no_affine",
    "group_norm_silu",
    "group_norm_twice",
    "instance_norm_affine",
    "instance_norm_3d",
    "layer_norm_channels",
    "layer_norm_all",
    "layer_norm_last",
    "layer_norm_cl",
    "rms_norm_channels",
    "rms_norm_all",
    "batch_norm",
    "l2_normalize_channels",
    "l2_normalize_space",
    "softmax_channels",
    "softmax_space",
    # The reference blocks and their tails.
    "conv3d_gn_mean",
    "conv3d_gn_mean_tail",
    "conv_transpose3d_relu_gn",
    "conv_transpose3d_relu_gn_tail",
    "conv3d_hardswish_gn_mean",
    "conv3d_hardswish_gn_mean_tail",
    "conv2d_gn_tanh_hardswish_residual_lse",
    "conv2d_gn_tanh_hardswish_residual_lse_tail",
    # Blocks of networks.
    "vae_half_block_conv",
    "unet_preactivation",
    "adagn",
    "adain",
    "ltx2_upsampler",
    "wan_rms_norm",
    "nnunet_2d",
    "convnext_depthwise",
    "global_context",
]


def with_constant_channels(x: Tensor) -> Tensor:
    """The first channel is 0, the last one a number that no type holds exactly."""
    x[:, 0] = 0.0
    x[:, -1] = 3.7
    return x


def with_one(value: float) -> Callable[[Tensor], Tensor]:
    """One element in the middle of the last sample replaced."""

    def place(x: Tensor) -> Tensor:
        last = x[-1].flatten()
        last[last.numel() // 2] = value
        return x

    return place


# What is made of normal numbers of deviation 1.5.
HARD: dict[str, Callable[[Tensor], Tensor]] = {
    "mean_1e4": lambda x: x + 1e4,
    "scale_1e-2": lambda x: x * 1e-2,
    "scale_1e3": lambda x: x * 1e3,
    "constant_channels": with_constant_channels,
}
NOT_FINITE = {
    name: with_one(value) for name, value in (("nan", numpy.nan), ("inf", numpy.inf), ("neg_inf", -numpy.inf))
}

# Missed so far: the convolution adds up all products of an output one after the other in f32.
MISSED = {("conv3d_hardswish_gn_mean", "scale_1e3", "f32")}


@pytest.fixture(scope="module")
def hard_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind of input, type and seed with the results of all blocks on the CPU engine."""
    folder = tmp_path_factory.mktemp("hard_numbers")
    chosen = folder / "chosen.cases"
    chosen.write_text("".join(CASES[name] for name in BLOCKS))
    for seed in SEEDS:
        plain = folder / f"plain_{seed}"
        run_cases(plain, "--seed", str(seed), chosen)
        kinds = {**HARD, **NOT_FINITE} if seed == SEEDS[0] else HARD
        for kind, change in kinds.items():
            given = folder / f"given_{kind}_{seed}"
            for name in BLOCKS:
                (given / name).mkdir(parents=True)
                numpy.save(given / name / "x.npy", change(CaseResult(plain / name).tensor("x")).numpy())
            for dtype in DTYPES:
                out = folder / f"{kind}_{dtype}_{seed}"
                run_cases(out, "--engine", "cpu", "--seed", str(seed), "--load", given, chosen, dtype=dtype)
    return folder


def peers_of_threads(case: CaseResult, dtype: torch.dtype) -> list[dict[str, Tensor]]:
    """PyTorch's outputs and gradients in the type, on each number of threads."""
    before = torch.get_num_threads()
    try:
        results = []
        for threads in THREADS:
            torch.set_num_threads(threads)
            results.append(peer_results(case, dtype))
        return results
    finally:
        torch.set_num_threads(before)


def exact_results(case: CaseResult) -> dict[str, Tensor]:
    """PyTorch's outputs and gradients in float64."""
    return {key: value for part in torch_results(case) for key, value in part.items()}


@pytest.mark.parametrize("dtype_name", DTYPES)
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("name", BLOCKS)
def test_bar(
    name: str, kind: str, dtype_name: str, hard_results: Path, request: pytest.FixtureRequest
) -> None:
    """Outputs and gradients within the bar."""
    if (name, kind, dtype_name) in MISSED:
        request.applymarker(pytest.mark.xfail(strict=True, reason="long sums in f32"))
    dtype = DTYPES[dtype_name]
    info = torch.finfo(dtype)
    error: dict[str, float] = {}
    torch_error: dict[str, float] = {}
    size: dict[str, float] = {}
    for seed in SEEDS:
        case = CaseResult(hard_results / f"{kind}_{dtype_name}_{seed}" / name)
        peers = peers_of_threads(case, dtype)
        for key, reference in exact_results(case).items():
            got = case.tensor(key)
            theirs = [peer[key].double() for peer in peers]
            # Beyond the largest number of the type, or less than an error below it, infinity is right too.
            agreed = theirs[0].isfinite() & (reference.abs() < (1 - 4 * info.eps) * info.max)
            assert bool(got[agreed].isfinite().all()), f"{key}, seed {seed}: not finite where PyTorch is"
            error[key] = max(error.get(key, 0.0), largest((got - reference)[agreed]))
            their_error = max(largest((each - reference)[agreed]) for each in theirs)
            torch_error[key] = max(torch_error.get(key, 0.0), their_error)
            size[key] = max(size.get(key, 0.0), largest(reference))
    told = []
    for key, found in error.items():
        bar = 2 * torch_error[key] + 4 * ulp(size[key], dtype)
        if found > bar:
            told.append(
                f"{key}: the error is {found:.3g}, the bar {bar:.3g}, "
                f"PyTorch's error {torch_error[key]:.3g}, the largest value {size[key]:.3g}"
            )
    if told:
        repeat = f"repeat with: .venv/bin/pytest '{request.node.nodeid}'"
        pytest.fail("\n".join([*told, repeat]), pytrace=False)


@pytest.mark.parametrize("dtype_name", DTYPES)
@pytest.mark.parametrize("kind", NOT_FINITE)
@pytest.mark.parametrize("name", BLOCKS)
def test_not_finite(
    name: str, kind: str, dtype_name: str, hard_results: Path, request: pytest.FixtureRequest
) -> None:
    """NaN and infinities exactly where PyTorch has them: in float64, or in the type where that differs."""
    dtype = DTYPES[dtype_name]
    told = []
    case = CaseResult(hard_results / f"{kind}_{dtype_name}_{SEEDS[0]}" / name)
    peer = peer_results(case, dtype)
    for key, reference in exact_results(case).items():
        got = case.tensor(key)
        wrong = torch.ones_like(got, dtype=torch.bool)
        for theirs in (reference, peer[key].double()):
            same = torch.where(theirs.isnan(), got.isnan(), got == theirs)
            wrong &= ~torch.where(theirs.isfinite(), got.isfinite(), same)
        if wrong.any():
            at = int(wrong.flatten().nonzero()[0])
            pair = f"got {got.flatten()[at].item()}, PyTorch has {reference.flatten()[at].item()}"
            told.append(f"{key} at element {at} and {int(wrong.sum()) - 1} more: {pair}")
    if told:
        repeat = f"repeat with: .venv/bin/pytest '{request.node.nodeid}'"
        pytest.fail("\n".join([*told, repeat]), pytrace=False)
