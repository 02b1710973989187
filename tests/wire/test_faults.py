"""Errors come out at the other end as they went in."""

from __future__ import annotations

import msgspec
import pytest

from flintmq import errors
from flintmq.errors import FlintError
from flintmq.net.wire.faults import error_of, fault_of
from flintmq.net.wire.operations import Fault, encode

SAMPLES = [
    errors.InvalidRequest("no"),
    errors.MessageTooLarge("it", 10, 5, "limit"),
    errors.TopicNotFound("orders"),
    errors.TopicDeleted("orders"),
    errors.TopicExists("orders", {"ttl": (1.0, None)}),
    errors.TopicFull("orders", "retention_count=3", "why", never_fits=True),
    errors.QueueFull("q", 3, "wait"),
    errors.NotStaged("w", 3, ["a", "b"]),
    errors.GroupExists("orders", "g", {"order": ("key", "log")}),
    errors.LeaseLost("orders", "g", [1, 2, 3]),
    errors.FilterFailed("orders", 3, ValueError("x")),
    errors.Closed("the broker"),
    errors.StorageFull("file", "no space"),
    errors.OutcomeUnknown("why"),
    errors.Corrupt("bytes"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_class_its_text_and_its_facts(error: FlintError) -> None:
    fault = msgspec.msgpack.decode(encode(fault_of(error)), type=Fault)
    got = error_of(fault)

    assert type(got) is type(error)
    assert str(got) == str(error)
    assert vars(got) == vars(error)


def test_what_is_no_error_of_ours_is_a_plain_one() -> None:
    for kind in ("SystemExit", "Exception", "os.system", "__init__", "NoSuchError"):
        assert type(error_of(Fault(kind, "text", {}))) is FlintError


def test_facts_cannot_reach_behind_the_attributes_of_an_error() -> None:
    got = error_of(Fault("Closed", "text", {"__class__": "x", "_private": 1, "what": "it"}))

    assert vars(got) == {"what": "it"}


def test_facts_that_cannot_travel_stay_at_home() -> None:
    error = errors.Closed("it")
    error.__dict__["callback"] = print

    assert fault_of(error).facts == {"what": "it"}
