"""The judge is judged: histories whose verdict is known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.linearizability import (
    NEVER,
    Operation,
    append_log,
    is_linearizable,
    register,
)


def op(
    action: tuple[Any, ...], called: int, returned: int = NEVER, result: Any = None, key: str = "k"
) -> Operation:
    return Operation(key, action, called, returned, result)


FINE = {
    "one after the other": [op(("put", 1), 1, 2), op(("get",), 3, 4, 1)],
    "a read beside a write sees the old value": [op(("put", 1), 1, 4), op(("get",), 2, 3, None)],
    "a read beside a write sees the new value": [op(("put", 1), 1, 4), op(("get",), 2, 3, 1)],
    "an unknown write may have happened": [op(("put", 1), 1), op(("get",), 2, 3, 1)],
    "an unknown write may not have happened": [op(("put", 1), 1), op(("get",), 2, 3, None)],
    "an unknown write may happen late": [
        op(("put", 1), 1),
        op(("put", 2), 2, 3),
        op(("get",), 4, 5, 2),
        op(("get",), 6, 7, 1),
    ],
    "compare and set": [
        op(("put", 1), 1, 2),
        op(("cas", 1, 2), 3, 4, True),
        op(("cas", 1, 3), 5, 6, False),
        op(("get",), 7, 8, 2),
    ],
    "keys are judged by themselves": [
        op(("put", 1), 1, 2, key="a"),
        op(("get",), 3, 4, None, key="b"),
    ],
}
BROKEN = {
    "a stale read": [op(("put", 1), 1, 2), op(("put", 2), 3, 4), op(("get",), 5, 6, 1)],
    "a lost write": [op(("put", 1), 1, 2), op(("get",), 3, 4, None)],
    "a value from nowhere": [op(("put", 1), 1, 2), op(("get",), 3, 4, 9)],
    "a value read before it was written": [op(("get",), 1, 2, 1), op(("put", 1), 3, 4)],
    "reads that go back in time": [
        op(("put", 1), 1),
        op(("get",), 2, 3, 1),
        op(("get",), 4, 5, None),
    ],
    "two winners of one compare and set": [
        op(("put", 1), 1, 2),
        op(("cas", 1, 2), 3, 6, True),
        op(("cas", 1, 3), 4, 5, True),
    ],
}


@pytest.mark.parametrize("name", FINE)
def test_a_history_one_copy_could_have_given_is_accepted(name: str) -> None:
    assert is_linearizable(FINE[name])


@pytest.mark.parametrize("name", BROKEN)
def test_a_history_no_single_copy_could_have_given_is_refused(name: str) -> None:
    assert not is_linearizable(BROKEN[name])


def test_a_log_tells_every_append_its_own_offset() -> None:
    fine = [op(("append", 3), 1, 2, 0), op(("append", 1), 3, 4, 3), op(("append", 2), 5, 6, 4)]
    assert is_linearizable(fine, append_log, 0)

    twice = [op(("append", 3), 1, 4, 0), op(("append", 1), 2, 3, 0)]
    assert not is_linearizable(twice, append_log, 0)
    skipped = [op(("append", 3), 1, 2, 0), op(("append", 1), 3, 4, 5)]
    assert not is_linearizable(skipped, append_log, 0)
    filled = [*skipped, op(("append", 2), 2)]
    assert is_linearizable(filled, append_log, 0)


def naive(history: list[Operation]) -> bool:
    """Try every order, and every subset of the unknown ones."""
    known = [o for o in history if not o.is_unknown()]
    unknown = [o for o in history if o.is_unknown()]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                if _explains(list(order)):
                    return True
    return False


def _explains(order: list[Operation]) -> bool:
    state: Any = None
    for position, item in enumerate(order):
        if any(later.returned < item.called for later in order[position + 1 :]):
            return False
        after = register(state, item.action, item.result, item.is_unknown())
        if after is None:
            return False
        state = after[0]
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    count = draw(st.integers(1, 5))
    moments = draw(st.permutations(range(1, 2 * count + 1)))
    operations = []
    for number in range(count):
        called, returned = sorted(moments[2 * number : 2 * number + 2])
        action = draw(
            st.sampled_from([("put", 1), ("put", 2), ("get",), ("cas", 1, 2), ("cas", 2, 1)])
        )
        results: dict[str, list[Any]] = {"get": [None, 1, 2], "cas": [True, False], "put": [None]}
        result = draw(st.sampled_from(results[str(action[0])]))
        is_unknown = action[0] != "get" and draw(st.booleans())
        operations.append(op(action, called, NEVER if is_unknown else returned, result))
    return operations


@given(histories())
def test_the_verdict_is_the_one_of_trying_every_order(history: list[Operation]) -> None:
    assert is_linearizable(history) is naive(history)
