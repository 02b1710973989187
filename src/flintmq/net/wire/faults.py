"""Errors on the wire: kind, text and facts. Pure.

A client raises the class of that name with that text and those attributes. Names that are not in
`errors.py` become plain FlintErrors: nothing that comes over a wire is ever imported or called.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from ...errors import FlintError, InvalidRequest, MalformedFrame
from .operations import Control, Fault

KINDS: dict[str, type[FlintError]] = {
    name: kind
    for name, kind in vars(sys.modules[FlintError.__module__]).items()
    if isinstance(kind, type) and issubclass(kind, FlintError)
}
_PAIRS = "differing"
"""The one fact whose values are pairs, which MessagePack gives back as lists."""


def fault_of(error: FlintError) -> Fault:
    text = str(error.args[0]) if error.args else str(error)
    facts = {name: fact for name, fact in vars(error).items() if _can_travel(name, fact)}
    return Fault(type(error).__name__, text, facts)


def error_of(fault: Fault) -> FlintError:
    kind = KINDS.get(fault.kind, FlintError)
    error = kind.__new__(kind, fault.text)
    error.args = (fault.text,)
    for name, fact in fault.facts.items():
        if not name.startswith("_"):
            error.__dict__[name] = _with_pairs(fact) if name == _PAIRS else fact
    return error


def _can_travel(name: str, fact: Any) -> bool:
    if name.startswith("_"):
        return False
    try:
        msgspec.msgpack.encode(fact)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _with_pairs(fact: Any) -> Any:
    if not isinstance(fact, dict):
        return fact
    return {name: tuple(pair) if isinstance(pair, list) else pair for name, pair in fact.items()}


def undecodable(kind: type[Control], error: Exception) -> FlintError:
    """What is wrong with a request that is no `kind`."""
    if isinstance(error, msgspec.ValidationError):
        return InvalidRequest(f"{kind.__name__}: {error}")
    if isinstance(error, UnicodeDecodeError):
        why = f"{error.reason} at byte {error.start}"
        return InvalidRequest(f"{kind.__name__}: a text in it is not UTF-8: {why}")
    return MalformedFrame(f"{kind.__name__}: {error}")
