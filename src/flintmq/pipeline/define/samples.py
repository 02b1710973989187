"""A sample pipeline to start with, in TOML or YAML, with comments."""

from __future__ import annotations

from pathlib import Path


def sample(name: str, file: str, *, yaml: bool = False) -> str:
    """The text of `sample.toml` or `sample.yaml`, with its names filled in."""
    path = Path(__file__).with_name(f"sample.{'yaml' if yaml else 'toml'}")
    return path.read_text(encoding="utf-8").format(name=name, file=file)
