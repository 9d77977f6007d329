"""`python -m benchmarks`; what other processes import is in `benchmarks.commands`."""

import sys

from benchmarks.commands import main

if __name__ == "__main__":
    sys.exit(main())
