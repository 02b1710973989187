"""Parameters: `${name}` in the texts of a pipeline file. The first of these is the value:

    --set name=value
    the environment           (the parameter's `env`, else FLINTMQ_PARAM_NAME)
    the default in the file

`$${` stands for `${` itself. Pure: the environment is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...config.documents import TextLayout
from .definition import FilePlace
from .problems import Defect, meant

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(?:\$(?=\{)|\{([^}\n]*)(\}?))")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    default: str | None
    env: str
    about: str
    place: FilePlace


def variable_of(name: str) -> str:
    """The environment variable of a parameter without `env`."""
    return f"FLINTMQ_PARAM_{name.upper()}"


def values_of(
    parameters: Mapping[str, Parameter],
    given: Mapping[str, str],
    environ: Mapping[str, str],
    file: str,
) -> tuple[dict[str, str], list[Defect]]:
    """The values of the parameters, and what is wrong with the given ones."""
    problems = [
        Defect(FilePlace(file), f"--set {name}: unknown parameter {name}", meant(name, parameters))
        for name in given
        if name not in parameters
    ]
    values: dict[str, str] = {}
    for name, one in parameters.items():
        if name in given:
            values[name] = given[name]
        elif one.env in environ:
            values[name] = environ[one.env]
        elif one.default is not None:
            values[name] = one.default
        else:
            problems.append(
                Defect(
                    one.place,
                    f"the parameter {name} has no value{one.about and f' ({one.about})'}",
                    f"pass --set {name}=VALUE, set {one.env}, or write a default",
                )
            )
    return values, problems


@dataclass(frozen=True, slots=True)
class Filled:
    """A text with its parameters replaced, and the places of its characters in the file."""

    text: str
    layout: TextLayout | None
    had_parameters: bool


def fill(
    text: str,
    layout: TextLayout | None,
    values: Mapping[str, str],
    known: Mapping[str, Parameter],
    place_of: Callable[[int], FilePlace],
) -> tuple[Filled, list[Defect]]:
    """Replace the parameters in a text. `place_of` gives the place of one of its characters."""
    if "$" not in text:
        return Filled(text, layout, False), []
    result, at = [], 0
    parts: list[tuple[int, int, int]] = []
    problems: list[Defect] = []
    had = False
    for found in _REFERENCE.finditer(text):
        name, closed = found[1], found[2]
        if name is None:
            value = "$"  # $${ means ${
        else:
            had = True
            value = values.get(name, "")
            problems += _reference_problems(name, bool(closed), known, place_of(found.start()))
        result += [text[at : found.start()], value]
        parts.append((found.start(), found.end(), len(value)))
        at = found.end()
    result.append(text[at:])
    return Filled("".join(result), layout and layout.with_replaced(parts), had), problems


def _reference_problems(
    name: str, is_closed: bool, known: Mapping[str, Parameter], place: FilePlace
) -> Iterator[Defect]:
    if not is_closed or not NAME.fullmatch(name):
        begun = NAME.match(name)
        shown = f"${{{name}}}" if is_closed else f"${{{begun[0] if begun else ''}"
        yield Defect(
            place,
            f"{shown} is not a parameter",
            "write ${name}, or $${ for a literal ${",
        )
    elif name not in known:
        yield Defect(
            place,
            f"unknown parameter {name}",
            meant(name, known) or f'define it under parameters: {name} = "its default"',
        )
