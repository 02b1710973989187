"""Errors as they are told on the command line: one line, with what to type next. Pure.

The library's texts name its own calls; here they name commands.
"""

from __future__ import annotations

import shlex

from ..errors import (
    Disconnected,
    FlintError,
    GroupNotFound,
    NotAuthenticated,
    TlsFailed,
    TopicDeleted,
    TopicExists,
    TopicNotFound,
)


def told(error: FlintError) -> str:
    """The error as one line."""
    text = str(error)
    if isinstance(error, TopicNotFound) and not isinstance(error, TopicDeleted):
        make = f"`{_typed('topic add', error.topic)}` makes it"
        text = f"topic {error.topic!r} does not exist; `flintmq topic ls` lists topics, {make}"
    elif isinstance(error, TopicExists):
        change = f"`{_typed('topic edit', error.topic)}` changes options"
        text = text.replace("configure_topic changes options", change)
    elif isinstance(error, GroupNotFound):
        known = f"`{_typed('group ls', error.topic)}` lists those there are"
        text = f"topic {error.topic!r} has no group {error.group!r}; {known}"
    elif isinstance(error, NotAuthenticated):
        text += "; yours is given by --api-key-file or FLINTMQ_API_KEY"
    elif isinstance(error, Disconnected) and not isinstance(error, TlsFailed):
        text += "; does it run there? `flintmq serve` starts a broker, --server names another one"
    return _one_line(text)


def _typed(command: str, name: str) -> str:
    return f"flintmq {command} {shlex.quote(name)}"


def _one_line(text: str) -> str:
    """A filter's error shows the place with a caret below it: the column says the same."""
    lines = [line.strip() for line in text.splitlines()]
    return ": ".join(line for line in lines if line.strip("^"))
