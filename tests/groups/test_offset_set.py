"""A set of offsets is a set of ints, and small."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.group_model import Ranges
from flintmq.groups import OffsetSet
from flintmq.groups.offset_set import CHUNK
from flintmq.groups.ranges import ranges_of

MANY = settings(max_examples=120, deadline=None)

# Ranges that begin and end around the borders of chunks as often as anywhere.
offsets = st.one_of(
    st.integers(0, 3 * CHUNK),
    st.builds(
        lambda chunk, near: max(0, chunk * CHUNK + near), st.integers(0, 3), st.integers(-2, 2)
    ),
)
lengths = st.sampled_from([0, 1, 1, 2, 7, 63, 64, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
stretches = st.builds(lambda start, length: (start, start + length), offsets, lengths)
sets = st.lists(stretches, max_size=6)


def plain(ranges: Ranges) -> set[int]:
    return {offset for start, stop in ranges for offset in range(start, stop)}


@MANY
@given(st.lists(st.tuples(st.booleans(), stretches), max_size=12))
def test_adding_and_removing_ranges_is_as_with_a_set(
    steps: list[tuple[bool, tuple[int, int]]],
) -> None:
    ours, theirs = OffsetSet(), set[int]()
    for is_added, (start, stop) in steps:
        some = set(range(start, stop))
        if is_added:
            assert ours.add_range(start, stop) == len(some - theirs)
            theirs |= some
        else:
            assert ours.remove_range(start, stop) == len(some & theirs)
            theirs -= some
        assert len(ours) == ours.count == len(theirs)
        assert ours.first() == min(theirs, default=None)
    assert plain(ours.ranges()) == theirs
    assert ours.ranges() == ranges_of(sorted(theirs))
    assert ours.end() == max(theirs, default=-1) + 1


@MANY
@given(sets, st.lists(offsets, max_size=40))
def test_many_at_once_are_as_many_one_by_one(before: Ranges, many: list[int]) -> None:
    ours = OffsetSet(before)
    theirs = plain(before)

    assert ours.add_many(many) == len(set(many) - theirs)
    assert plain(ours.ranges()) == theirs | set(many)
    assert ours.remove_ranges([(offset, offset + 1) for offset in many]) == len(set(many))
    assert plain(ours.ranges()) == theirs - set(many)


@MANY
@given(sets, sets)
def test_ranges_that_are_taken_out_are_those_that_were_there(before: Ranges, some: Ranges) -> None:
    ours, theirs = OffsetSet(before), plain(before)

    taken = ours.take_ranges(some)

    assert plain(taken) == theirs & plain(some)
    assert plain(ours.ranges()) == theirs - plain(some)


@MANY
@given(sets, offsets, lengths)
def test_what_is_missing_and_what_is_present_make_up_a_range(
    before: Ranges, start: int, length: int
) -> None:
    ours, theirs = OffsetSet(before), plain(before)
    asked = set(range(start, start + length))

    assert plain(ours.missing(start, start + length)) == asked - theirs
    assert plain(ours.present(start, start + length)) == asked & theirs
    assert ours.count_before(start) == len([offset for offset in theirs if offset < start])
    assert all((offset in ours) == (offset in theirs) for offset in (start, start + length))
    first = ours.first_missing(start)
    assert first not in theirs
    assert set(range(start, first)) <= theirs


@MANY
@given(sets, st.integers(1, 50), st.one_of(st.none(), offsets))
def test_the_lowest_are_looked_at_and_taken_in_order(
    before: Ranges, wanted: int, limit: int | None
) -> None:
    ours, theirs = OffsetSet(before), sorted(plain(before))

    assert ours.lowest(wanted) == theirs[:wanted]
    expected = [offset for offset in theirs if limit is None or offset < limit][:wanted]
    assert ours.take_lowest(wanted, limit) == ranges_of(expected)
    assert plain(ours.ranges()) == set(theirs) - set(expected)
    assert ours.lowest(wanted) == sorted(set(theirs) - set(expected))[:wanted]


@MANY
@given(sets, offsets)
def test_what_lies_before_an_offset_is_discarded(before: Ranges, offset: int) -> None:
    ours, theirs = OffsetSet(before), plain(before)

    assert ours.discard_before(offset) == len([each for each in theirs if each < offset])
    assert plain(ours.ranges()) == {each for each in theirs if each >= offset}


@MANY
@given(sets)
def test_a_stored_set_is_the_same_when_it_is_read(before: Ranges) -> None:
    ours = OffsetSet(before)

    again = OffsetSet.from_chunks(ours.to_chunks())

    assert again.ranges() == ours.ranges()
    assert len(again) == len(ours)


def test_every_other_offset_of_ten_million_costs_about_two_bits_each() -> None:
    every_other = int("01" * (CHUNK // 2), 2).to_bytes(CHUNK // 8, "little")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    ours = OffsetSet.from_chunks((number, every_other) for number in range(10_000_000 // CHUNK))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert len(ours) > 4_990_000
    assert grown / len(ours) < 0.4  # bytes


def test_a_full_range_of_ten_million_shares_one_chunk() -> None:
    ours = OffsetSet([(0, 10_000_000)])

    assert sum(len(bits) for _, bits in ours.to_chunks()) < CHUNK
    assert ours.first_missing(0) == 10_000_000
