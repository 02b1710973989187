"""Errors as shown on the command line: one line, with the command to run next. Pure.

The library's texts name its methods; here they name commands.
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
        make = f"`{_typed('topic add', error.topic)}` creates it"
        text = f"topic {error.topic!r} does not exist; `flintmq topic ls` lists topics, {make}"
    elif isinstance(error, TopicExists):
        change = f"change options with `{_typed('topic edit', error.topic)}`"
        text = text.replace("change options with configure_topic", change)
    elif isinstance(error, GroupNotFound):
        known = f"`{_typed('group ls', error.topic)}` lists its groups"
        text = f"topic {error.topic!r} has no group {error.group!r}; {known}"
    elif isinstance(error, NotAuthenticated):
        text = text.replace("as api_key=", "with --api-key-file")
    elif isinstance(error, Disconnected) and not isinstance(error, TlsFailed):
        text += (
            "; is a broker running there? Start one with `flintmq serve`, or name another with "
            "--server"
        )
    return _one_line(text)


def _typed(command: str, name: str) -> str:
    return f"flintmq {command} {shlex.quote(name)}"


def _one_line(text: str) -> str:
    """A filter's error marks the place with a caret on the next line; the column says the same."""
    lines = [line.strip() for line in text.splitlines()]
    return ": ".join(line for line in lines if line.strip("^"))
