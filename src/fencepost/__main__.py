"""The first code of the command line, `fencepost …` and `python -m fencepost …`."""

from __future__ import annotations

import sys

from fencepost.interrupts import EndsAtOnce


def main() -> int:
    """Run the command that the process was started with and return its exit code."""
    with EndsAtOnce():
        from fencepost import cli
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
