"""The newest of every key: what a look at messages leaves to be dropped, whole or in steps."""

from __future__ import annotations

from random import Random

import pytest

from flintmq.engine.leading import last_of_keys
from flintmq.engine.leading.last_of_keys import LastOfKeys, Superseded
from flintmq.groups.offset_set import OffsetSet

END = 1 << 60


def never() -> bool:
    return False


def add(
    keys: LastOfKeys, names: list[bytes | None], base: int, *, empty: tuple[int, ...] = ()
) -> None:
    keys.add(names, base, empty, all_have_keys=None not in names, gone=[])


def dropped(
    keys: LastOfKeys, *, first: int = 0, floor: int = END, gone: OffsetSet | None = None
) -> list[int]:
    superseded, found = Superseded(keys), OffsetSet()
    while not superseded.is_done:
        found.add_chunks(superseded.take(first, floor, gone, 100, never)[0])
    return [offset for start, stop in found.ranges() for offset in range(start, stop)]


def test_what_a_newer_message_of_its_key_has_superseded_is_found() -> None:
    keys = LastOfKeys(0)
    add(keys, [b"a", b"b", b"a", None, b"c", b"b"], 0)
    assert keys.superseded_count == 2
    assert dropped(keys) == [0, 1]
    assert keys.superseded_count == 0
    add(keys, [b"c"], 6)
    gone = OffsetSet([(0, 2)])
    assert dropped(keys, gone=gone) == [4]


def test_what_comes_while_it_is_dropped_is_left_for_the_next_time() -> None:
    keys = LastOfKeys(0)
    add(keys, [b"a", b"a", b"b"], 0)
    superseded = Superseded(keys)
    add(keys, [b"b", b"b"], 3)
    found, count = superseded.take(0, END, None, 100, never)
    assert (OffsetSet.from_chunks(found).ranges(), count) == ([(0, 1)], 1)
    assert dropped(keys, gone=OffsetSet([(0, 1)])) == [2, 3]


def test_nothing_goes_that_a_queue_group_has_not_passed() -> None:
    keys = LastOfKeys(0)
    add(keys, [b"a"] * 10, 0)
    assert dropped(keys, floor=4) == [0, 1, 2, 3]
    assert keys.superseded_count == 5
    assert dropped(keys, floor=END, gone=OffsetSet([(0, 4)])) == [4, 5, 6, 7, 8]


def test_messages_without_a_key_and_what_cannot_be_read_stay() -> None:
    keys = LastOfKeys(0)
    add(keys, [None, b"a", None], 0)
    keys.pass_over(6)
    add(keys, [b"a", b"a"], 6)
    assert dropped(keys) == [1, 6]


def test_a_tombstone_is_one_until_its_key_comes_again() -> None:
    keys = LastOfKeys(0)
    add(keys, [b"a", b"b", b"a", b"b"], 0, empty=(0, 3))
    assert keys.tombstones == {b"b": 3}
    add(keys, [b"b"], 4)
    assert keys.tombstones == {}


def test_the_log_may_begin_later_by_then() -> None:
    keys = LastOfKeys(0)
    add(keys, [b"a"] * 5000, 0)
    assert dropped(keys, first=4990) == list(range(4990, 4999))
    assert keys.superseded_count == 0


def test_time_that_is_over_ends_a_step_and_not_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_of_keys, "PIECE", 10)
    keys = LastOfKeys(0)
    for base in range(0, 40_000, 1000):
        add(keys, [b"%d" % (n % 50) for n in range(1000)], base)
    superseded, found, steps = Superseded(keys), OffsetSet(), 0
    while not superseded.is_done:
        found.add_chunks(superseded.take(0, END, None, 1 << 30, lambda: True)[0])
        steps += 1
    assert steps > 10
    assert found.ranges() == [(0, 39_950)]


@pytest.mark.parametrize("seed", range(3))
def test_many_keys_old_and_new_are_told_as_a_walk_through_them_would(seed: int) -> None:
    """Keys that are written once and others all the time: both ways of remembering are taken."""
    random, keys, gone = Random(seed), LastOfKeys(0), OffsetSet()
    rows: list[bytes | None] = []
    last: dict[bytes, int] = {}
    for _ in range(6):
        some: list[bytes | None] = [
            b"%d" % (random.random() ** 4 * 3000) if random.random() < 0.99 else None
            for _ in range(7000)
        ]
        add(keys, some, len(rows))
        for offset, key in enumerate(some, len(rows)):
            if key is not None:
                last[key] = offset
        rows += some
        gone.add_many(dropped(keys, gone=gone))
        newest = set(last.values())
        expected = [at for at, key in enumerate(rows) if key is not None and at not in newest]
        assert [
            offset for start, stop in gone.ranges() for offset in range(start, stop)
        ] == expected
        assert keys.row_count == len(newest)
