"""`flintmq key`: create, list and revoke API keys. The broker may be running or stopped."""

from __future__ import annotations

import functools
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ..access import TopicGrant
from ..errors import InvalidRequest
from ..storage.key_file import KEYS_FILE, ApiKey, KeyFile, make_key, parse_key
from .command_group import CommandGroup
from .connecting import ACCESS, Target, access_options, server_options, target_of
from .durations import Lifetime
from .key_stores import ClusterKeys, FileKeys, KeyStore
from .look import print_table
from .shared import Command, confirm, file_option, output_option, print_json, show, yes_option


@click.group("key", cls=CommandGroup)
def command() -> None:
    """Create, list and revoke API keys. The broker may be running or stopped.

    Creating the first key turns authentication on: from then on, every client needs a key.
    With --server, the keys are those of a cluster: all of its nodes accept them.

    \b
    Examples:
      flintmq key add billing --grant 'orders.>:consume' --data-dir /var/lib/flint
      flintmq key add billing --grant 'orders.>:consume' --server flint://a.example.com
      flintmq key ls --data-dir /var/lib/flint
      flintmq key rm billing --data-dir /var/lib/flint --yes
    """


def key_store_options(command: Command) -> Command:
    """`--data-dir`, `--keys-file`, or `--server` of a cluster; the command receives `store`."""

    @click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="FLINTMQ_DATA_DIR",
        help=f"The broker's data directory, which contains {KEYS_FILE}.",
    )
    @file_option(
        "--keys-file",
        "The keys file, if the broker uses another one (keys_file).",
        envvar="FLINTMQ_KEYS_FILE",
    )
    @click.option(
        "--server",
        metavar="URL",
        help="A node of a cluster, flint://host:port. The key works at all nodes.",
    )
    @access_options()
    @functools.wraps(command)
    def with_store(
        *, data_dir: Path | None, keys_file: Path | None, server: str | None, **rest: Any
    ) -> int:
        access = {name: rest.pop(name) for name in ACCESS}
        if server is not None:
            return command(store=ClusterKeys(target_of(server, **access)), **rest)
        return command(store=FileKeys(_key_file(data_dir, keys_file)), **rest)

    return with_store


def _key_file(data_dir: Path | None, keys_file: Path | None) -> KeyFile:
    if keys_file is None and data_dir is None:
        raise click.UsageError(
            "no keys file given; pass --data-dir DIR, or set FLINTMQ_DATA_DIR; of a cluster, "
            "--server URL"
        )
    path = keys_file or Path(str(data_dir)) / KEYS_FILE
    if not path.parent.is_dir():
        # Made on the fly, a mistyped directory would get keys that no broker ever asks for.
        raise click.UsageError(f"directory {path.parent} does not exist; create it first")
    return KeyFile(path)


def _shown(key: ApiKey) -> dict[str, Any]:
    """The public facts of a key: nothing that helps to guess it."""
    return {
        "id": key.id,
        "name": key.name,
        "grants": {grant.topics: grant.may for grant in key.grants},
        "made_at": _when(key.made_at_ms),
        "expires_at": _when(key.expires_at_ms),
        "note": key.note,
    }


def _when(ms: int | None) -> str | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _grant(text: str) -> TopicGrant:
    pattern, colon, permissions = text.rpartition(":")
    if not colon or not pattern:
        raise click.UsageError(
            f"a grant must be PATTERN:PERMISSIONS, as in 'orders.>:publish,consume'; not {text!r}"
        )
    try:
        return TopicGrant.of(
            pattern, [one.strip() for one in permissions.split(",") if one.strip()]
        )
    except InvalidRequest as error:
        raise click.UsageError(f"--grant {text}: {error}") from None


