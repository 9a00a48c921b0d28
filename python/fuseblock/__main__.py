"""`python -m fuseblock verify FILE`: repeats what fuseblock.verify wrote to a file."""

import sys

from fuseblock._verify import main

sys.exit(main(sys.argv[1:]))
