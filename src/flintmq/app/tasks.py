"""Tasks: functions that are called elsewhere, later; and what `@app.task` says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

import msgspec

from ..client.keywords import When
from ..errors import EncodeFailed, InvalidRequest
from ..model import Seconds, seconds
from ..patterns import check_name
from ..serde.formats import JSON
from .arguments import WantedArguments, hints_of, place_of, wanted_by
from .calling import Caller, is_async
from .consumers import (
    CONCURRENCY,
    SUBSCRIBING,
    ConsumerSpec,
    HandlerKeywords,
    checked_concurrency,
    retrying_of,
    taken_ahead,
)
from .running_task import stoppable
from .task_model import (
    GROUP,
    KEPT_SECONDS,
    RESULT_SECONDS,
    TASK_TOPICS,
    PlannedTask,
    new_task_id,
)

if TYPE_CHECKING:
    from .app import App
    from .handles import BlockingTaskHandle, TaskHandle

P = ParamSpec("P")
R = TypeVar("R")

RETRIES = 4
SEND_OPTIONS = ("delay", "at", "key", "priority", "unique", "task_id")

UniqueKey = str | Callable[..., str]


class TaskKeywords(HandlerKeywords, total=False):
    """What `@app.task` takes."""

    name: str | None
    timeout: Seconds | None
    result_ttl: Seconds | None
    unique: UniqueKey | bool | None
    unique_for: Seconds | None


class TaskSpec(NamedTuple):
    """A function that is a task."""

    name: str
    topic: str
    consumer: ConsumerSpec
    arguments: tuple[str, ...]
    """Those that are sent."""
    required: tuple[str, ...]
    arguments_type: type[msgspec.Struct]
    """What the value of its messages is decoded to."""
    result_type: Any
    timeout: float | None
    result_ttl: float
    unique: Callable[..., str] | None
    unique_for: float | None


class Task(Generic[P, R]):
    """A function whose calls are sent through the broker; created by `@app.task`.

    `await resize.send(path)` makes a worker call it; calling the object calls the function here.
    """

    def __init__(self, app: App, function: Callable[P, Any], spec: TaskSpec) -> None:
        self.app, self.function, self.spec = app, function, spec
        self.name = spec.name
        self.__name__ = getattr(function, "__name__", spec.name)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"

    async def send(
        self,
        *args: Any,
        delay: Seconds | None = None,
        at: When | None = None,
        key: str | None = None,
        priority: int = 0,
        unique: str | None = None,
        task_id: str | None = None,
        **kwargs: Any,
    ) -> TaskHandle[R]:
        """Make a worker call the function with these arguments; returns once the task is stored.

        It runs after `delay` seconds, or at the time `at`; `priority` is 0 to 7, 7 first. `key` is
        the key of the message: with `order="key"`, tasks with the same key run one after the other.
        Only one task with the same `unique` key exists at a time: if there is one, its handle is
        returned. With your own `task_id`, a task that is sent again is stored once.
        """
        return await self.app.desk.send(
            self, self.bound(args, kwargs), _sending(delay, at, key, priority, unique, task_id)
        )

    def send_sync(
        self,
        *args: Any,
        delay: Seconds | None = None,
        at: When | None = None,
        key: str | None = None,
        priority: int = 0,
        unique: str | None = None,
        task_id: str | None = None,
        **kwargs: Any,
    ) -> BlockingTaskHandle[R]:
        """The same for code without an event loop: it blocks until the task is stored.

        The app connects automatically, as `flintmq.connect_sync` does; `app.close_sync()`
        disconnects.
        """
        from .handles import BlockingTaskHandle

        bound, said = self.bound(args, kwargs), _sending(delay, at, key, priority, unique, task_id)
        place = self.app.blocking_place()
        return BlockingTaskHandle(place, place.run(lambda: place.desk.send(self, bound, said)))

    def handle(self, id: str) -> TaskHandle[R]:
        """Return the handle of a task that was sent before, here or elsewhere, by its id."""
        return self.app.desk.handle(self, id)

    def step(
        self,
        *args: Any,
        delay: Seconds | None = None,
        key: str | None = None,
        priority: int = 0,
        **kwargs: Any,
    ) -> TaskStep[R]:
        """A call in a chain or group: `flintmq.chain(resize.step(path), upload.step())`.

        The first argument that is left open gets the result of the step before.
        """
        waits = None if delay is None else seconds(delay, "delay")
        return TaskStep(self, self.bound(args, kwargs, is_part=True), waits, key, priority)

    def bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_part: bool = False
    ) -> dict[str, Any]:
        """The arguments by name. Raises TypeError as a call would."""
        names = self.spec.arguments
        if len(args) > len(names):
            raise TypeError(
                f"{self.name}() takes {len(names)} arguments from its sender "
                f"({', '.join(names) or 'none'}), {len(args)} were given"
            )
        found = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise TypeError(f"{self.name}() got an unexpected keyword argument {name!r}")
            if name in found:
                raise TypeError(f"{self.name}() got multiple values for argument {name!r}")
            found[name] = value
        missing = [name for name in self.spec.required if name not in found]
        if missing and not is_part:
            raise TypeError(f"{self.name}() is missing {', '.join(map(repr, missing))}")
        return found

    def unique_key(self, bound: Mapping[str, Any]) -> str | None:
        return None if self.spec.unique is None else self.spec.unique(**bound)


class Sending(NamedTuple):
    """How one task is sent."""

    delay: float | None = None
    at: When | None = None
    key: str | None = None
    priority: int = 0
    unique: str | None = None
    id: str | None = None


def _sending(
    delay: Seconds | None,
    at: When | None,
    key: str | None,
    priority: int,
    unique: str | None,
    id: str | None,
) -> Sending:
    if unique is not None and (not isinstance(unique, str) or not unique):
        raise InvalidRequest(f"unique must be a str that is not empty, not {unique!r}")
    waits = None if delay is None else seconds(delay, "delay")
    return Sending(waits, at, key, priority, unique, id)


class TaskStep(Generic[R]):
    """A call of a task that is sent as part of a chain or group; `task.step(...)` makes it."""

    def __init__(
        self,
        task: Task[Any, R],
        bound: dict[str, Any],
        delay: float | None,
        key: str | None,
        priority: int,
    ) -> None:
        self.task, self.bound = task, bound
        self.delay, self.key, self.priority = delay, key, priority

    def planned(self, now_ms: int, *, follows: bool) -> PlannedTask:
        """With `follows`, it gets the result of what came before."""
        spec = self.task.spec
        encoded_arguments(spec, self.bound)
        open = [name for name in spec.arguments if name not in self.bound]
        into = open[0] if follows and open else None
        missing = [name for name in spec.required if name in open and name != into]
        if missing:
            raise TypeError(f"{spec.name}() is missing {', '.join(map(repr, missing))}")
        return PlannedTask(
            topic=spec.topic,
            id=new_task_id(now_ms),
            arguments={
                name: msgspec.Raw(encoded(spec.name, value)) for name, value in self.bound.items()
            },
            into=into,
            key=self.key,
            priority=self.priority,
            delay=self.delay,
            result_ttl=spec.result_ttl,
        )


def encoded_arguments(spec: TaskSpec, bound: Mapping[str, Any]) -> bytes:
    """Arguments as they travel. Raises TypeError where a worker could not decode them."""
    data = encoded(spec.name, bound)
    try:
        JSON.decode(data, spec.arguments_type)
    except Exception as error:
        raise TypeError(f"{spec.name}() takes other arguments: {error}") from None
    return data


def encoded(task: str, value: Any) -> bytes:
    """Arguments or a result as JSON."""
    try:
        return JSON.encode(value)
    except Exception as error:
        raise EncodeFailed(f"what task {task!r} is sent or returns", "json", str(error)) from error


# --- what a decorator says


def task_spec(
    function: Callable[..., Any],
    said: TaskKeywords,
    names: Mapping[str, Any],
    injected: tuple[type, ...],
) -> TaskSpec:
    """Check a task. Raises InvalidRequest, which names the function."""
    wanted = wanted_by(function, names, "task", injected=injected, many=True)
    try:
        return _checked(function, said, wanted, hints_of(function, names, "task").get("return"))
    except InvalidRequest as error:
        raise InvalidRequest(f"task {place_of(function)}: {error}") from None


def _checked(
    function: Callable[..., Any], said: TaskKeywords, wanted: WantedArguments, returns: Any
) -> TaskSpec:
    named: str = getattr(function, "__name__", type(function).__name__)
    name = check_name(said.get("name") or named)
    topic = check_name(TASK_TOPICS + name)
    sent = wanted.of("argument")
    taken = [one.name for one in sent if one.name in SEND_OPTIONS]
    if taken:
        raise InvalidRequest(
            f"argument {taken[0]!r} has the name of an option of send(); rename it"
        )
    chosen: Any = said
    retrying = retrying_of("task", said)
    if retrying.retries is None:
        retrying = retrying._replace(retries=RETRIES)
    ttl = said.get("result_ttl", RESULT_SECONDS)
    result_ttl = 0.0 if ttl is None else seconds(ttl, "result_ttl")
    if result_ttl > KEPT_SECONDS:
        raise InvalidRequest(
            f"results are kept for at most {KEPT_SECONDS:g} seconds; store what should last longer "
            "yourself"
        )
    limit, unique_for = said.get("timeout"), said.get("unique_for")
    concurrency = checked_concurrency(said.get("concurrency", CONCURRENCY))
    subscribing = {one: chosen[one] for one in SUBSCRIBING if chosen.get(one) is not None}
    ahead_max = taken_ahead(subscribing, concurrency)
    consumer = ConsumerSpec(
        name, topic, False, GROUP, _caller(function, wanted), retrying, concurrency, None, None,
        subscribing, ahead_max,
    )  # fmt: skip
    fields = [(one.name, Any if one.type is None else one.type, msgspec.UNSET) for one in sent]
    return TaskSpec(
        name,
        topic,
        consumer,
        tuple(one.name for one in sent),
        tuple(one.name for one in sent if not one.is_optional),
        msgspec.defstruct("Arguments", fields),
        None if returns is type(None) else returns,
        None if limit is None else seconds(limit, "timeout", positive=True),
        result_ttl,
        _unique(said.get("unique"), sent),
        None if unique_for is None else seconds(unique_for, "unique_for", positive=True),
    )


def _caller(function: Callable[..., Any], wanted: WantedArguments) -> Caller:
    return Caller(function if is_async(function) else stoppable(function), wanted)


def _unique(unique: Any, sent: list[Any]) -> Callable[..., str] | None:
    """What makes the unique key of a call, where each has one."""
    names = [one.name for one in sent]
    if unique is None or unique is False:
        return None
    if unique is True:
        return lambda **bound: JSON.encode(bound).decode()
    if callable(unique):
        return lambda **bound: str(unique(**bound))
    if isinstance(unique, str) and unique in names:
        return lambda **bound: str(bound.get(unique))
    raise InvalidRequest(
        f"unique must be True, the name of an argument ({', '.join(names) or 'there is none'}), or "
        f"a function of the arguments; not {unique!r}"
    )
