"""fuseblock: convolution blocks in one or two trips over memory."""
