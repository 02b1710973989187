"""`flintmq backup`: back up a running broker, or copy the data directory of a stopped one."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from ..errors import DataDirectoryInUse, InvalidRequest
from .cluster_change import cluster_now
from .connecting import Target, run_async, server_options
from .look import said
from .shared import output_option, show, stopped_directory, tell_copied


@click.command("backup")
@click.argument("places", nargs=-1, required=True, metavar="[DATA_DIR] TARGET")
@click.option("--cluster", "of_cluster", is_flag=True, help="Back up a cluster: the leader writes.")
@output_option
@server_options
def command(target: Target, places: tuple[str, ...], of_cluster: bool, output: str) -> int:
    """Back up a running broker to TARGET, or copy the DATA_DIR of a stopped one.

    With only TARGET, the running broker (--server) writes the backup on its own machine and
    with its own permissions, while it keeps serving clients. TARGET must be an absolute path
    there, below `backup_dir` if that is set. For a broker on this machine, a relative path
    works too. TARGET must be a new or empty directory.

    With DATA_DIR, no broker is contacted, and none may be using the directory. On the same
    disk, segment files are hard-linked, because they never change. A backup is itself a data
    directory; `flintmq restore` copies and verifies it.

    With --cluster, the leader writes the backup, on its machine. It contains everything that was
    acknowledged before it started. `flintmq restore` makes a new cluster of it.

    \b
    Examples:
      flintmq backup /mnt/backup/flint-tuesday
      flintmq backup --cluster /mnt/backup/cluster-tuesday
      flintmq backup /var/lib/flint /mnt/backup/flint-monday
    """
    if not 1 <= len(places) <= 2:
        raise click.UsageError("pass TARGET, or DATA_DIR and TARGET")
    *directory, last = places
    if of_cluster and directory:
        raise click.UsageError("--cluster is for a cluster that runs; pass TARGET only")
    into = Path(last)
    if directory:
        source = str(Path(directory[0]))
        _copy(Path(source), into)
        text = f"Copied {source} to {into}."
    else:
        source = target.url
        into = _place(source, into)
        if of_cluster:
            return _of_cluster(target, into, output)
        target.ask(lambda mq: mq.backup(into))
        text = f"The broker at {source} wrote a backup to {into}."
    return show(output, {"directory": source, "target": str(into)}, text)


def _of_cluster(target: Target, into: Path, output: str) -> int:
    status = run_async(cluster_now(target))
    if status.leader is None:
        raise InvalidRequest("the cluster has no leader, so its last entries are unknown")
    target.ask(lambda mq: mq.backup(into))
    shown = {"cluster": status.cluster, "node": status.leader, "target": str(into)}
    text = f"Node {status.leader} wrote a backup of cluster {status.cluster[:8]} to {into}."
    return show(output, shown, text)


def _copy(directory: Path, into: Path) -> None:
    from ..storage.backup import check_empty, copy_stopped
    from ..storage.filesystem import LocalFileSystem

    if not directory.is_dir():
        raise click.UsageError(f"directory {directory} does not exist")
    try:
        with stopped_directory(directory) as filesystem:
            copy = LocalFileSystem(into)
            check_empty(copy)
            copy_stopped(filesystem, copy, tell_copied, link=True)
    except DataDirectoryInUse as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise InvalidRequest(
            f"{directory} is in use by {holder}; to back up a running broker, use `flintmq "
            f"backup {into}` with --server"
        ) from None
    finally:
        said()


def _place(url: str, into: Path) -> Path:
    """The path as the broker will read it. A relative path is only meaningful on this machine."""
    host = urlsplit(url).hostname or ""
    if url.startswith("file://") or host in ("localhost", "::1") or host.startswith("127."):
        return Path(os.path.abspath(into))
    if not into.is_absolute():
        raise click.UsageError(f"{into} must be an absolute path on the machine of {url}")
    return into
