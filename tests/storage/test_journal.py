"""The journal: what is appended is there after a restart, in order, and damage is told."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import product

import pytest

from flintmq.errors import Corrupt, InvalidRequest, StorageFailed, StorageFull, UnsupportedFormat
from flintmq.storage.frames import Record
from flintmq.storage.journal import Journal
from flintmq.storage.journal_files import (
    HEADER,
    HEADER_BYTES,
    NEWEST,
    encode_header,
    read_newest,
)
from flintmq.testing import SimulatedFileSystem
from flintmq.testing.simulated_filesystem import SECTOR_BYTES, Crashed
from tests.storage.journals import (
    DIRECTORY,
    entry,
    everything,
    indexes,
    journal_files,
    open_journal,
    restart,
)


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def first_file(number: int = 1) -> str:
    return f"{DIRECTORY}/journal-{number:016d}"


# --- appending and reading


def test_what_was_appended_is_there_after_reopening(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1, b"a"), entry(2, b"bb")])
    journal.append([Record(7, 3, 1, (b"c", memoryview(b"cc")))])
    journal.close()

    again = open_journal(disk)

    assert everything(again) == [(1, 1, 1, b"a"), (1, 1, 2, b"bb"), (7, 3, 1, b"ccc")]
    assert again.recovered.torn_tail is None
    assert again.groups()[7].last_term == 3


def test_a_new_journal_is_empty_and_takes_any_first_index(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)

    assert everything(journal) == []
    assert journal.groups() == {}
    journal.append([entry(1001)])
    assert indexes(journal, first_index=1001) == [1001]


def test_records_begin_at_the_index_asked_for(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    for index in range(1, 200):
        journal.append([entry(index), entry(index, group=2)])

    assert indexes(journal, 2, 150) == list(range(150, 200))
    assert indexes(journal, 2, 200) == []
    assert indexes(journal, 3, 1) == []


def test_the_indexes_of_a_group_have_no_gaps(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1)])

    with pytest.raises(InvalidRequest, match="goes on with index 3, not 4"):
        journal.append([entry(2), entry(4)])
    with pytest.raises(InvalidRequest):
        journal.append([entry(2), entry(2, group=-1)])
    journal.append([entry(2)])
    assert indexes(journal) == [1, 2]


def test_a_journal_of_many_files_is_read_as_one(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    for index in range(1, 101):
        journal.append([entry(index, b"x" * 100)])
    journal.close()

    again = open_journal(disk, file_bytes=2048)

    assert again.file_count > 5
    assert indexes(again) == list(range(1, 101))
    assert indexes(again, first_index=57) == list(range(57, 101))
    assert [position for position, _ in again.replay(90)] == list(range(90, 101))


def test_a_frame_larger_than_a_file_gets_a_file_of_its_own(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    journal.append([entry(1)])
    journal.append([entry(2, b"L" * 10_000)])
    journal.append([entry(3)])
    journal.close()

    again = open_journal(disk, file_bytes=2048)

    assert [len(payload) for *_, payload in everything(again)] == [7, 10_000, 7]
    assert again.file_count == 3


def test_files_double_from_a_small_first_one(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=8192, first_file_bytes=1024)
    for index in range(1, 200):
        if journal.wants_spare():
            journal.make_spare()
        journal.append([entry(index, b"x" * 100)])

    sizes = [disk.size_of(f"{DIRECTORY}/{name}") for name in journal_files(disk)]
    assert sizes[:5] == [1024, 2048, 4096, 8192, 8192]


# --- suffixes and restarts


def test_a_lower_index_replaces_the_suffix_from_there_on(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(index, b"old") for index in range(1, 6)])
    journal.append([entry(3, b"new", term=2)])
    expected = [(1, 1, 1, b"old"), (1, 1, 2, b"old"), (1, 2, 3, b"new")]

    assert everything(journal) == expected
    assert indexes(journal) == [1, 2, 3]
    journal.close()
    again = open_journal(disk)
    assert everything(again) == expected
    assert again.groups()[1].next_index == 4
    again.append([entry(4, b"new", term=2)])
    assert indexes(again, first_index=2) == [2, 3, 4]


def test_a_suffix_of_many_files_is_replaced(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    for index in range(1, 101):
        journal.append([entry(index, b"old" * 40), entry(index, group=2)])
    for index in range(30, 60):
        journal.append([entry(index, b"new" * 40, term=2)])
    journal.append([entry(50, b"newest", term=3)])
    words = [b"old" * 40] * 29 + [b"new" * 40] * 20 + [b"newest"]

    for _ in range(2):
        assert [bytes(record.payload) for record in journal.records(1, 1)] == words
        assert [bytes(record.payload) for record in journal.records(1, 45)] == words[44:]
        assert [payload for group, *_, payload in everything(journal) if group == 1] == words
        assert indexes(journal, group=2) == list(range(1, 101))
        journal.close()
        journal = open_journal(disk, file_bytes=2048)


def test_a_suffix_is_replaced_within_one_frame_too(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1, b"a"), entry(2, b"b"), entry(3, b"c"), entry(2, b"B"), entry(3, b"C")])
    journal.close()

    again = open_journal(disk)

    assert [payload for *_, payload in everything(again)] == [b"a", b"B", b"C"]
    assert [bytes(record.payload) for record in again.records(1, 1)] == [b"a", b"B", b"C"]


def test_a_restart_forgets_the_log_before_it(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1), entry(2)])
    journal.append([restart(100)])
    journal.append([entry(101), entry(1, group=2)])
    journal.close()

    again = open_journal(disk)

    assert indexes(again, first_index=1) == []
    assert indexes(again, first_index=100) == [100, 101]
    assert again.groups()[1].first_index == 100
    assert indexes(again, group=2) == [1]


# --- releasing and recycling


def test_released_files_are_given_back_whole_and_oldest_first(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    for index in range(1, 101):
        journal.append([entry(index, b"x" * 100)])
    before = journal.file_count

    released = journal.release_before(journal.position_of(1, 50))

    assert 0 < released < before
    first = journal.groups()[1].first_index
    assert first <= 50
    assert indexes(journal, first_index=first) == list(range(first, 101))
    assert indexes(journal, first_index=first - 1) == []
    journal.close()
    assert open_journal(disk, file_bytes=2048).groups()[1].first_index == first


def test_the_last_file_is_never_released(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1)])

    assert journal.release_before(journal.written + 1) == 0
    assert indexes(journal) == [1]


def test_a_group_goes_on_behind_its_last_index_when_all_of_it_was_released(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk, file_bytes=2048)
    journal.append([entry(1, group=9)])
    for index in range(1, 50):
        journal.append([entry(index, b"x" * 100)])
    journal.release_before(journal.written)

    assert journal.groups()[9].first_index == journal.groups()[9].next_index == 2
    with pytest.raises(InvalidRequest):
        journal.append([entry(5, group=9)])


def test_a_file_that_is_being_read_is_not_recycled(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    for index in range(1, 101):
        journal.append([entry(index, b"x" * 100)])
    reading = journal.records(1, 1)
    next(reading)

    assert journal.release_before(journal.written) == 0
    assert [record.index for record in reading] == list(range(2, 101))
    assert journal.release_before(journal.written) > 0


def test_recycled_files_never_bring_back_old_frames(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    payload = b"the same length and the same words in every round" * 2
    for index in range(1, 400):
        journal.append([entry(index, payload)])
        journal.release_before(journal.written)
        assert len(journal_files(disk)) <= 2
        if index % 7 == 0:
            journal.abandon()
            journal = open_journal(disk, file_bytes=2048)
            assert journal.recovered.torn_tail is None
            assert journal.groups()[1].next_index == index + 1
    assert any(call.operation == "rename" and "journal-" in call.name for call in disk.calls)


# --- torn tails and damage


def three_frames(disk: SimulatedFileSystem, *, close: bool = False) -> list[int]:
    """A journal of three frames of 2 records; where each begins, and where the last ends."""
    journal = open_journal(disk)
    offsets = []
    for index in (1, 3, 5):
        offsets.append(journal._end)
        journal.append([entry(index), entry(index + 1)])
    offsets.append(journal._end)
    if close:
        journal.close()
    else:
        journal.abandon()
    return offsets


def test_a_broken_last_frame_is_cut_saved_and_reported(disk: SimulatedFileSystem) -> None:
    offsets = three_frames(disk)
    torn = bytearray(disk.contents(first_file())[offsets[2] : offsets[3]])
    disk.flip(first_file(), offsets[2] + 50)
    torn[50] ^= 0xFF

    journal = open_journal(disk)

    assert indexes(journal) == [1, 2, 3, 4]
    tail = journal.recovered.torn_tail
    assert tail is not None
    assert (tail.offset, tail.bytes) == (offsets[2], len(torn))
    assert disk.contents(f"{DIRECTORY}/torn-{1:016d}-{offsets[2]}") == bytes(torn)
    assert tail.file.endswith(first_file())
    assert str(offsets[2]) in str(tail)
    journal.append([entry(5)])
    assert open_journal(disk).recovered.torn_tail is None


def test_a_good_frame_behind_a_broken_one_proves_damage(disk: SimulatedFileSystem) -> None:
    offsets = three_frames(disk)
    disk.flip(first_file(), offsets[1] + 50)
    before = disk.contents(first_file())

    with pytest.raises(Corrupt) as told:
        open_journal(disk)

    text = str(told.value)
    assert first_file() in text
    assert f"byte {offsets[1]:,}" in text
    assert "flintmq log repair" in text
    assert disk.contents(first_file()) == before, "nothing is cut where there is damage"
    assert disk.open_files == 0


def test_after_a_clean_close_damage_to_the_last_records_is_known_as_damage(
    disk: SimulatedFileSystem,
) -> None:
    offsets = three_frames(disk, close=True)
    disk.flip(first_file(), offsets[2] + 50)

    with pytest.raises(Corrupt):
        open_journal(disk)


def test_frames_that_were_never_synced_may_be_cut_with_good_ones_behind(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk)
    journal.append([entry(1)])
    broken = journal._end
    for index in (2, 3, 4):
        journal.write([journal.prepare([entry(index)])])
    journal.abandon()
    disk.flip(first_file(), broken + 45)

    again = open_journal(disk)

    assert indexes(again) == [1]
    assert again.recovered.torn_tail is not None
    # The same frames once more, shorter by the last: what was cut must not join them.
    again.append([entry(2)])
    again.abandon()
    assert indexes(open_journal(disk)) == [1, 2]


def test_what_was_cut_does_not_come_back_by_a_second_power_cut(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1)])
    broken = journal._end
    for index in (2, 3):
        journal.write([journal.prepare([entry(index, b"old." * 218)])])
    journal.sync()
    journal.abandon()
    disk.flip(first_file(), broken + 45)

    again = open_journal(disk)
    assert indexes(again) == [1]
    # The frames end with a sector: nothing of the next one is written along with them.
    again.write([again.prepare([entry(2, b"new." * 218)])])  # not synced: with another policy
    assert again._end % SECTOR_BYTES == 0
    again.abandon()

    counts = disk.unsynced()
    assert 1 < len(counts) < 10
    for choices in product(*(range(count) for count in counts)):
        found = [payload for *_, payload in everything(open_journal(disk.crash(choices)))]
        assert found in ([b"entry 1"], [b"entry 1", b"new." * 218])


def test_a_synced_frame_is_not_cut_whatever_the_policy(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.write([journal.prepare([entry(1)])])
    journal.write([journal.prepare([entry(2)])])
    journal.sync()
    journal.write([journal.prepare([entry(3)])])
    journal.abandon()
    disk.flip(first_file(), HEADER_BYTES + 45)

    with pytest.raises(Corrupt):
        open_journal(disk)


def test_a_broken_frame_in_an_older_file_is_damage(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=1024)
    last_of_first = 0
    for index in range(1, 10):
        if journal.file_count == 1:
            last_of_first = journal._end
        journal.append([entry(index, b"x" * 100)])
    journal.abandon()
    assert last_of_first
    for offset in (HEADER_BYTES + 10, 2):
        disk.flip(first_file(1), offset)
        with pytest.raises(Corrupt, match=first_file(1)):
            open_journal(disk, file_bytes=1024)
        disk.flip(first_file(1), offset)


def test_a_missing_file_is_damage(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=1024)
    for index in range(1, 20):
        journal.append([entry(index, b"x" * 100)])
    journal.close()
    disk.remove(first_file(2))

    with pytest.raises(Corrupt, match="lacks the journal file of generation 2"):
        open_journal(disk, file_bytes=1024)


def test_files_under_each_others_names_are_damage(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=1024)
    for index in range(1, 20):
        journal.append([entry(index, b"x" * 100)])
    journal.close()
    disk.rename(first_file(1), "aside")
    disk.rename(first_file(2), first_file(1))
    disk.rename("aside", first_file(2))

    with pytest.raises(Corrupt, match="says of itself that it is generation"):
        open_journal(disk, file_bytes=1024)


def test_every_byte_up_to_the_last_frame_is_guarded(disk: SimulatedFileSystem) -> None:
    offsets = three_frames(disk)
    good = [(1, 1, index, b"entry %d" % index) for index in range(1, 7)]
    refused = cut = 0
    for position in range(offsets[3]):
        for bits in (0x01, 0xFF):
            damaged = disk.crash()
            damaged.flip(first_file(), position, bits)
            try:
                journal = open_journal(damaged)
            except Corrupt:
                refused += 1
                assert position < offsets[2], f"byte {position} is in the last frame: a torn tail"
            else:
                cut += 1
                assert position >= offsets[2], f"byte {position} is in a synced frame"
                assert everything(journal) == good[:4]
                assert journal.recovered.torn_tail is not None
                journal.abandon()
    assert refused == 2 * offsets[2]
    assert cut == 2 * (offsets[3] - offsets[2])


def test_a_journal_file_that_was_cut_short_is_refused_wherever_it_was_cut(
    disk: SimulatedFileSystem,
) -> None:
    three_frames(disk)
    whole = disk.size_of(first_file())
    for size in (*range(0, whole, 64), whole - 1):
        damaged = disk.crash()
        file = damaged.open(first_file(), writable=True)
        file.truncate(size)
        file.close()
        with pytest.raises(Corrupt):
            open_journal(damaged)


def test_a_newer_format_is_refused_by_name(disk: SimulatedFileSystem) -> None:
    from flintmq.batch.checksum import crc32c

    three_frames(disk)
    header = bytearray(disk.contents(first_file())[:HEADER_BYTES])
    header[4] = 3
    header[8:12] = bytes(4)
    header[8:12] = crc32c(bytes(header)).to_bytes(4, "little")
    file = disk.open(first_file(), writable=True)
    file.pwritev([bytes(header)], 0)
    file.close()

    with pytest.raises(UnsupportedFormat, match="version 3"):
        open_journal(disk)


def test_the_header_of_a_file_is_drawn_as_it_is_written() -> None:
    from flintmq.storage.frames import FileSeed

    data = encode_header(FileSeed(3, 0x1122334455667788), first_frame=9, file_bytes=4096)

    assert len(data) == HEADER_BYTES
    assert data[:8].hex() == "464d514a02010000"
    assert data[16 : HEADER.size].hex() == (
        "0300000000000000090000000000000088776655443322110010000000000000"
    )


# --- faults


def test_after_a_failed_sync_the_journal_takes_nothing_more(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    journal.append([entry(1)])
    disk.fail("sync")

    with pytest.raises(StorageFailed) as told:
        journal.append([entry(2)])

    assert told.value.operation == "sync"
    assert "restart" in str(told.value)
    syncs = [call for call in disk.calls if call.operation == "sync"]
    for _ in range(2):
        with pytest.raises(StorageFailed):
            journal.append([entry(3)])
        with pytest.raises(StorageFailed):
            journal.sync()
    journal.close()
    assert [call for call in disk.calls if call.operation == "sync"] == syncs, "never tried again"


def test_what_a_failed_sync_left_in_memory_is_not_taken_for_stored(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk)
    journal.append([entry(1)])
    disk.fail("sync")
    with pytest.raises(StorageFailed):
        journal.append([entry(2)])
    journal.close()

    # Another process, the same machine: the page cache still shows the record.
    again = open_journal(disk)
    assert indexes(again) == [1]
    again.append([entry(2, b"other")])

    assert everything(open_journal(disk.crash())) == [(1, 1, 1, b"entry 1"), (1, 1, 2, b"other")]


def test_what_a_killed_process_wrote_is_synced_before_it_is_served(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk)
    journal.write([journal.prepare([entry(1)])])
    journal.abandon()

    seen = everything(open_journal(disk))

    assert len(seen) == 1
    assert everything(open_journal(disk.crash())) == seen


def test_a_full_disk_refuses_a_write_and_takes_the_same_one_later(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk, file_bytes=1024)
    disk.size_max = 2048
    lots = [journal.prepare([entry(index, b"x" * 100)]) for index in range(1, 30)]

    def write_all() -> None:
        for lot in lots[journal.written :]:
            journal.write([lot])
            journal.sync()

    with pytest.raises(StorageFull) as told:
        write_all()
    written = journal.written
    assert 0 < written < len(lots)
    assert "free some space" in str(told.value)
    with pytest.raises(StorageFull):
        journal.write([lots[written]])
    assert indexes(journal) == list(range(1, written + 1))

    disk.size_max = None
    write_all()
    journal.close()
    assert indexes(open_journal(disk, file_bytes=1024)) == list(range(1, 30))


def test_a_full_disk_does_not_keep_a_journal_from_opening(disk: SimulatedFileSystem) -> None:
    offsets = three_frames(disk)
    disk.flip(first_file(), offsets[2] + 50)
    disk.size_max = 0

    journal = open_journal(disk)

    assert indexes(journal) == [1, 2, 3, 4]
    assert journal.recovered.torn_tail is not None
    assert journal.recovered.torn_tail.saved_as is None
    assert "not saved" in str(journal.recovered.torn_tail)


def test_making_a_spare_on_a_full_disk_takes_nothing(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    names = disk.list(DIRECTORY)
    disk.fail("pwritev", name="spare", error=errno.ENOSPC)

    with pytest.raises(StorageFull):
        journal.make_spare()

    assert disk.list(DIRECTORY) == names
    journal.make_spare()
    assert not journal.wants_spare()


def test_a_disk_that_cannot_be_read_is_told_as_such(disk: SimulatedFileSystem) -> None:
    three_frames(disk)
    disk.fail("pread", on_call=2, name="journal-")

    with pytest.raises(StorageFailed):
        open_journal(disk)
    assert disk.open_files == 0


def test_reading_notices_damage_that_happens_while_running(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk)
    for index in (1, 2, 3):
        journal.append([entry(index)])
    disk.flip(first_file(), HEADER_BYTES + 45)

    with pytest.raises(Corrupt, match="where frame 1 should be"):
        indexes(journal)


def test_spares_of_another_size_are_not_kept(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=2048)
    journal.make_spare()
    journal.close()

    again = open_journal(disk, file_bytes=8192)

    assert again.wants_spare()
    assert [name for name in disk.list(DIRECTORY) if name.startswith("spare")] == []


def test_a_record_says_what_it_holds() -> None:
    record = Record(1, 2, 3, (b"a", b"b"))

    assert record.payload == b"ab"
    assert replace(record, index=4).index == 4
    assert isinstance(Journal.open(SimulatedFileSystem(), file_bytes=4096), Journal)


# --- the newest file


def two_files(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=1024)
    while len(journal_files(disk)) < 2:
        journal.append([entry(journal.written + 1, b"x" * 300)])
    journal.abandon()


def test_a_newest_file_that_is_gone_is_told_and_nothing_is_begun_in_its_place(
    disk: SimulatedFileSystem,
) -> None:
    two_files(disk)
    disk.remove(first_file(2))
    names = disk.list(DIRECTORY)

    for _ in range(2):
        with pytest.raises(Corrupt, match="newest file, generation 2; it ends with generation 1"):
            open_journal(disk, file_bytes=1024)
    disk.remove(first_file(1))
    with pytest.raises(Corrupt, match="and all others"):
        open_journal(disk, file_bytes=1024)
    assert disk.list(DIRECTORY) == [name for name in names if name != "journal-0000000000000001"]


@pytest.mark.parametrize("damage", ["gone", "flipped", "cut", "unreadable"])
def test_a_note_of_the_newest_file_that_cannot_be_read_says_nothing_and_is_written_anew(
    disk: SimulatedFileSystem, damage: str
) -> None:
    two_files(disk)
    note = f"{DIRECTORY}/{NEWEST}"
    if damage == "flipped":
        disk.flip(note, 17)
    elif damage == "unreadable":
        disk.fail("pread", name=NEWEST)
    else:
        disk.remove(note)
        if damage == "cut":
            disk.create(note).close()

    open_journal(disk, file_bytes=1024).close()

    assert read_newest(disk, note) == 2


def test_a_power_cut_at_any_step_of_a_new_file_never_passes_for_a_lost_one() -> None:
    calls = 0
    while True:
        disk = SimulatedFileSystem()
        journal = open_journal(disk, file_bytes=1024)
        journal.append([entry(1, b"x" * 300)])
        disk.stop_after(calls)
        try:
            for index in (2, 3, 4):
                journal.append([entry(index, b"x" * 300)])
            break
        except Crashed:
            for keep in ("nothing", "everything"):
                assert 1 in indexes(open_journal(disk.crash(keep), file_bytes=1024))
        calls += 1
    assert calls > 8


# --- little room


def test_where_the_disk_is_nearly_full_files_are_smaller_and_half_of_it_stays_free(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk, file_bytes=64 << 20, first_file_bytes=1 << 20)
    journal._dir._next_bytes = 64 << 20
    disk.size_max = (1 << 20) + (21 << 20)

    journal.make_spare()

    assert max(disk.size_of(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)) == 8 << 20


def test_a_file_that_has_to_be_made_at_once_is_smaller_too(disk: SimulatedFileSystem) -> None:
    journal = open_journal(disk, file_bytes=64 << 20, first_file_bytes=1 << 20)
    journal._dir._next_bytes = 64 << 20
    disk.size_max = (1 << 20) + (21 << 20)

    journal.append([entry(1, bytes(1 << 20))])

    assert disk.size_of(first_file(2)) == 8 << 20


# --- rolling


def test_what_was_written_before_the_next_file_is_on_the_disk_once_that_is_in_use(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk, file_bytes=1024)
    while len(journal_files(disk)) < 2:  # never synced by anybody, as under every_n and interval
        journal.write([journal.prepare([entry(journal.written + 1, b"x" * 300)])])

    again = open_journal(disk.crash("nothing"), file_bytes=1024)

    assert indexes(again) == list(range(1, journal.written))
