"""The command line as `python -m towers`."""

import sys

from towers.scripts.main import main

if __name__ == "__main__":
    sys.exit(main())
