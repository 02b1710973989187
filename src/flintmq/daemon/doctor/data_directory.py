"""The data directory: its disk, sync latency, the process using it, its contents.

No file in it is opened for writing. The probe writes a temporary file, and removes it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ...amounts import precise, size
from ...errors import FlintError
from ...storage.backup import JOURNAL, LOCK, SEGMENTS
from ...storage.filesystem import LocalFileSystem
from ...storage.group_files import files_of, groups_in, path_in
from ...storage.journal_scan import TORN
from ...storage.manifest import NAME as MANIFEST
from ...storage.manifest import Manifest, read_manifest
from ...storage.topic_log import Damage
from ..notes import DAMAGE, RECOVERY
from .findings import DoctorFinding, bad, ok, warn

PROBES = 20
PROBE_BYTES = 4096
SLOW_SECONDS = 0.05
TOO_GOOD_SECONDS = 0.00002
DISK_BYTES_FEW = 1 << 30
DISK_BYTES_NONE = 128 << 20
CLOCK_SECONDS = 60.0
FOREVER = 1 << 62

FORGETFUL = {"tmpfs", "ramfs"}
FAR = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "virtiofs", "vboxsf", "ceph", "glusterfs"}


def look_at_directory(path: Path) -> Iterator[DoctorFinding]:
    if not path.is_dir():
        yield bad(
            "data directory",
            f"{path} does not exist",
            "pass the broker's data directory: --data-dir, or --config with data_dir in it",
        )
        return
    try:
        names = {name.name for name in path.iterdir()}
    except OSError as error:
        yield bad(
            "data directory",
            f"cannot read {path}: {error.strerror}",
            "run this as the broker's user",
        )
        return
    if not names & {MANIFEST, JOURNAL, SEGMENTS}:
        yield warn(
            "data directory",
            f"{path} contains no broker data yet",
            "if it should, check that this is the right directory",
        )
    else:
        yield from _contents(path)
    yield _free(path)
    yield judge_filesystem(*filesystem_of(path))
    yield _probed(path)
    yield _lock(path)
    yield from _past(path)


# --- what is in it


def _contents(path: Path) -> Iterator[DoctorFinding]:
    filesystem = LocalFileSystem(path)
    groups = groups_in(filesystem)
    journal = _sizes(path / JOURNAL, "journal-")
    directories = [path / path_in(files_of(filesystem, group), SEGMENTS) for group in groups]
    segments = [size for directory in directories for size in _sizes(directory, "")]
    facts = {
        "journal_files": len(journal),
        "journal_bytes": sum(journal),
        "segments": len(segments),
        "segment_bytes": sum(segments),
    }
    files = (
        f"{len(journal)} journal files ({size(sum(journal))}), "
        f"{len(segments)} segments ({size(sum(segments))})"
    )
    if groups[1:]:
        files = f"{len(groups)} groups of a cluster; {files}"
        facts["raft_groups"] = len(groups)
    try:
        manifests = _manifests(filesystem)
    except FlintError as error:
        yield bad("data directory", f"{files}; {error}", "run `flintmq log verify`")
        return
    if not manifests:
        yield ok("data directory", f"{files}; no checkpoint yet", **facts)
        return
    topics = [topic for manifest in manifests for topic in manifest.topics]
    messages = sum(topic.next_offset - topic.first_offset for topic in topics)
    consumers = sum(len(topic.groups) for topic in topics)
    yield ok(
        "data directory",
        f"{files}; at the last checkpoint {len(topics):,} topics, {consumers:,} groups, "
        f"{messages:,} messages",
        **facts,
        topics=len(topics),
        groups=consumers,
        messages=messages,
        checkpoint=str(manifests[0].checkpoint),
    )


def _manifests(filesystem: LocalFileSystem) -> list[Manifest]:
    """Of every group that has one."""
    found = (read_manifest(files_of(filesystem, group)) for group in groups_in(filesystem))
    return [manifest for manifest in found if manifest is not None]


def _sizes(directory: Path, prefix: str) -> list[int]:
    sizes = []
    with suppress(OSError):
        for file in directory.iterdir():
            if file.name.startswith(prefix):
                with suppress(OSError):  # recycled meanwhile
                    sizes.append(file.stat().st_size)
    return sizes


def _damage(path: Path) -> Iterator[DoctorFinding]:
    """Messages that the broker found damaged and that still exist."""
    with suppress(OSError, msgspec.DecodeError, FlintError):
        content = (path / DAMAGE).read_bytes()
        noted = msgspec.json.decode(content, type=dict[str, list[Damage]])
        manifests = _manifests(LocalFileSystem(path))
        firsts = {topic.name: topic.first_offset for m in manifests for topic in m.topics}
        left = [
            (topic, damage)
            for topic, damages in noted.items()
            for damage in damages
            if damage.next > firsts.get(topic, FOREVER)
        ]
        if left:
            count = sum(damage.next - damage.first for _, damage in left)
            topics = len({topic for topic, _ in left})
            yield bad(
                "damaged messages",
                f"{count:,} messages in {topics:,} topics are damaged on disk; first: "
                f"{left[0][1].cause}",
                "check the disk; 'messages_damaged' in the log names topics and offsets; "
                "restore a backup to get them back, or purge the topics up to there, or "
                "stop the broker and run `flintmq log repair`",
                count=count,
                topics=topics,
            )


def _past(path: Path) -> Iterator[DoctorFinding]:
    """What earlier starts have left, and whether the clock went back since."""
    torn = sorted((path / JOURNAL).glob("torn-*"))
    if torn:
        size = sum(file.stat().st_size for file in torn)
        yield warn(
            "torn tails",
            f"{len(torn)} incomplete writes ({size:,} bytes) were cut off at startup, the "
            f"last is {torn[-1].name}; {TORN}",
            "remove them when they are no longer needed; check the disk if there was no crash",
            count=len(torn),
            bytes=size,
        )
    yield from _damage(path)
    with suppress(OSError, msgspec.DecodeError):
        found = msgspec.json.decode((path / RECOVERY).read_bytes(), type=dict)
        shown = ", ".join(f"{name} {value}" for name, value in found.items())
        yield ok("last start", shown, **found)
    newest = max((file.stat().st_mtime for file in path.iterdir()), default=0.0)
    if newest > time.time() + CLOCK_SECONDS:
        yield warn(
            "clock of the data",
            f"files in the data directory are {newest - time.time():,.0f} s in the future",
            "the clock was set back: the broker's time continues from its last timestamp, "
            "and approaches the clock at 1 %; check the time service of this machine",
        )


def _lock(path: Path) -> DoctorFinding:
    lock = path / LOCK
    try:
        text = lock.read_text().strip()
        inode = lock.stat().st_ino
    except OSError:
        return ok("lock", "not used by any broker so far")
    pid = int(text) if text.isdigit() else None
    locks = _locks()
    holder = None if locks is None else holder_of(inode, locks)
    if holder is not None:
        return ok("lock", f"in use by a broker: pid {pid or holder}", pid=pid or holder, held=True)
    if pid is not None and Path(f"/proc/{pid}").exists() and locks is None:
        return ok("lock", f"probably in use by a broker: pid {pid}", pid=pid)
    return ok("lock", "not in use right now", held=False)


def _locks() -> str | None:
    """The kernel's list of locks, which may be empty; None if it cannot be read."""
    with suppress(OSError):
        return Path("/proc/locks").read_text()
    return None


