"""Log lines for people and for machines.

The library only ever logs, through `event` and `limited`; where the lines go is up to whoever runs
the process. The daemon calls `configure`. A line never holds up the broker: it is queued, and a
thread writes it; where nobody reads fast enough, lines are dropped, counted and told.

Fields are for names, counts and times. Bytes are shown by their number only, so no payload gets
into a line by accident.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

from ..errors import InvalidRequest

_log = logging.getLogger(__name__)

Format = Literal["console", "json", "auto"]
FORMATS: tuple[Format, ...] = ("console", "json", "auto")

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

LIMIT_SECONDS = 10.0
"""How often a limited event is logged for one key."""

KEYS_MAX = 1024
"""How many keys a limiter tracks; a flood from many addresses must not fill the memory."""

LINES_MAX = 4096
"""How many lines wait for a slow reader before further lines are dropped."""

TEXT_CHARACTERS_MAX = 2048
"""Maximum length of a text or value that is shown."""

CLOSE_SECONDS = 2.0
"""How long the end waits for a reader that reads nothing."""

_EVENT = "flint_event"
_FIELDS = "flint_fields"
_SAFE_INTEGER = 2**53


def event(
    log: logging.Logger,
    level: int,
    name: str,
    text: str,
    /,
    *,
    exc_info: BaseException | None = None,
    **fields: object,
) -> None:
    """Log something that happened: a name for machines, a text for people, and the facts.

    The text has no place holders; what varies is in the fields, and in the text where it reads
    better so.
    """
    if log.isEnabledFor(level):
        extra = {_EVENT: name, _FIELDS: fields}
        # The text is an argument: a % in it is no place holder.
        said = Said(text, fields)
        log.log(level, "%s", said, extra=extra, exc_info=exc_info, stacklevel=2)


def limited(
    log: logging.Logger,
    level: int,
    name: str,
    key: str,
    text: str,
    /,
    *,
    amount: int = 1,
    exc_info: BaseException | None = None,
    **fields: object,
) -> None:
    """The same for what may come in floods: one line for each name and key in ten seconds.

    The next line, or one of its own where none follows, says how many (the sum of `amount`) were
    left out.
    """
    if not log.isEnabledFor(level):
        return
    with _limiter_lock:
        left_out = _limiter.admit(log.name, level, name, key, amount, now=time.monotonic())
    if left_out is None:
        return
    if left_out:
        fields["left_out"] = left_out
    extra = {_EVENT: name, _FIELDS: fields}
    log.log(level, "%s", Said(text, fields), extra=extra, exc_info=exc_info, stacklevel=2)


class Said:
    """A text with its facts behind it, for handlers that know nothing of fields: the standard
    library's own, which is in force where no logging is configured."""

    __slots__ = ("_fields", "text")

    def __init__(self, text: str, fields: Mapping[str, object]) -> None:
        self.text, self._fields = text, fields

    def __str__(self) -> str:
        try:
            shown = [(name, _quoted(_plain(value))) for name, value in self._fields.items()]
        except Exception:  # a value that cannot be shown: the text must not be lost with it
            return self.text
        facts = [f"{name}={value}" for name, value in shown if value.strip('"') not in self.text]
        return f"{self.text} ({', '.join(facts)})" if facts else self.text


def text_of(record: logging.LogRecord) -> str:
    """The text of a record without its facts, which our own formatters show by themselves."""
    args = record.args
    if isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], Said):
        return args[0].text
    return record.getMessage()


def forget_limits() -> None:
    """Begin anew with what is limited. For tests, which all run in one process."""
    with _limiter_lock:
        _limiter.overdue(math.inf)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How much of an event was left out for a key while its window was open."""

    logger: str
    level: int
    name: str
    key: str
    count: int


class Limiter:
    """Lets one event for each name and key through in a window of time, and counts the others.

    Pure: the caller brings the time. Not for several threads at once.
    """

    def __init__(self, seconds: float = LIMIT_SECONDS, keys_max: int = KEYS_MAX) -> None:
        self._seconds, self._keys_max = seconds, keys_max
        self._windows: OrderedDict[tuple[str, str], _QuietWindow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def admit(
        self, logger: str, level: int, name: str, key: str, amount: int = 1, *, now: float
    ) -> int | None:
        """None if this one is left out; else how many were since the last that was not."""
        window = self._windows.get((name, key))
        if window is None and len(self._windows) >= self._keys_max:
            self._drop_empty(now)
            if len(self._windows) >= self._keys_max:
                key = "others"  # too many to tell apart
                window = self._windows.get((name, key))
        if window is not None and now < window.ends_at:
            window.left_out += amount
            return None
        # In the order in which windows end.
        self._windows.pop((name, key), None)
        self._windows[name, key] = _QuietWindow(logger, level, now + self._seconds)
        return 0 if window is None else window.left_out

    def overdue(self, now: float) -> list[LeftOut]:
        """What was left out in windows that have ended, to be told now. Forgets those windows."""
        found = []
        while self._windows:
            (name, key), window = next(iter(self._windows.items()))
            if now < window.ends_at:
                break
            del self._windows[name, key]
            if window.left_out:
                found.append(LeftOut(window.logger, window.level, name, key, window.left_out))
        return found

    def next_end(self) -> float | None:
        """When the next window ends; None if there is none."""
        return next((window.ends_at for window in self._windows.values()), None)

    def _drop_empty(self, now: float) -> None:
        for known, window in list(self._windows.items()):
            if now >= window.ends_at and not window.left_out:
                del self._windows[known]


@dataclass(slots=True)
class _QuietWindow:
    logger: str
    level: int
    ends_at: float
    left_out: int = 0


_limiter = Limiter()
_limiter_lock = threading.Lock()


def event_of(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The name and the fields of a record. Other libraries' have no name, but may have fields."""
    named: dict[str, object] = getattr(record, _FIELDS, {})
    others = {
        name: value
        for name, value in record.__dict__.items()
        if name not in _USUAL and not name.startswith("_")
    }
    return getattr(record, _EVENT, ""), {**others, **named}


