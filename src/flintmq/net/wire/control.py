"""What all control parts of the native protocol are."""

from __future__ import annotations

import msgspec


class Control(msgspec.Struct, array_like=True, gc=False):
    """The root of all control parts."""
