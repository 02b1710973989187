"""What opening, `log verify` and `log repair` say of a journal: they judge by the same scan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.errors import Corrupt
from flintmq.storage.inspect import verify
from flintmq.storage.journal_files import HEADER_BYTES
from flintmq.storage.repair import carry_out, plan_repair
from flintmq.testing import SimulatedFileSystem
from tests.storage.journals import DIRECTORY, entry, indexes, journal_files, open_journal


def journal_of_three_files() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    journal = open_journal(disk, file_bytes=1024)
    index = 0
    while len(journal_files(disk)) < 3:
        index += 1
        journal.append([entry(index, b"x" * 100, group=0)])
    journal.close()
    return disk


def path(disk: SimulatedFileSystem, number: int) -> str:
    return f"{DIRECTORY}/{journal_files(disk)[number]}"


def shorten(disk: SimulatedFileSystem) -> None:
    file = disk.open(path(disk, -1), writable=True)
    file.truncate(file.size() - 100)
    file.close()


def swap(disk: SimulatedFileSystem) -> None:
    first, last = path(disk, 0), path(disk, -1)
    disk.rename(first, "aside")
    disk.rename(last, first)
    disk.rename("aside", last)


@pytest.mark.parametrize(
    "harm",
    [
        shorten,
        swap,
        lambda disk: disk.remove(path(disk, 1)),
        lambda disk: disk.remove(path(disk, 2)),
        lambda disk: disk.flip(path(disk, 1), 0),
        lambda disk: disk.flip(path(disk, 0), HEADER_BYTES + 45),
        lambda disk: disk.flip(path(disk, 1), HEADER_BYTES + 45),
    ],
)
def test_what_keeps_a_journal_from_being_opened_is_found_and_can_be_repaired(
    harm: Callable[[SimulatedFileSystem], None],
) -> None:
    disk = journal_of_three_files()
    harm(disk)

    with pytest.raises(Corrupt) as refused:
        open_journal(disk, file_bytes=1024)
    (problem,) = [problem for problem in verify(disk) if problem.is_damage]
    assert problem.what in str(refused.value)
    assert disk.open_files == 0

    carry_out(disk, plan_repair(disk, cut_journal=True))

    assert [problem for problem in verify(disk) if problem.is_damage] == []
    left = indexes(open_journal(disk, file_bytes=1024), 0)
    assert left == list(range(1, len(left) + 1))


def test_of_a_file_that_was_cut_short_everything_whole_is_kept() -> None:
    disk = journal_of_three_files()
    whole = indexes(open_journal(disk.crash("everything"), file_bytes=1024), 0)
    shorten(disk)
    carry_out(disk, plan_repair(disk, cut_journal=True))

    assert indexes(open_journal(disk, file_bytes=1024), 0) == whole
