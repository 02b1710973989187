"""Backups of a running broker: a checkpoint, then a copy of what its manifest names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..logs import event, limited
from ..storage.backup import Progress, back_up, check_empty
from ..storage.filesystem import FileSystem
from .shard import Shard

if TYPE_CHECKING:
    from .host import Host

_log = logging.getLogger(__name__)


async def back_up_to(target: FileSystem, host: Host, shard: Shard) -> None:
    def tell(progress: Progress) -> None:
        shard.check_open()
        limited(
            _log,
            logging.INFO,
            "backup_progress",
            "all" if progress.files_done == progress.files else "some",
            f"backup: {progress.files_done} of {progress.files} segments, "
            f"{progress.bytes_done} of {progress.bytes} bytes",
        )

    check_empty(target)
    checkpoints = host.checkpoints
    await checkpoints.checkpoint()
    manifest, files = checkpoints.manifest.whole(), checkpoints.manifest.files()
    checkpoints.copied.append(files)  # from here on, no checkpoint removes them
    try:
        where = target.describe()
        event(
            _log,
            logging.INFO,
            "backup_begins",
            f"backup to {where}: {len(files)} segments",
            target=where,
            segments=len(files),
        )
        await checkpoints.aside(back_up, host.filesystem, manifest, target, tell)
        event(
            _log,
            logging.INFO,
            "backup_done",
            f"backup to {where}: done, as of index {manifest.checkpoint}",
            target=where,
            index=manifest.checkpoint,
            damaged_messages=host.damages.messages(),
        )
    finally:
        checkpoints.copied.remove(files)
