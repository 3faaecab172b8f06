"""`python -m relay`, for where the `relay` command is not on the path."""

import sys

from relay.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
