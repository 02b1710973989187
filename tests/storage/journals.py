"""What the tests of the journal share: small journals on a simulated disk, and what they hold."""

from __future__ import annotations

from itertools import count

from flintmq.storage.filesystem import FileSystem
from flintmq.storage.frames import RESTART, Record
from flintmq.storage.journal import Journal

DIRECTORY = "journal"
FILE_BYTES = 4096


def open_journal(
    disk: FileSystem, *, file_bytes: int = FILE_BYTES, first_file_bytes: int | None = None
) -> Journal:
    """A journal with small files, and salts that differ and are the same in every run.

    A salt never comes again on a disk: files that are there are counted in.
    """
    start = 1 + sum(int(name[8:]) for name in journal_files(disk)) * 1000
    salts = count(start)
    return Journal.open(
        disk,
        DIRECTORY,
        file_bytes=file_bytes,
        first_file_bytes=first_file_bytes or file_bytes,
        make_salt=lambda: 0x5A17_0000_0000_0000 + next(salts),
    )


def journal_files(disk: FileSystem) -> list[str]:
    if not disk.exists(DIRECTORY):
        return []
    return [name for name in disk.list(DIRECTORY) if name.startswith("journal-")]


def entry(index: int, payload: bytes = b"", *, group: int = 1, term: int = 1) -> Record:
    return Record(group, term, index, (payload or b"entry %d" % index,))


def restart(index: int, *, group: int = 1, term: int = 1) -> Record:
    return Record(group, term, index, (b"restart",), RESTART)


def indexes(journal: Journal, group: int = 1, first_index: int = 1) -> list[int]:
    return [record.index for record in journal.records(group, first_index)]


def everything(journal: Journal) -> list[tuple[int, int, int, bytes]]:
    """Group, term, index and payload of each record, in the order of writing."""
    return [
        (record.group, record.term, record.index, bytes(record.payload))
        for _, record in journal.replay()
    ]