_USUAL = {
    *logging.LogRecord("", 0, "", 0, "", None, None).__dict__,
    "message",
    "asctime",
    "taskName",
    "color_message",  # uvicorn's second copy of the same text
    _EVENT,
    _FIELDS,
}


class JsonFormatter(logging.Formatter):
    """One object in one line, in ASCII: whatever a value holds, it cannot begin a line."""

    def format(self, record: logging.LogRecord) -> str:
        name, fields = event_of(record)
        line: dict[str, object] = {
            "ts": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": name,
            "message": _short(text_of(record)),
        }
        for field, value in fields.items():
            line[f"field_{field}" if field in line or field in _EXTRA else field] = _plain(value)
        if failure := _failure(record):
            line["exception"] = failure
        return json.dumps(line, ensure_ascii=True, default=str)


_EXTRA = ("exception",)


class ConsoleFormatter(logging.Formatter):
    """For people: time, level, text, then the fields; a traceback is set in below."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        name, fields = event_of(record)
        when, level, where = _when(record), f"{record.levelname.lower():<7}", record.name
        parts = [one_line(_short(text_of(record)))]
        if name:
            where = f"{where} {name}"
        for field, value in fields.items():
            shown = _quoted(_plain(value))
            parts.append(
                f"\x1b[2m{one_line(field)}=\x1b[0m{shown}"
                if self._colour
                else f"{one_line(field)}={shown}"
            )
        if self._colour:
            level = f"\x1b[{_COLOURS.get(record.levelno, '0')}m{level}\x1b[0m"
            when, where = f"\x1b[2m{when}\x1b[0m", f"\x1b[2m{where}\x1b[0m"
        line = f"{when} {level} [{where}] " + "  ".join(parts)
        if failure := _failure(record):
            rows = (one_line(row) for row in failure.split("\n"))
            line += "".join(f"\n    | {row}" for row in rows)
        return line


_COLOURS = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}


def one_line(text: str) -> str:
    """The text with everything escaped that would end a line or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _when(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_MAX]}... ({len(text):,} characters)"


