"""Contexts: brokers saved under a name, instead of typing URLs and files each time.

Stored in one JSON file per user. It contains paths to secrets, never the secrets.
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
        raise InvalidRequest(
            f"cannot read contexts from {path}: {error}; fix or remove the file"
        ) from None


def write_contexts(path: Path, contexts: Contexts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
    beside.replace(path)


def chosen(contexts: Contexts, name: str | None) -> Context | None:
    """The named context, or the current one; None if there is none."""
    name = name or contexts.current
    if name is None:
        return None
    found = contexts.contexts.get(name)
    if found is None:
        known = ", ".join(sorted(contexts.contexts)) or "none"
        raise InvalidRequest(
            f"unknown context {name!r} (known: {known}); add it with `flintmq context add`"
        )
    return found
