"""Importing this makes `fuseblock` a package of which nothing is loaded yet.

Of it only `aten` and `_capi` are taken here, which need the C library alone; the package itself loads the
library of PyTorch's operations, too.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_package = types.ModuleType("fuseblock")
_package.__path__ = [str(ROOT / "python" / "fuseblock")]
sys.modules.setdefault("fuseblock", _package)
