"""Contexts: brokers that have a name, so that nobody types URLs and files again and again.

One JSON file of the user's; secrets are not in it, only where they are.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..errors import InvalidRequest


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to reach one broker."""

    server: str
    api_key_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


class Contexts(msgspec.Struct):
    current: str | None = None
    contexts: dict[str, Context] = {}


def path_of_contexts() -> Path:
    if named := os.environ.get("FLINTMQ_CONTEXTS"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "flintmq" / "contexts.json"


def read_contexts(path: Path) -> Contexts:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{path} is no file of contexts: {error}; mend or remove it") from None


def write_contexts(path: Path, contexts: Contexts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
    beside.replace(path)


def chosen(contexts: Contexts, name: str | None) -> Context | None:
    """The one that is named, or in use; None if there is none in use."""
    name = name or contexts.current
    if name is None:
        return None
    found = contexts.contexts.get(name)
    if found is None:
        known = ", ".join(sorted(contexts.contexts)) or "none yet"
        raise InvalidRequest(
            f"there is no context {name!r} (there is: {known}); `flintmq context add`"
        )
    return found
