"""Python code as text: literals and calls, as a person would write them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping


def text_of(value: str) -> str:
    """A text in double quotes, for Python and YAML."""
    return json.dumps(value, ensure_ascii=False)


def docstring(value: str) -> str:
    """A text of several lines in triple quotes."""
    escaped = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""\n{escaped}\n"""'


def call(function: str, options: Mapping[str, str]) -> str:
    """A call with keywords, or with a dictionary if a name is not an identifier."""
    if all(name.isidentifier() for name in options):
        keywords = ", ".join(f"{name}={text_of(value)}" for name, value in options.items())
        return f"{function}({keywords})"
    pairs = ", ".join(f"{text_of(name)}: {text_of(value)}" for name, value in options.items())
    return f"{function}(**{{{pairs}}})"
