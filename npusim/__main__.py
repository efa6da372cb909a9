"""`python -m npusim`: the command line."""

import sys

from npusim.cli import main

if __name__ == "__main__":
    sys.exit(main())