def holder_of(inode: int, locks: str) -> int | None:
    """The pid that holds a lock on a file, by the kernel's list; None if there is none."""
    for line in locks.splitlines():
        parts = line.split()
        if len(parts) >= 6 and parts[1] == "FLOCK" and parts[5].rpartition(":")[2] == str(inode):
            return int(parts[4])
    return None


# --- its disk


def _free(path: Path) -> DoctorFinding:
    room = os.statvfs(path)
    return judge_free(
        room.f_bavail * room.f_frsize,
        room.f_blocks * room.f_frsize,
        room.f_favail if room.f_files else None,
    )


def judge_free(free: int, total: int, inodes: int | None) -> DoctorFinding:
    part = free / total if total else 0.0
    what = f"{size(free)} free of {size(total)} ({part:.0%})"
    facts = {"free_bytes": free, "total_bytes": total, "free_inodes": inodes}
    remedy = "free some space, move the data directory to a larger disk, or set retention on topics"
    if free < DISK_BYTES_NONE:
        return bad("disk", f"{what}: publishes are rejected, or soon will be", remedy, **facts)
    if free < DISK_BYTES_FEW or part < 0.05:
        return warn("disk", what, remedy, **facts)
    if inodes is not None and inodes < 1000:
        return warn(
            "disk", f"{what}; only {inodes} more files can be created", "remove unneeded files"
        )
    return ok("disk", what, **facts)


