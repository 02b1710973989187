"""The command line: `flintmq --help`. Each command has its own file, which is imported on first
use.

Exit codes are listed in `exit_codes`.
"""

from __future__ import annotations

import sys


def main() -> None:
    try:
        try:
            import click  # noqa: F401
        except ImportError:
            from ..installing import remedy

            print(
                f"flintmq: the command line needs extra packages: {remedy('server')}",
                file=sys.stderr,
            )
            sys.exit(2)
        from .root import run

        sys.exit(run())
    except KeyboardInterrupt:  # while modules are loaded; later, `run` sees to it
        print("flintmq: interrupted", file=sys.stderr)
        sys.exit(130)


__all__ = ["main"]
