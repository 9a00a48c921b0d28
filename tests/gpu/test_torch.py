#!/usr/bin/env python3
"""The PyTorch operations on CUDA tensors, beside PyTorch's operators and float64; what passed is recorded.

    python3 tests/gpu/test_torch.py [--filter TEXT] [--out FOLDER] [--jobs N] [--again] [--device cuda]

Modules and functions in every type and layout, autograd, autocast, compiled graphs, streams, CUDA graphs,
tensors of more than 2^31 elements. Needs the build folder, a GPU and torch, nothing else. Results go to
torch.json in --out, benchmarks/results/h200 unless given, row by row, as those of tests/gpu/test_cases.py do.
`--device cpu` runs what a CPU can run, to try the program itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import gpu_record  # noqa: E402


def main() -> int:
    """Runs the rows and writes the record."""
    options = gpu_record.parser("The PyTorch operations on CUDA tensors").parse_args()
    gpu_record.warm_up()
    import torch_rows
    from fuseblock import _library

    library = _library.find("libfuseblock_torch.so", "FUSEBLOCK_TORCH_LIBRARY")
    return gpu_record.main(options, "torch", torch_rows.rows(), "torch_rows:run_row", library)


if __name__ == "__main__":
    sys.exit(main())
