"""The pipeline to begin with: a file, in TOML or YAML, in which everything is explained."""

from __future__ import annotations

from importlib.resources import files


def sample(name: str, file: str, *, yaml: bool = False) -> str:
    """The text of the file: that of `sample.toml` or `sample.yaml`, with its names put in."""
    text = files(__package__).joinpath(f"sample.{'yaml' if yaml else 'toml'}")
    return text.read_text(encoding="utf-8").format(name=name, file=file)
