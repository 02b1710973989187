"""What a function wants: which argument gets the value, the message, a dependency.

All of it is decided when a function is decorated. A mistake is an error there, which names the
function, the argument and the remedy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CodeType, NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from ..client.client import Client
from ..client.delivery import Deliveries, Delivery
from ..errors import DecodeFailed, InvalidRequest
from ..rows import Message
from ..serde.formats import JSON
from .dependencies import Depends

Source = Literal["value", "argument", "message", "client", "injected", "depends"]
"""`value`: that of the message. `argument`: of a task, one of several in the value."""

OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Argument(NamedTuple):
    """One argument of a function, and where it comes from."""

    name: str
    source: Source
    type: Any = None
    depends: Depends | None = None
    by_name: bool = False
    """Whether it can only be passed by name."""
    is_optional: bool = False
    """Of a task's: whether the function has a default for it."""


class WantedArguments(NamedTuple):
    """The arguments of a function, as they are passed."""

    arguments: tuple[Argument, ...]

    def of(self, source: Source) -> list[Argument]:
        return [one for one in self.arguments if one.source == source]


def place_of(function: Callable[..., Any]) -> str:
    """A function for people: its name, and where it is."""
    code: CodeType | None = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def hints_of(function: Callable[..., Any], names: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The annotations of a function as objects. `names` are those where it was decorated."""
    try:
        return get_type_hints(function, localns=dict(names), include_extras=True)
    except NameError as error:
        raise InvalidRequest(
            f"{what} {place_of(function)}: an annotation names {error.name!r}, which is not "
            "defined when the program runs; import it outside of `if TYPE_CHECKING:`"
        ) from None


def check_function(function: Any, what: str) -> None:
    """Refuse what is decorated and could never be called as a handler."""
    if not callable(function) or isinstance(function, type):
        raise InvalidRequest(f"@app.{what} decorates a def or async def, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidRequest(
            f"{what} {place_of(function)} has a yield, so calling it would do nothing; return one "
            "value, or publish several by a flintmq.Client argument"
        )


def wanted_by(
    function: Callable[..., Any],
    names: Mapping[str, Any],
    what: str,
    *,
    injected: tuple[type, ...] = (),
    has_value: bool = True,
    many: bool = False,
    above: tuple[Callable[..., Any], ...] = (),
) -> WantedArguments:
    """Look at a consumer, a task (whose value has `many` arguments) or the factory of a dependency.
    Raises InvalidRequest."""
    if has_value:
        check_function(function, what)
    hints = hints_of(function, names, what)
    found: list[Argument] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in OPEN:
            raise InvalidRequest(
                f"{what} {place_of(function)}: *{parameter.name} cannot be filled; name each "
                "argument"
            )
        argument = argument_of(parameter, hints.get(parameter.name), injected)
        if argument.depends is not None:
            _look_into(argument.depends, names, injected, (*above, function))
        if argument.source == "value" and many:
            check_type(function, argument.name, argument.type, what)
            argument = argument._replace(
                source="argument", is_optional=parameter.default is not parameter.empty
            )
        if argument.source == "value":
            if parameter.default is not parameter.empty and (
                not has_value or any(one.source == "value" for one in found)
            ):
                continue  # it has a value of its own
            _check_value(function, argument, found, what, has_value)
        found.append(argument)
    return WantedArguments(tuple(found))


def argument_of(
    parameter: inspect.Parameter, hint: Any, injected: tuple[type, ...] = ()
) -> Argument:
    """Where one argument comes from, by its annotation or by a default of `Depends(...)`."""
    name, by_name = parameter.name, parameter.kind is parameter.KEYWORD_ONLY
    depends = parameter.default if isinstance(parameter.default, Depends) else None
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        marked = next((one for one in extras if isinstance(one, Depends)), None)
        depends = marked or depends
        hint = inner if depends is not None or not _is_constraint(extras) else hint
    if depends is not None:
        return Argument(name, "depends", hint, depends, by_name)
    if isinstance(hint, type):
        if issubclass(hint, Message | Deliveries):
            return Argument(name, "message", hint, None, by_name)
        if issubclass(hint, Client):
            return Argument(name, "client", hint, None, by_name)
        if issubclass(hint, injected):
            return Argument(name, "injected", hint, None, by_name)
    if get_origin(hint) is list and get_args(hint) and get_args(hint)[0] in (Message, Delivery):
        return Argument(name, "message", hint, None, by_name)
    return Argument(name, "value", None if hint is Any else hint, None, by_name)


def _is_constraint(extras: list[Any]) -> bool:
    return any(isinstance(one, msgspec.Meta) for one in extras)


def _check_value(
    function: Callable[..., Any], argument: Argument, found: list[Argument], what: str, wanted: bool
) -> None:
    if not wanted:
        raise InvalidRequest(
            f"{what} {place_of(function)}: argument {argument.name!r} cannot be filled; annotate "
            "it as flintmq.Message, flintmq.Client, or Annotated[T, flintmq.Depends(factory)]"
        )
    other = next((one.name for one in found if one.source == "value"), None)
    if other is not None:
        raise InvalidRequest(
            f"{what} {place_of(function)}: both {other!r} and {argument.name!r} would get the "
            "value of the message; annotate one as flintmq.Message or Annotated[T, "
            "flintmq.Depends(factory)], or give it a default"
        )
    if argument.type in (NoneType, None.__class__):
        raise InvalidRequest(
            f"{what} {place_of(function)}: argument {argument.name!r} is annotated None; name the "
            "type of the value"
        )
    check_type(function, argument.name, argument.type, what)


def check_type(function: Callable[..., Any], name: str, hint: Any, what: str) -> None:
    """Refuse a type that nothing can be decoded to, before the first message comes."""
    if hint is None or hint is bytes or hasattr(hint, "model_validate"):
        return
    try:
        msgspec.json.Decoder(hint, dec_hook=lambda kind, value: value)
    except TypeError as error:
        raise InvalidRequest(
            f"{what} {place_of(function)}: argument {name!r} cannot be decoded to {hint!r} "
            f"({str(error).splitlines()[0]}); use a msgspec Struct, dataclass, pydantic model, "
            "dict, str, bytes or flintmq.Message"
        ) from None


def _look_into(
    depends: Depends,
    names: Mapping[str, Any],
    injected: tuple[type, ...],
    above: tuple[Callable[..., Any], ...],
) -> None:
    """Find out what a factory wants itself."""
    factory = depends.factory
    if factory in above:
        chain = " -> ".join(getattr(one, "__name__", "?") for one in (*above[1:], factory))
        raise InvalidRequest(f"circular dependencies: {chain}")
    if depends.wanted is None:
        depends.wanted = wanted_by(
            factory, names, "dependency", injected=injected, has_value=False, above=above
        ).arguments


# --- values


def decoded(message: Message, kind: Any) -> Any:
    """The value of a message as a handler wants it. Raises DecodeFailed.

    What was published as plain bytes or text is taken as JSON where a type asks for more.
    """
    if kind is bytes:
        return message.unpacked()
    try:
        return message.decode(kind)
    except DecodeFailed as error:
        if kind is None or error.expected not in ("raw", "text"):
            raise
        data = message.unpacked()
        try:
            return data.decode() if kind is str else JSON.decode(data, kind)
        except Exception as failure:
            raise DecodeFailed(
                message.topic, message.partition, message.offset, "json", str(failure)
            ) from failure