def _plain(value: object) -> object:
    """A value as a line may hold it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"({len(value)} bytes)"
    if isinstance(value, Mapping):
        return {_short(str(name)): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return _short(str(value))


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if isinstance(value, str) and (not value or any(one in value for one in ' "=')):
        text = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return one_line(text)


def _failure(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")


class QueueingHandler(logging.Handler):
    """Hands lines to a thread that writes them. Never waits, whatever the reader does."""

    def __init__(self, write: Callable[[str], None], lines_max: int = LINES_MAX) -> None:
        super().__init__()
        self._write = write
        self._lines_max = lines_max
        self._lines: deque[str] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._dropped = self._under_way = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="flintmq-logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a value that cannot be shown must not harm who logs it
            line = f"a log line of {record.name} cannot be formatted: {type(error).__name__}"
        with self._changed:
            if self._is_closing or len(self._lines) >= self._lines_max:
                self._dropped += 1
                return
            self._lines.append(line)
            self._changed.notify_all()

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            with contextlib.suppress(Exception):  # nobody reads any more
                self._write("".join(f"{line}\n" for line in lines))
            with self._changed:
                self._under_way = 0
                self._changed.notify_all()

    def _next(self) -> list[str] | None:
        """What to write next; None at the end."""
        with self._changed:
            while True:
                lines = list(self._lines)
                self._lines.clear()
                if self._dropped:
                    lines.append(self._about_dropped(self._dropped))
                    self._dropped = 0
                lines.extend(self._about_left_out())
                if lines:
                    self._under_way = len(lines)
                    return lines
                if self._is_closing:
                    return None
                self._changed.wait(self._seconds_to_wait())

    def _seconds_to_wait(self) -> float | None:
        with _limiter_lock:
            end = _limiter.next_end()
        return None if end is None else max(0.01, end - time.monotonic())

    def _about_dropped(self, count: int) -> str:
        return self.format(
            _record(
                __name__,
                logging.WARNING,
                "log_lines_dropped",
                f"{count} log lines were dropped: stderr is read too slowly",
                count=count,
            )
        )

    def _about_left_out(self) -> Iterator[str]:
        now = math.inf if self._is_closing else time.monotonic()
        with _limiter_lock:
            found = _limiter.overdue(now)
        for one in found:
            yield self.format(
                _record(
                    one.logger,
                    one.level,
                    one.name,
                    f"{one.count} similar lines were suppressed",
                    key=one.key,
                    left_out=one.count,
                )
            )

    def flush(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until everything logged so far is written, but not for ever."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._under_way, seconds)

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)
        super().close()


def _record(logger: str, level: int, name: str, text: str, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord(logger, level, "", 0, text, None, None)
    setattr(record, _EVENT, name)
    setattr(record, _FIELDS, fields)
    return record


class Logs:
    """The logs of a process, as they are set up. Levels can be changed while it runs."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler
        root = logging.getLogger()
        self._level_before = root.level
        self._modules: set[str] = set()
        root.addHandler(handler)
        logging.captureWarnings(True)
        self._hooks_before = sys.excepthook, threading.excepthook
        sys.excepthook = _crashed
        threading.excepthook = _thread_crashed

    def set_levels(self, level: str, levels: Mapping[str, str] | None = None) -> None:
        """One level for everything, and others by logger: `flintmq.net.server` is that package."""
        logging.getLogger().setLevel(level_number(level))
        wanted = {name: level_number(one) for name, one in (levels or {}).items()}
        for name in self._modules - set(wanted):
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, number in wanted.items():
            logging.getLogger(name).setLevel(number)
        self._modules = set(wanted)

    def flush(self, seconds: float = CLOSE_SECONDS) -> None:
        """For ends that come at once, such as `os._exit`: write what waits, for a moment."""
        if isinstance(self._handler, QueueingHandler):
            self._handler.flush(seconds)

    def close(self) -> None:
        """Write what waits, and leave logging as it was."""
        root = logging.getLogger()
        root.removeHandler(self._handler)
        self._handler.close()
        root.setLevel(self._level_before)
        for name in self._modules:
            logging.getLogger(name).setLevel(logging.NOTSET)
        self._modules.clear()
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook = self._hooks_before


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Exception):
        event(
            _log,
            logging.CRITICAL,
            "crashed",
            "the process ends because of an unhandled error",
            exc_info=error,
        )
    else:
        sys.__excepthook__(kind, error, trace)


def _thread_crashed(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None and isinstance(told.exc_value, Exception):
        name = told.thread.name if told.thread is not None else ""
        event(
            _log,
            logging.CRITICAL,
            "thread_crashed",
            "a thread ended because of an unhandled error; please report it",
            exc_info=told.exc_value,
            thread=name,
        )


def configure(
    *,
    format: Format = "auto",
    level: str = "info",
    levels: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
    lines_max: int = LINES_MAX,
) -> Logs:
    """Have everything this process logs written to a stream, stderr by default.

    `auto` is console on a terminal and JSON elsewhere. For whoever owns the process: the daemon
    does, a library does not.
    """
    if format not in FORMATS:
        raise InvalidRequest(f"log format must be {' or '.join(FORMATS)}, not {format!r}")
    stream = sys.stderr if stream is None else stream
    handler: logging.Handler
    if stream is None:  # the process was started without one
        handler = logging.NullHandler()
    else:
        is_terminal = stream.isatty()
        handler = QueueingHandler(_writer_to(stream), lines_max)
        if format == "json" or (format == "auto" and not is_terminal):
            handler.setFormatter(JsonFormatter())
        else:
            colour = is_terminal and not os.environ.get("NO_COLOR")
            handler.setFormatter(ConsoleFormatter(colour=colour))
    logs = Logs(handler)
    try:
        logs.set_levels(level, levels)
    except BaseException:
        logs.close()
        raise
    return logs


def level_number(text: str) -> int:
    number = LEVELS.get(text.lower())
    if number is None:
        raise InvalidRequest(f"log level must be {', '.join(LEVELS)}, not {text!r}")
    return number


def _writer_to(stream: TextIO) -> Callable[[str], None]:
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):

        def write(text: str) -> None:
            stream.write(text)
            stream.flush()

        return write

    def write_bytes(text: str) -> None:
        # Not through the stream: it would lose its place where the other side has made the
        # descriptor non-blocking, as a terminal that is shared may be.
        left: Any = memoryview(text.encode(errors="backslashreplace"))
        while left:
            try:
                left = left[os.write(number, left) :]
            except BlockingIOError:
                select.select([], [number], [])

    return write_bytes
