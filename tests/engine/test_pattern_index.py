"""The index of patterns, beside trying every pattern."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.patterns import PatternIndex, check_pattern, is_literal, matches

_word = st.sampled_from(["a", "b", "c", ""])
_name = st.lists(_word, min_size=1, max_size=4).map(".".join).filter(bool)
_pattern = (
    st.tuples(
        st.lists(st.one_of(_word, st.just("*")), max_size=4),
        st.sampled_from([[], [">"], ["*"], ["a"]]),
    )
    .map(lambda parts: ".".join(parts[0] + parts[1]))
    .filter(bool)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_pattern, max_size=12), st.lists(_name, min_size=1, max_size=5), st.data())
def test_the_index_finds_what_trying_every_pattern_finds(
    patterns: list[str], names: list[str], data: st.DataObject
) -> None:
    index: PatternIndex[int] = PatternIndex()
    listening = dict(enumerate(patterns))
    for item, pattern in listening.items():
        check_pattern(pattern)
        index.add(pattern, item)
    while True:
        for name in names:
            expected = [item for item, pattern in listening.items() if matches(pattern, name)]
            assert sorted(index.find(name)) == expected
        if not listening:
            break
        item = data.draw(st.sampled_from(sorted(listening)))
        index.remove(listening.pop(item), item)
    assert not index._root.children  # nothing is left behind


def test_two_of_one_pattern_are_apart() -> None:
    index: PatternIndex[str] = PatternIndex()
    index.add("a.*", "one")
    index.add("a.*", "two")
    index.remove("a.*", "one")
    assert index.find("a.b") == ["two"]


def test_a_lookup_does_not_try_every_pattern() -> None:
    looked_at = 0

    class Counted(str):
        def __hash__(self) -> int:
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return super().__eq__(other)

    index: PatternIndex[int] = PatternIndex()
    for n in range(1000):
        index.add(f"topic{n}.*", n)
    assert list(index._find([Counted("topic500"), Counted("x")])) == [500]
    assert looked_at < 10


def test_a_literal_is_a_pattern_without_wildcards() -> None:
    assert is_literal("orders.eu")
    assert not is_literal("orders.*")
    assert not is_literal(">")