def filesystem_of(path: Path) -> tuple[str, str]:
    """The type of the filesystem, and its options; empty if unknown."""
    with suppress(OSError):
        return mounted(str(path.resolve()), Path("/proc/self/mounts").read_text())
    return "", ""


def mounted(path: str, mounts: str) -> tuple[str, str]:
    best, found = "", ("", "")
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 4:
            continue
        where = parts[1].replace("\\040", " ")
        is_above = path == where or path.startswith(where.rstrip("/") + "/")
        if is_above and len(where) >= len(best):
            best, found = where, (parts[2], parts[3])
    return found


def judge_filesystem(type: str, options: str) -> DoctorFinding:
    facts = {"type": type, "options": options}
    if not type:
        return ok("filesystem", "unknown", **facts)
    if type in FORGETFUL:
        return bad(
            "filesystem",
            f"{type} is in memory: all data is lost on a reboot",
            "put the data directory on a disk",
            **facts,
        )
    if type in FAR or type.startswith("fuse"):
        return warn(
            "filesystem",
            f"{type}: locks and syncs are only as reliable as the file server",
            "use a local disk with ext4 or xfs, which are tested",
            **facts,
        )
    if {"nobarrier", "barrier=0"} & set(options.split(",")):
        return bad(
            "filesystem",
            f"{type} without barriers: a power failure may lose acknowledged messages",
            "mount it with barriers",
            **facts,
        )
    if type == "overlay":
        return warn(
            "filesystem",
            "overlay, as in a container image: the data is lost with the container",
            "mount a volume for the data directory",
            **facts,
        )
    return ok("filesystem", type, **facts)


def _probed(path: Path) -> DoctorFinding:
    try:
        return judge_syncs(probe(path))
    except OSError as error:
        return warn(
            "sync",
            f"the probe cannot write to the data directory: {error.strerror}",
            "run this as the broker's user, and check that there is free space",
        )


def probe(path: Path, count: int = PROBES) -> list[float]:
    """Measures small synced writes in a temporary file."""
    name = path / f"doctor-probe-{os.getpid()}"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)
    try:
        os.unlink(name)
        data = os.urandom(PROBE_BYTES)
        os.write(descriptor, data * count)  # as the journal does: room first, then over it
        os.fsync(descriptor)
        taken = []
        for number in range(count):
            began = time.perf_counter()
            os.pwrite(descriptor, data, number * PROBE_BYTES)
            sync(descriptor)
            taken.append(time.perf_counter() - began)
        return taken
    finally:
        os.close(descriptor)


def judge_syncs(taken: list[float]) -> DoctorFinding:
    median, worst = statistics.median(taken), max(taken)
    what = (
        f"a synced write of {size(PROBE_BYTES)} takes {precise(median)} (median "
        f"of {len(taken)}; maximum {precise(worst)}), measured in the data directory"
    )
    facts = {"median_seconds": median, "worst_seconds": worst, "count": len(taken)}
    if median > SLOW_SECONDS:
        return warn(
            "sync",
            what,
            "every acknowledged publish waits for this: use a faster disk, or a policy "
            "other than fsync=always if losing the last moments is acceptable",
            **facts,
        )
    if median < TOO_GOOD_SECONDS:
        return warn(
            "sync",
            f"{what}; no disk is this fast",
            "the disk, controller or hypervisor may ignore syncs: check what survives a "
            "power failure",
            **facts,
        )
    return ok("sync", what, **facts)
