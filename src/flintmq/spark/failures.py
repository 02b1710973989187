"""What went wrong in Spark, as one line: its cause, without the way it came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import FlintError

LONG = 600
DEEP = 20
TRACEBACK = "Traceback (most recent call last)"


def told_of_step(error: BaseException) -> str:
    """An error of building a frame."""
    return plain(str(error) if isinstance(error, FlintError) else _text(error))


def told_of_query(query: Any) -> str | None:
    """Why a streaming query ended; None if it was not an error."""
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    causes: list[str] = []
    cause = found.get()
    while cause is not None and len(causes) < DEEP:
        causes.append(cause.getMessage() or "")
        cause = cause.getCause()
    return plain(the_cause(causes)) or "it ended without saying why; spark.log may have more"


def the_cause(messages: Sequence[str]) -> str:
    """What went wrong, of messages each of which caused the one before. What Python says goes
    before all that Java makes of it."""
    of_python = [text for text in messages if TRACEBACK in text]
    said = [text for text in messages if text]
    return (of_python or said or [""])[-1]


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is not None:
        return str(java.getMessage())
    described = getattr(error, "desc", None)
    return f"{described or error}" or type(error).__name__


def plain(text: str) -> str:
    """The cause in a message of Spark, which may hold a traceback and the plan of a query."""
    lines = text.strip().splitlines()
    if any(TRACEBACK in line for line in lines):
        text = _last_of_traceback(lines)
    else:
        kept = []
        for line in lines:
            if not line.strip() or re.match(r"\s*(at |\+-|:-|'|~|== SQL|Driver stacktrace)", line):
                break
            kept.append(line.strip())
        text = " ".join(kept)
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    text = re.sub(r"; line \d+ pos \d+;?", "", text).strip()
    return text if len(text) <= LONG else text[: LONG - 3] + "..."


def _last_of_traceback(lines: list[str]) -> str:
    """What the exception says that ended it, with its notes."""
    start = max(number for number, line in enumerate(lines) if TRACEBACK in line)
    said: list[str] = []
    for line in lines[start + 1 :]:
        if line.startswith((" ", "\t")):
            if said:
                break
            continue
        if not line.strip() and said:
            break
        if line.strip():
            said.append(line.strip())
    text = " ".join(said)
    # Our own errors and Spark's say everything; of others the kind is a part of it.
    return re.sub(r"^(flintmq|pyspark)\.[\w.]+: ", "", text)
