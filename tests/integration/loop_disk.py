"""A small ext4 disk of our own, in an image file, that can lose its power. Needs root."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_NO_LOG_FLUSH = 2


class CannotMount(Exception):
    """This machine does not let us have a disk of our own; the text says why."""


class LoopDisk:
    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image, self.path = image, mount_point

    def mount(self) -> None:
        _do("mount", "-o", "loop", str(self.image), str(self.path))

    def unmount(self) -> None:
        """Also where something still holds it, so that nothing is left behind."""
        if os.path.ismount(self.path):
            done = subprocess.run(["umount", str(self.path)], capture_output=True, check=False)
            if done.returncode:
                _do("umount", "-l", str(self.path))

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, and what had not reached it by a sync is gone."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
"""Where the tools of root are, also for a root whose path does not say so."""


@contextmanager
def loop_disk(directory: Path, *, mebibytes: int) -> Iterator[LoopDisk]:
    """A mounted disk in an image file below `directory`; gone at the end, whatever happened."""
    if os.geteuid() != 0:
        raise CannotMount("only root may mount")
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool, path=PATH) is None:
            raise CannotMount(f"there is no {tool}")
    image, mount_point = directory / "disk.img", directory / "disk"
    mount_point.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    disk = LoopDisk(image, mount_point)
    try:
        _do("mkfs.ext4", "-q", "-F", str(image))
        disk.mount()
        yield disk
    finally:
        disk.unmount()
        image.unlink()


def _do(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": PATH}
    )
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise CannotMount(f"{' '.join(command[:1])}: {said}")
