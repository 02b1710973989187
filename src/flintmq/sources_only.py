"""`FLINTMQ_PURE=1`: the sources run, though binaries lie beside them.

For profilers and debuggers that cannot look into binaries, and to see whether a fault is one of the
compiler. It counts from the first import of `flintmq` to the end of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class SourceFinder:
    """Finds modules of FlintMQ by their sources alone, ahead of Python's own finders."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith("flintmq."):
            return None
        specs = (_finder(entry).find_spec(name) for entry in path)
        return next((spec for spec in specs if spec is not None), None)


@cache
def _finder(directory: str) -> FileFinder:
    return FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))


def prefer_sources() -> None:
    if SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, SourceFinder)
