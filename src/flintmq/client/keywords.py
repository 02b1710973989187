"""Keywords that several verbs take: one typed set for each.

    publish          PublishKeywords      a message, how its value is encoded, where it goes
    publish_batch    BatchKeywords        the same for many, one for all or a list with one for each
    publish_many     CallKeywords         how messages are sent
    publisher        PublisherKeywords    how values are encoded, where they go, what a batch is
    request          RequestKeywords      a message, how its value is encoded, where it goes
    send, reply      MessageKeywords      a message, how its value is encoded
    subscribe, poll  GroupKeywords        what the group is, if it is made
    process          BackoffKeywords      how a message that failed is tried again
    run              RunKeywords          the same, and how many at once

They arrive as a dict. That is also the fastest way: a call that says nothing pays for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from inspect import Parameter, signature
from typing import Any, TypeAlias, TypedDict, TypeVar

from ..batch import HeaderValue, Key
from ..broker_api import Filter
from ..group_model import Order
from ..model import Seconds, Start
from .routing import Route

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

When = datetime | float
"""A time: a datetime, or seconds since 1970."""

Each: TypeAlias = T | list[T]
"""One for all messages, or a list with one for each."""


class RowKeywords(TypedDict, total=False):
    """A message beside its value."""

    key: Key | None
    headers: Mapping[str, HeaderValue] | None
    priority: int
    ttl: Seconds | None
    delay: Seconds | None
    at: When | None
    content_type: str | None


class StepKeywords(TypedDict, total=False):
    """What is done to values beside their format."""

    pre_hooks: Sequence[str] | None
    post_hooks: Sequence[str] | None
    magic_header: str | None
    schema: Any


class ValueKeywords(StepKeywords, total=False):
    """How values are encoded."""

    format: str | None
    compression: str | None


class CallKeywords(TypedDict, total=False):
    """How messages are sent, and how long that may take."""

    qos: int
    timeout: Seconds | None
    auto_create: bool | None


class SendKeywords(CallKeywords, total=False):
    """The same, and where they go."""

    partition: Route | None


class OnceKeywords(SendKeywords, total=False):
    """The same for a publish that may be repeated."""

    producer: str | None
    sequence: int | None


class MessageKeywords(RowKeywords, ValueKeywords, total=False):
    pass


class PublishKeywords(MessageKeywords, OnceKeywords, total=False):
    pass


class RequestKeywords(MessageKeywords, total=False):
    partition: Route | None
    auto_create: bool | None


class PublisherKeywords(ValueKeywords, SendKeywords, total=False):
    linger: Seconds
    batch_compression: str


class BatchKeywords(StepKeywords, OnceKeywords, total=False):
    key: Each[Key | None]
    headers: Each[Mapping[str, HeaderValue] | None]
    priority: Each[int]
    ttl: Each[Seconds | None]
    delay: Each[Seconds | None]
    at: Each[When | None]
    content_type: Each[str | None]
    format: Each[str | None]
    compression: Each[str | None]
    batch_compression: str


class GroupKeywords(TypedDict, total=False):
    """What `subscribe` and `poll` say of a group, and of making its topic."""

    start: Start | None
    order: Order | None
    filter: str | Filter | None
    auto_create: bool | None


Errors = type[Exception] | tuple[type[Exception], ...]
"""A type of exceptions, or several: what `except` takes."""


class BackoffKeywords(TypedDict, total=False):
    """How a message that failed is tried again, beside how often and how soon."""

    backoff_max: Seconds
    jitter: float
    dead_on: Errors
    retry_on: Errors | None


class RetryKeywords(BackoffKeywords, total=False):
    retries: int | None
    backoff: Seconds


class RunKeywords(RetryKeywords, total=False):
    concurrency: int


DEFAULTS = {
    "priority": 0,
    "qos": 1,
    "linger": 0.0,
    "batch_compression": "none",
    "concurrency": 8,
    "backoff": 1.0,
    "backoff_max": 60.0,
    "jitter": 0.2,
    "dead_on": (),
}
"""What a keyword is that is not given, where that is not None."""


def takes(keywords: type) -> Callable[[F], F]:
    """Has `help()` show a function's `**keywords` one by one, with their defaults."""

    def spelled_out(function: F) -> F:
        shown: Any = function
        there = signature(function)
        named = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=DEFAULTS.get(name),
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in keywords.__annotations__.items()
        ]
        shown.__signature__ = there.replace(
            parameters=[
                *(one for one in there.parameters.values() if one.kind is not one.VAR_KEYWORD),
                *named,
            ]
        )
        return function

    return spelled_out


def check_keywords(verb: str, given: Mapping[str, object], keywords: Any) -> None:
    """Refuse a keyword that is none, as Python would."""
    if not keywords.__optional_keys__.issuperset(given):
        unknown = next(name for name in given if name not in keywords.__optional_keys__)
        raise TypeError(f"{verb}() got an unexpected keyword argument {unknown!r}")
