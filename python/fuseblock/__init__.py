"""fuseblock: convolution blocks in one or two trips over memory."""

from fuseblock._capi import version

__all__ = ["__version__"]

__version__ = version()
