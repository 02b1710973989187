"""A data directory under a running broker, as a power cut would leave it."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_as_cut(directory: Path, copy: Path) -> None:
    """Spares are left out: they are made and renamed in the background, and nothing in them is
    ever looked at."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("spare-*"))
