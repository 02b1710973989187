"""How FlintMQ is installed, as errors and docs say it.

It is not on PyPI yet. On the day of release PACKAGE becomes "flintmq" and WHERE is empty;
tests/docs then names every page that still says otherwise.
"""

from __future__ import annotations

PACKAGE = "."
WHERE = "in a clone of FlintMQ"


def pip_install(*extras: str) -> str:
    """The command that installs FlintMQ with these extras."""
    return f"pip install '{PACKAGE}[{','.join(extras)}]'"


def remedy(*extras: str) -> str:
    """The same for a text that stands alone: what to type, and where."""
    return f"{pip_install(*extras)} {WHERE}".rstrip()
