"""`python -m invariance`."""

import sys

from invariance.cli import main

if __name__ == "__main__":
    sys.exit(main())
