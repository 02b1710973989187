"""Every error FlintMQ raises, ordered by what the caller can do next.

    FlintError
      InvalidRequest (ValueError)   fix the call
"""

from __future__ import annotations


class FlintError(Exception):
    """The root of everything FlintMQ raises on purpose."""


class InvalidRequest(FlintError, ValueError):
    """The call itself is wrong; the text says what is allowed."""
