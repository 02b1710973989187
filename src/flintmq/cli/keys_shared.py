"""Shared by the key commands: the file to use, and how a key is displayed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from ..storage.key_file import KEYS_FILE, ApiKey, KeyFile

F = TypeVar("F", bound=Callable[..., Any])


def keys_file_options(command: F) -> F:
    """`--data-dir` or `--keys-file`; the command receives `file`."""

    @click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="FLINTMQ_DATA_DIR",
        help=f"The broker's data directory, which contains {KEYS_FILE}.",
    )
    @click.option(
        "--keys-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="FLINTMQ_KEYS_FILE",
        help="The keys file, if the broker uses another one (keys_file).",
    )
    @functools.wraps(command)
    def with_file(*, data_dir: Path | None, keys_file: Path | None, **rest: Any) -> Any:
        if keys_file is None and data_dir is None:
            raise click.UsageError(
                "no keys file given; pass --data-dir DIR, or set FLINTMQ_DATA_DIR"
            )
        path = keys_file or Path(str(data_dir)) / KEYS_FILE
        if not path.parent.is_dir():
            # Made on the fly, a mistyped directory would get keys that no broker ever asks for.
            raise click.UsageError(f"directory {path.parent} does not exist; create it first")
        return command(file=KeyFile(path), **rest)

    return with_file  # type: ignore[return-value]


def shown(key: ApiKey) -> dict[str, Any]:
    """The public facts of a key: nothing that helps to guess it."""
    return {
        "id": key.id,
        "name": key.name,
        "grants": {grant.topics: grant.may for grant in key.grants},
        "made_at": when(key.made_at_ms),
        "expires_at": when(key.expires_at_ms),
        "note": key.note,
    }


def when(ms: int | None) -> str | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
