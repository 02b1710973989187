"""Lease ids: found again by whoever knows what is out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.frontends.hermes.lease_ids import LeaseIds

TOKENS = st.builds(
    lambda term, counter: (term << 40) + counter, st.integers(1, 4000), st.integers(1, 2**28 - 1)
)


@given(st.dictionaries(TOKENS, st.integers(0, 2**40), min_size=1, max_size=5), st.integers(1, 1024))
def test_every_delivery_of_a_group_has_an_id_by_which_it_is_found(
    starts: dict[int, int], count: int
) -> None:
    ours, theirs = LeaseIds(1, "g"), LeaseIds(1, "g")
    theirs.learn([(token, [(start, start + count)]) for token, start in starts.items()])
    ids = {}
    for token, start in starts.items():
        for offset in {start, start + count - 1}:
            ids[ours.of(token, offset)] = (token, offset)

    assert all(0 <= id < 2**64 for id in ids)
    assert {id: theirs.find(id) for id in ids} == ids


def test_what_is_not_out_is_not_found() -> None:
    ids = LeaseIds(1, "g")
    ids.learn([((7 << 40) + 5, [(10, 20), (30, 31)])])

    assert ids.find(ids.of((7 << 40) + 5, 30)) == ((7 << 40) + 5, 30)
    assert ids.find(ids.of((7 << 40) + 5, 20)) is None
    assert ids.find(ids.of((7 << 40) + 6, 10)) is None
    assert ids.find(ids.of((8 << 40) + 5, 10)) is None
    assert ids.find(0) is None


def test_where_two_offsets_fit_neither_is_settled() -> None:
    ids = LeaseIds(1, "g")
    ids.learn([(1, [(0, 1), (2**24, 2**24 + 1)])])

    assert ids.find(ids.of(1, 0)) is None


def test_groups_have_different_ids_and_so_has_a_topic_that_was_made_anew() -> None:
    groups = [(1, "g"), (1, "h"), (2, "g"), (1, ""), (1, "1 g")]

    assert len({LeaseIds(*group).of((1 << 40) + 1, 0) for group in groups}) == len(groups)
