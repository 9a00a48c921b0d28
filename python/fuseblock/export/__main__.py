"""`python -m fuseblock.export problem.py -o new.py`: a problem's Model as one self-contained file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuseblock.export import DEVICES, MODES, export_text, load_problem


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m fuseblock.export",
        description="Writes one Python file with ModelNew: the problem's Model, its blocks as CUDA kernels.",
    )
    parser.add_argument(
        "problem", type=Path, help="a file that defines Model, get_inputs and get_init_inputs"
    )
    parser.add_argument("-o", "--output", type=Path, help="the file to write; printed unless given")
    parser.add_argument("--mode", choices=MODES, default="auto", help="precision of f32 convolutions")
    parser.add_argument("--arch", choices=DEVICES, default="sm_90a", help="the architecture to plan for")
    parser.add_argument("--keep", nargs="*", default=["conv"], help="what stays PyTorch's own: conv, linear")
    options = parser.parse_args(arguments)
    try:
        problem = load_problem(options.problem)
        text = export_text(
            problem.Model,
            _called(problem.get_init_inputs),
            _called(problem.get_inputs),
            options.keep,
            mode=options.mode,
            arch=options.arch,
            functions=(problem.get_inputs, problem.get_init_inputs),
            command="python -m fuseblock.export",
        )
        if options.output is None:
            sys.stdout.write(text)
        else:
            options.output.write_text(text)
    except (OSError, ValueError, NotImplementedError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _called(function: Callable[[], Any]) -> Any:
    """What a function of the problem returns. Raises ValueError where it fails."""
    try:
        return function()
    except Exception as error:
        raise ValueError(f"{function.__name__}() fails: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
