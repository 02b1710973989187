"""The blocking surface is the async one, method by method and word by word."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import AsyncIterator, Iterator
from types import MemberDescriptorType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import flintmq
from flintmq.client.blocking import (
    BlockingClient,
    BlockingDeliveries,
    BlockingDelivery,
    BlockingFeed,
    BlockingPublisher,
    BlockingReader,
    BlockingSubscription,
    connect_sync,
)
from flintmq.client.blocking.delivery import BlockingProcess
from flintmq.client.blocking.subscription import BlockingHandler
from flintmq.client.delivery import Process
from flintmq.client.parts import PartVerb
from flintmq.client.subscription import Handler

PAIRS: list[tuple[type, type]] = [
    (flintmq.Client, BlockingClient),
    (flintmq.Reader, BlockingReader),
    (flintmq.Feed, BlockingFeed),
    (flintmq.Publisher, BlockingPublisher),
    (flintmq.Subscription, BlockingSubscription),
    (flintmq.Delivery, BlockingDelivery),
    (flintmq.Deliveries, BlockingDeliveries),
    (flintmq.Table, flintmq.BlockingTable),
    (flintmq.TableWatch, flintmq.BlockingTableWatch),
    (Process, BlockingProcess),
]
BLOCKING_OF = dict(PAIRS)
IN_BLOCKING_TERMS: dict[Any, Any] = {**BLOCKING_OF, Handler: BlockingHandler}

IN_PLACE_OF = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


def method_of(kind: type, name: str) -> Any:
    found = inspect.getattr_static(kind, name)
    return getattr(kind, name) if isinstance(found, PartVerb) else found


def surface(kind: type) -> dict[str, Any]:
    """The public methods and properties of a class, with what it inherits."""
    return {
        name: method_of(kind, name)
        for name in dir(kind)
        if name in IN_PLACE_OF or not name.startswith("_")
    }


def in_blocking_terms(annotation: Any) -> Any:
    if get_origin(annotation) is AsyncIterator:
        return Iterator[get_args(annotation)[0]]  # type: ignore[misc]
    origin = get_origin(annotation)
    if origin in BLOCKING_OF or origin in BLOCKING_OF.values():
        annotation = origin  # a table is generic
    if annotation in IN_BLOCKING_TERMS:
        return IN_BLOCKING_TERMS[annotation]
    if isinstance(annotation, UnionType):
        return Union[tuple(map(in_blocking_terms, get_args(annotation)))]  # noqa: UP007
    return annotation


def shape(thing: Any) -> list[tuple[Any, ...]]:
    """Names, kinds, defaults and annotations of what it takes, and what it returns."""
    if isinstance(thing, property):
        return [("a property of", in_blocking_terms(get_type_hints(thing.fget)["return"]))]
    if isinstance(thing, MemberDescriptorType):
        return [("a slot", thing.__name__)]
    hints = get_type_hints(thing)
    taken: list[tuple[Any, ...]] = [
        (name, parameter.kind, parameter.default, in_blocking_terms(hints.get(name)))
        for name, parameter in inspect.signature(thing).parameters.items()
    ]
    return [*taken, ("returns", in_blocking_terms(hints.get("return")))]


@pytest.mark.parametrize(("ours", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_method_has_a_blocking_one_of_the_same_signature(ours: type, blocking: type) -> None:
    theirs = surface(blocking)
    for name, thing in surface(ours).items():
        name = IN_PLACE_OF.get(name, name)
        assert hasattr(blocking, name), f"{blocking.__name__} lacks {name}"
        other = theirs.get(name) or inspect.getattr_static(blocking, name)
        assert shape(other) == shape(thing), f"{blocking.__name__}.{name}"
        assert not inspect.iscoroutinefunction(other), f"{blocking.__name__}.{name}"


@pytest.mark.parametrize(("ours", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_the_blocking_side_adds_nothing_but_open(ours: type, blocking: type) -> None:
    more = {name for name in vars_of(blocking) if not name.startswith("_")} - set(surface(ours))

    assert more - attributes(ours) <= {"open"}  # what `await reader` does


def our_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("flintmq")]


def vars_of(kind: type) -> set[str]:
    return {name for base in our_bases(kind) for name in vars(base)}


def attributes(kind: type) -> set[str]:
    """What `__init__` sets, read from its source: the facts of an object that are not methods."""
    return {
        name.strip().removeprefix("self.")
        for base in our_bases(kind)
        if "__init__" in vars(base)
        for line in inspect.getsource(vars(base)["__init__"]).splitlines()
        if line.strip().startswith("self.") and "=" in line
        for name in line.split("=")[0].split(":")[0].split(",")
    }


@pytest.mark.parametrize(("ours", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_public_attribute_is_there(ours: type, blocking: type) -> None:
    public = {name for name in attributes(ours) if not name.startswith("_")}
    there = vars_of(blocking) | attributes(blocking)

    assert public - there == set()


def test_connect_sync_takes_what_connect_takes() -> None:
    assert shape(connect_sync) == shape(flintmq.connect)


@pytest.mark.parametrize("blocking", BLOCKING_OF.values(), ids=lambda kind: kind.__name__)
def test_every_public_method_says_what_it_does(blocking: type) -> None:
    facts = {"topic", "name", "pattern", "capacity", "overflow", "sent", "acknowledged"}
    facts |= {"last_receipt", "group", *dir(flintmq.Message), *dir(flintmq.Rows)}
    undocumented = [
        name
        for name, thing in surface(blocking).items()
        if not name.startswith("_") and name not in facts and not inspect.getdoc(thing)
    ]

    assert undocumented == []


@pytest.mark.parametrize("blocking", BLOCKING_OF.values(), ids=lambda kind: kind.__name__)
def test_no_text_speaks_of_what_only_async_code_has(blocking: type) -> None:
    texts = {name: inspect.getdoc(thing) or "" for name, thing in surface(blocking).items()}
    strange = [
        name
        for name, text in texts.items()
        if any(word in text for word in ("async with", "await", "ancelled", "event loop", "task"))
    ]

    assert strange == []


def test_help_shows_what_a_verb_takes_and_which_blocking_object_it_returns() -> None:
    shown = pydoc.plain(pydoc.render_doc(BlockingClient.subscribe))

    assert "prefetch: 'int | None' = None" in shown
    assert "BlockingSubscription" in shown.splitlines()[2]
    assert "with mq.subscribe(...) as deliveries" in shown
    assert BlockingClient.subscribe.__qualname__ == "BlockingClient.subscribe"
