"""`flintmq backup`: a copy of what a running broker holds, or of a data directory nobody uses."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from ..errors import DataDirectoryInUse, InvalidRequest
from .connecting import Target, run_async, server_options
from .look import said
from .shared import output_option, print_json, stopped_directory, tell_copied


@click.command("backup")
@click.argument("places", nargs=-1, required=True, metavar="[DATA_DIR] TARGET")
@output_option
@server_options
def command(target: Target, places: tuple[str, ...], output: str) -> int:
    """Have a running broker write a backup into TARGET, or copy the DATA_DIR of a stopped one.

    With TARGET alone the broker (of --server) writes it while work goes on, on its own machine and
    with its own rights: an absolute path there, below its `backup_dir` where that is set. A broker
    on this machine takes a relative path, too. TARGET is a new or empty directory.

    With DATA_DIR no broker is asked, and none may use it. On the same disk segments become links,
    which never change. A backup is a data directory itself; `flintmq restore` copies and checks it.

    \b
    Examples:
      flintmq backup /mnt/backup/flint-tuesday
      flintmq backup /var/lib/flint /mnt/backup/flint-monday
    """
    if len(places) > 2:
        raise click.UsageError("say TARGET, or DATA_DIR and TARGET")
    into = Path(places[-1])
    if len(places) == 2:
        source = str(Path(places[0]))
        _copy(Path(source), into)
    else:
        source = target.url
        into = _place(target.url, into)
        run_async(_ask(target, into))
    if output == "json":
        print_json({"directory": source, "target": str(into)})
    elif len(places) == 2:
        click.echo(f"{source} is copied to {into}")
    else:
        click.echo(f"the broker at {source} has written a backup to {into}")
    return 0


def _copy(directory: Path, into: Path) -> None:
    from ..storage.backup import check_empty, copy_stopped
    from ..storage.filesystem import LocalFileSystem

    if not directory.is_dir():
        raise click.UsageError(f"there is no directory {directory}")
    try:
        with stopped_directory(directory) as filesystem:
            copy = LocalFileSystem(into)
            check_empty(copy)
            copy_stopped(filesystem, copy, tell_copied, link=True)
    except DataDirectoryInUse as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise InvalidRequest(
            f"{directory} is in use by {holder}; a running broker writes its own backup: "
            f"`flintmq backup {into}`, with its --server"
        ) from None
    finally:
        said()


def _place(url: str, into: Path) -> Path:
    """As the broker will read it: only on this machine do we know what a relative path means."""
    host = urlsplit(url).hostname or ""
    if url.startswith("file://") or host in ("localhost", "::1") or host.startswith("127."):
        return Path(os.path.abspath(into))
    if not into.is_absolute():
        raise click.UsageError(f"{into} is to be on the machine of {url}: say an absolute path")
    return into


async def _ask(target: Target, into: Path) -> None:
    async with target.connect() as mq:
        await mq.backup(into)
