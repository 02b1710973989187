"""Whether the modules that a wheel may have as binaries run as such, or as Python.

This module is one of them (`packaging/compiled.toml` lists all), so it knows by its own file. Where
no binary fits, for another Python or after a plain `pip install .`, the sources beside them run:
the same code, the same bytes on the wire and on the disk.
"""

from __future__ import annotations

__compiled__ = __file__.endswith((".so", ".pyd"))
BUILD = "compiled" if __compiled__ else "pure Python"
