"""What `@app.consumer` says, checked when it is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, get_args, get_origin

from ..client.delivery import Deliveries
from ..client.keywords import Errors
from ..client.retrying import Retrying
from ..client.take_ahead import AHEAD_MAX
from ..errors import InvalidRequest
from ..group_model import TAKE_MAX, Order
from ..model import Seconds, Start, seconds
from ..patterns import check_name, check_pattern
from .arguments import WantedArguments, place_of, wanted_by
from .calling import Caller


class HandlerKeywords(TypedDict, total=False):
    """What `@app.consumer` and `@app.task` both take."""

    concurrency: int
    retries: int | None
    backoff: Seconds
    backoff_max: Seconds
    jitter: float
    dead_on: Errors
    retry_on: Errors | None
    lease: Seconds
    lease_max: Seconds
    prefetch: int | None
    order: Order | None


class ConsumerKeywords(HandlerKeywords, total=False):
    """What `@app.consumer` takes beside the topic."""

    group: str | None
    publish_to: str | None
    max: int | None
    linger: Seconds | None
    filter: str | None
    start: Start | None


RETRYING = ("retries", "backoff", "backoff_max", "jitter", "dead_on", "retry_on")
SUBSCRIBING = ("lease", "lease_max", "prefetch", "order", "filter", "start")
CONCURRENCY = 8
BATCH_MAX = 256


class BatchWanted(NamedTuple):
    """How a consumer of batches gets them."""

    max: int
    linger: float


class ConsumerSpec(NamedTuple):
    """A function that consumes a topic."""

    name: str
    topic: str
    is_pattern: bool
    group: str
    caller: Caller
    retrying: Retrying
    concurrency: int
    publish_to: str | None
    batch: BatchWanted | None
    subscribing: dict[str, Any]
    """Keywords of `mq.subscribe`."""
    ahead_max: int = 0
    """So many messages may be taken ahead while work is quick; else no more than `prefetch`."""


def consumer_spec(
    function: Callable[..., Any],
    topic: str,
    said: ConsumerKeywords,
    names: Mapping[str, Any],
    injected: tuple[type, ...],
) -> ConsumerSpec:
    """Check a consumer. Raises InvalidRequest, which names the function."""
    wanted = wanted_by(function, names, "consumer", injected=injected)
    try:
        return _checked(function, topic, said, wanted)
    except InvalidRequest as error:
        raise InvalidRequest(f"consumer {place_of(function)}: {error}") from None


def retrying_of(what: str, said: HandlerKeywords) -> Retrying:
    chosen: Any = said
    retrying: Any = {one: chosen[one] for one in RETRYING if one in said}
    return Retrying.checked(what, retrying)


def _checked(
    function: Callable[..., Any], topic: str, said: ConsumerKeywords, wanted: WantedArguments
) -> ConsumerSpec:
    name = getattr(function, "__name__", type(function).__name__)
    is_pattern = isinstance(topic, str) and ("*" in topic or ">" in topic)
    check_pattern(topic) if is_pattern else check_name(topic)
    publish_to = said.get("publish_to")
    if publish_to is not None:
        check_name(publish_to)
        if publish_to == topic:
            raise InvalidRequest(f"publish_to={publish_to!r} is the topic it consumes: a loop")
    chosen: Any = said
    batch = _batch(wanted, said)
    caller = Caller(function, wanted if batch is None else _of_items(wanted))
    concurrency = checked_concurrency(said.get("concurrency", CONCURRENCY if batch is None else 1))
    subscribing = {one: chosen[one] for one in SUBSCRIBING if chosen.get(one) is not None}
    ahead_max = taken_ahead(subscribing, concurrency, 1 if batch is None else 2 * batch.max)
    return ConsumerSpec(
        name,
        topic,
        is_pattern,
        check_name(said.get("group") or name.replace("<", "").replace(">", ""), "group"),
        caller,
        retrying_of("consumer", said),
        concurrency,
        publish_to,
        batch,
        subscribing,
        ahead_max,
    )


def taken_ahead(subscribing: dict[str, Any], concurrency: int, each: int = 1) -> int:
    """Say how many messages are held, where the function does not: those that are worked on, and
    more only as long as they are done quickly, so that other workers get theirs."""
    if "prefetch" in subscribing:
        return 0
    subscribing["prefetch"] = min(TAKE_MAX, each * concurrency)
    return AHEAD_MAX


def checked_concurrency(concurrency: int) -> int:
    if type(concurrency) is not int or concurrency < 1:
        raise InvalidRequest(
            f"concurrency must be a whole number of at least 1, not {concurrency!r}"
        )
    return concurrency


def _batch(wanted: WantedArguments, said: ConsumerKeywords) -> BatchWanted | None:
    given = [one for one in ("max", "linger") if said.get(one) is not None]
    lists = [
        one
        for one in wanted.arguments
        if (one.source in ("value", "message") and list in (one.type, get_origin(one.type)))
        or (isinstance(one.type, type) and issubclass(one.type, Deliveries))
    ]
    if not given:
        of_messages = next((one for one in lists if one.source == "message"), None)
        if of_messages is not None:
            raise InvalidRequest(
                f"argument {of_messages.name!r} is a batch: pass max= or linger= to get batches"
            )
        return None
    one_by_one = [
        one for one in wanted.arguments if one.source in ("value", "message") and one not in lists
    ]
    if one_by_one or not lists:
        which = f"argument {one_by_one[0].name!r}" if one_by_one else "an argument"
        raise InvalidRequest(
            f"{given[0]}= asks for batches: annotate {which} as list[T], "
            "list[flintmq.Message] or flintmq.Deliveries"
        )
    most = said.get("max")
    most = BATCH_MAX if most is None else most
    if type(most) is not int or not 1 <= most <= TAKE_MAX:
        raise InvalidRequest(f"max must be a whole number from 1 to {TAKE_MAX:,}, not {most!r}")
    linger = said.get("linger")
    return BatchWanted(most, 0.0 if linger is None else seconds(linger, "linger"))


def _of_items(wanted: WantedArguments) -> WantedArguments:
    """The value's type of a batch is that of its items."""
    return WantedArguments(
        tuple(
            one._replace(type=(*get_args(one.type), None)[0]) if one.source == "value" else one
            for one in wanted.arguments
        )
    )
