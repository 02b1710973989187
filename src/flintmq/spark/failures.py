"""The cause of an error in Spark, as one line, without traceback and query plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import FlintError

LONG = 600
DEEP = 20
OURS = re.compile(r"^.*?\bflintmq\.(?:\w+\.)*\w+: ")
"""An error of ours, and what Spark writes before it, on its first line."""
TRACEBACK = "Traceback (most recent call last)"


def error_text(error: BaseException) -> str:
    """The text of an error while a frame is built."""
    return plain(str(error) if isinstance(error, FlintError) else _text(error))


def query_error(query: Any) -> str | None:
    """The error that ended a streaming query; None if there was none."""
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    causes: list[str] = []
    cause = found.get()
    while cause is not None and len(causes) < DEEP:
        causes.append(cause.getMessage() or "")
        cause = cause.getCause()
    return plain(the_cause(causes)) or "the query ended without a reason; see spark.log"


def the_cause(messages: Sequence[str]) -> str:
    """The root cause in a chain of messages. A Python traceback wins over what Java adds to it."""
    of_python = [text for text in messages if TRACEBACK in text or OURS.search(text)]
    said = [text for text in messages if text]
    return (of_python or said or [""])[-1]


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is not None:
        return str(java.getMessage())
    described = getattr(error, "desc", None)
    return f"{described or error}" or type(error).__name__


def plain(text: str) -> str:
    """The cause in a message of Spark, which may have a traceback and a query plan in it."""
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
    text = OURS.sub("", text)
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    text = re.sub(r"; line \d+ pos \d+;?", "", text).strip()
    return text if len(text) <= LONG else text[: LONG - 3] + "..."


def _last_of_traceback(lines: list[str]) -> str:
    """The text of the exception at the end of a traceback, with its notes."""
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
    # The class of other errors is part of the message; that of ours and of Spark's is not needed.
    return re.sub(r"^(flintmq|pyspark)\.[\w.]+: ", "", text)
