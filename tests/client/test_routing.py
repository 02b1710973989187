"""Which partition a message goes to: the same in every process and version, and checked first."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq import InvalidRequest, RoutingFailed
from flintmq.batch import BatchBuilder, key_hash
from flintmq.client import routing
from flintmq.client.routing import Route, Router, partition_name

COUNTS = (1, 2, 3, 4, 8, 12, 64, 1000, 1024)

GOLDEN: dict[str | bytes, tuple[int, ...]] = {
    "": (0, 1, 1, 1, 1, 1, 1, 1, 1),
    "a": (0, 1, 0, 1, 1, 9, 41, 297, 809),
    "42": (0, 1, 2, 3, 7, 11, 23, 367, 791),
    "user-1": (0, 1, 0, 3, 3, 3, 35, 187, 803),
    "orders/7": (0, 1, 2, 1, 5, 5, 29, 125, 477),
    "größer": (0, 0, 0, 2, 2, 6, 50, 530, 818),
    b"\x00": (0, 1, 0, 3, 3, 3, 19, 323, 787),
    b"\xff\xfe": (0, 0, 0, 0, 4, 0, 44, 908, 172),
    "a" * 1000: (0, 0, 0, 0, 4, 0, 60, 684, 508),
}
"""Where keys go among 1, 2, 3 ... partitions. Stored data lies there: these never change."""

Key = str | bytes | None


def rows_of(*keys: Key) -> BatchBuilder:
    """One row for each key; its value is its number."""
    rows = BatchBuilder()
    for number, key in enumerate(keys):
        rows.append_row(b"%d" % number, key=key)
    return rows


def spread(
    keys: list[Key], partitions: int, route: Route | None = None, router: Router | None = None
) -> dict[int, list[int]]:
    """The numbers of the rows by partition."""
    parts = (router or Router()).spread("orders", rows_of(*keys), partitions, route)
    return {
        number: [int(value) for value in part.values(0, part.row_count)]
        for number, part in parts.items()
    }


@pytest.mark.parametrize(("key", "expected"), GOLDEN.items())
def test_a_key_goes_to_the_same_partition_in_every_version(
    key: str | bytes, expected: tuple[int, ...]
) -> None:
    assert tuple(next(iter(spread([key], count))) for count in COUNTS) == expected


def test_the_samples_in_the_document_of_the_module_are_true() -> None:
    samples = re.findall(r'"(.+)" +(\d+) +(\d+) +(\d+) +(\d+)', routing.__doc__ or "")
    assert len(samples) == 4
    for key, hashed, *places in samples:
        assert key_hash(key) == int(hashed)
        assert [next(iter(spread([key], count))) for count in (3, 8, 64)] == [*map(int, places)]


@pytest.mark.slow
def test_a_key_goes_to_the_same_partition_in_every_process() -> None:
    script = (
        "from tests.client.test_routing import *\n"
        "print([next(iter(spread([key], 64))) for key in GOLDEN])"
    )
    outcomes = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert outcomes == {f"{[partitions[COUNTS.index(64)] for partitions in GOLDEN.values()]}\n"}


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 1024))
def test_text_and_its_bytes_are_one_key(key: str, partitions: int) -> None:
    assert spread([key], partitions) == spread([key.encode()], partitions)


@given(
    st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), min_size=1, max_size=40),
    st.integers(1, 9),
)
def test_every_row_goes_to_one_partition_and_order_is_kept_there(
    keys: list[Key], partitions: int
) -> None:
    parts = spread(keys, partitions)

    assert sorted(row for part in parts.values() for row in part) == list(range(len(keys)))
    assert all(part == sorted(part) for part in parts.values())
    for key in {key for key in keys if key is not None}:
        places = {number for number, part in parts.items() if any(keys[row] == key for row in part)}
        assert places == set(spread([key], partitions)), "one key, one partition"


def test_many_keys_are_spread_evenly() -> None:
    parts = spread([f"user-{number}" for number in range(8000)], 8)

    assert sorted(parts) == list(range(8))
    assert all(800 < len(part) < 1200 for part in parts.values())


def test_parts_keep_every_column() -> None:
    rows = BatchBuilder()
    for key in ("a", "42"):
        rows.append_row(
            b"v", key=key, headers={"h": key}, priority=3, expiry=7, deliver_at=9, content_type="x"
        )
    for part in Router().spread("orders", rows, 8, None).values():
        assert part.row_count == 1
        assert part.headers(0) == {"h": part.key(0)}
        assert (part.priority(0), part.expiry(0), part.deliver_at(0)) == (3, 7, 9)
        assert part.content_type(0) == "x"


# --- without a key


def test_batches_without_keys_go_round_robin_as_a_whole() -> None:
    router = Router()

    turns = [spread([None, None, None], 3, router=router) for _ in range(4)]
    assert turns == [{0: [0, 1, 2]}, {1: [0, 1, 2]}, {2: [0, 1, 2]}, {0: [0, 1, 2]}]


def test_each_topic_has_a_round_robin_of_its_own() -> None:
    router = Router()
    places = [
        next(iter(router.spread(topic, rows_of(None), 3, None)))
        for topic in ("a", "b", "a", "b", "a")
    ]

    assert places == [0, 0, 1, 1, 2]


def test_rows_without_a_key_among_others_stay_together_and_take_one_turn() -> None:
    router = Router()
    assert spread([None, "42", None], 8, router=router) == {0: [0, 2], 7: [1]}
    assert spread([None, "42", None], 8, router=router) == {1: [0, 2], 7: [1]}
    assert spread(["42"], 8, router=router) == {7: [0]}
    assert spread([None], 8, router=router) == {2: [0]}, "a batch of keys takes no turn"


def test_the_empty_key_is_a_key() -> None:
    assert spread(["", b""], 8) == {1: [0, 1]}


def test_round_robin_can_be_asked_for_whatever_the_keys() -> None:
    router = Router()
    keys: list[Key] = ["a", "42", None]
    assert [spread(keys, 2, "round_robin", router) for _ in range(3)] == [
        {0: [0, 1, 2]},
        {1: [0, 1, 2]},
        {0: [0, 1, 2]},
    ]


def test_after_partitions_were_added_the_round_goes_over_all_of_them() -> None:
    router = Router()
    places = [next(iter(spread([None], count, router=router))) for count in (2, 2, 4, 4, 4)]

    assert places == [0, 1, 2, 3, 0]


# --- a partition that is named


@pytest.mark.parametrize("partition", [0, 3, 7])
def test_a_fixed_partition_takes_everything(partition: int) -> None:
    assert spread(["a", None, "42"], 8, partition) == {partition: [0, 1, 2]}


@pytest.mark.parametrize("partition", [-1, 8, 1000])
def test_a_partition_out_of_range_is_an_error_that_says_the_range(partition: int) -> None:
    with pytest.raises(InvalidRequest, match=f"partition {partition} of 'orders'.* 0 to 7"):
        spread(["a"], 8, partition)


@pytest.mark.parametrize("route", [True, False, 1.0, "0", "hash", b"round_robin", [9], object()])
def test_what_is_no_route_is_refused(route: Any) -> None:
    with pytest.raises(InvalidRequest, match="partition"):
        spread(["a"], 8, route)


# --- a function


def test_a_function_gets_key_value_and_count_of_each_message() -> None:
    seen: list[tuple[Any, ...]] = []

    def route(key: Any, value: Any, count: int) -> int:
        seen.append((key, value, count))
        return len(seen) % count

    assert spread(["a", None, b"c"], 2, route) == {1: [0, 2], 0: [1]}
    assert seen == [("a", b"0", 2), (None, b"1", 2), (b"c", b"2", 2)]


def test_a_function_that_raises_is_named_with_its_error() -> None:
    def route(key: Any, value: Any, count: int) -> int:
        raise KeyError("region")

    with pytest.raises(RoutingFailed, match=r"'orders' raised KeyError: 'region'") as caught:
        spread(["a"], 2, route)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.topic == "orders"


@pytest.mark.parametrize("gives", [-1, 2, True, None, 0.0, "1"])
def test_a_function_that_gives_no_partition_is_an_error_that_says_what_it_gave(gives: Any) -> None:
    route: Callable[..., Any] = lambda key, value, count: gives  # noqa: E731

    with pytest.raises(RoutingFailed, match=rf"returned {gives!r}, not a partition from 0 to 1"):
        spread(["a"], 2, route)


def test_a_function_that_takes_other_arguments_is_a_routing_error() -> None:
    route: Any = lambda key: 0  # noqa: E731

    with pytest.raises(RoutingFailed, match="TypeError"):
        spread(["a"], 2, route)


def test_an_interrupt_in_a_function_stays_an_interrupt() -> None:
    def route(key: Any, value: Any, count: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread(["a"], 2, route)


def test_a_partition_is_called_by_topic_and_number() -> None:
    assert partition_name("orders.eu", 3) == "orders.eu/3"