@command.command("add")
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="PATTERN:PERMISSIONS",
    help="Topics and permissions: publish, consume, administer. May be repeated.",
)
@click.option(
    "--expires",
    type=Lifetime(),
    metavar="TIME",
    help="Key expires after this time: 12h, 30d, 52w.",
)
@click.option("--note", default="", help="Free text, for example the owner of the key.")
@key_store_options
@output_option
def add(
    name: str,
    grants: tuple[str, ...],
    expires: float | None,
    note: str,
    store: KeyStore,
    output: str,
) -> int:
    """Create an API key and print it. It is shown only once.

    A running broker accepts it within a second, without a restart. Only a hash is stored.
    PATTERN is a topic name, where * matches one word and > matches the rest. Quote it, because
    the shell interprets both characters.

    \b
    Examples:
      flintmq key add billing --grant 'orders.>:consume' --grant 'bills:publish' \\
          --data-dir /var/lib/flint > billing.key
      flintmq key add root --grant '>:publish,consume,administer' --expires 30d \\
          --data-dir /var/lib/flint
    """
    now_ms = time.time_ns() // 1_000_000
    key, text = make_key(
        name,
        [_grant(one) for one in grants],
        now_ms=now_ms,
        expires_at_ms=None if expires is None else now_ms + round(expires * 1000),
        note=note,
    )
    is_first = store.keys() is None
    store.add(key)
    if output == "json":
        print_json({**_shown(key), "key": text})
        return 0
    click.echo(text)
    if sys.stdout.isatty():
        ends = "" if key.expires_at_ms is None else f", expires {_when(key.expires_at_ms)}"
        click.echo(f"Created key {key.id} ({name}){ends}. It is not shown again.", err=True)
    if is_first:
        click.echo(f"flintmq: {store.first}", err=True)
    return 0


@command.command("ls")
@key_store_options
@output_option
def ls(store: KeyStore, output: str) -> int:
    """List API keys: permissions, creation and expiry. Secrets are not stored.

    \b
    Examples:
      flintmq key ls --data-dir /var/lib/flint
      flintmq key ls --data-dir /var/lib/flint --output json
    """
    known = store.keys()
    if known is None and output != "json":
        click.echo(f"There are no keys in {store.place}: no client needs one.", err=True)
        return 0
    keys = known or []
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            key.id,
            key.name,
            " ".join(f"{one.topics}:{','.join(one.may)}" for one in key.grants),
            _when(key.made_at_ms),
            "expired" if key.is_expired(now_ms) else _when(key.expires_at_ms) or "never",
            key.note,
        )
        for key in keys
    ]
    return show(
        output,
        {"keys": [_shown(key) for key in keys]},
        lambda: print_table(("ID", "NAME", "GRANTS", "MADE", "EXPIRES", "NOTE"), rows),
    )


@command.command("rm")
@click.argument("name_or_id", metavar="NAME|ID")
@key_store_options
@yes_option
@output_option
def rm(name_or_id: str, store: KeyStore, yes: bool, output: str) -> int:
    """Revoke a key by name or id. Its clients are disconnected within a second.

    After the last key is revoked, the broker still requires a key, so no client can connect.

    \b
    Examples:
      flintmq key rm billing --data-dir /var/lib/flint --yes
      flintmq key rm billing --server flint://a.example.com --yes
    """
    parsed = parse_key(name_or_id.strip())
    if parsed is not None:
        raise click.UsageError(
            "this is a complete key, and it is now in your shell history; name the key by "
            f"its id: {parsed[0]}"
        )
    confirm(f"Revoke key {name_or_id} and disconnect its clients?", yes)
    key = store.remove(name_or_id)
    return show(output, _shown(key), f"Revoked key {key.id} ({key.name}).")


@command.command("copy")
@click.argument("keys_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@server_options
@output_option
def copy(keys_file: Path, target: Target, output: str) -> int:
    """Copy the keys of a keys file into a cluster, so that all of its nodes accept them.

    Use this once for a broker that became a cluster, or for nodes that had a copy of the file each.
    The keys stay as they are: clients notice nothing. Keys that the cluster has already, or has
    revoked, are left out. Afterwards remove the file from the nodes: what is in it stays good
    there, also when the cluster revokes it.

    \b
    Examples:
      flintmq key copy /var/lib/flint/keys.json --server flint://a.example.com
    """
    store = ClusterKeys(target)
    copied, left_out = store.copy(KeyFile(keys_file).read())
    facts = {"copied": copied, "left_out": left_out}
    return show(
        output, facts, f"Copied {len(copied)} keys; left out {len(left_out)} that were there."
    )
