"""Backups of a running broker: a checkpoint of each shard, then a copy of what that names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..observe.logs import event, limited
from ..storage.backup import BackupProgress, back_up, check_empty
from ..storage.filesystem import FileSystem
from ..storage.manifest import as_copy
from .checkpoints import aside

if TYPE_CHECKING:
    from .host import Host

_log = logging.getLogger(__name__)


async def back_up_to(target: FileSystem, host: Host) -> None:
    all = host.kept.values()

    def tell(progress: BackupProgress) -> None:
        for kept in all:
            kept.shard.check_open()
        limited(
            _log,
            logging.INFO,
            "backup_progress",
            "all" if progress.files_done == progress.files else "some",
            f"backup: {progress.files_done} of {progress.files} segments, "
            f"{progress.bytes_done} of {progress.bytes} bytes",
        )

    check_empty(target)
    await host.checkpoint()
    manifests = {  # of a node alone: who opens a backup is no member of the cluster it is from
        kept.group: as_copy(replace(kept.checkpoints.manifest.whole(), members=b"", nodes=[]))
        for kept in all
    }
    files = {group: manifest.files() for group, manifest in manifests.items()}
    for kept in all:  # from here on, no checkpoint removes them
        kept.checkpoints.copied.append(files[kept.group])
    try:
        where, count = target.describe(), sum(map(len, files.values()))
        event(
            _log,
            logging.INFO,
            "backup_begins",
            f"backup to {where}: {count} segments",
            target=where,
            segments=count,
        )
        await aside(host, back_up, host.filesystem, manifests, target, tell)
        index = sum(manifest.checkpoint for manifest in manifests.values())
        event(
            _log,
            logging.INFO,
            "backup_done",
            f"backup to {where}: done, as of index {index}",
            target=where,
            index=index,
            damaged_messages=host.damages.messages(),
        )
    finally:
        for kept in all:
            kept.checkpoints.copied.remove(files[kept.group])
