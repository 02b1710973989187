"""How a line looks, and that nothing in it can pass for another."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintmq.errors import InvalidRequest
from flintmq.observe.logs import (
    ConsoleFormatter,
    Format,
    JsonFormatter,
    Logs,
    configure,
    event,
    limited,
)

log = logging.getLogger("flintmq.tests.lines")

HOSTILE = "a\nb\rc\x1b[31md\u2028e\x85f\u202eg\x00"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Told = Callable[[], list[str]]


@pytest.fixture
def opened() -> Iterator[Callable[..., Told]]:
    """Begins to log, and returns what gives the lines."""
    logs: list[Logs] = []

    def begin(format: Format = "json", **options: object) -> Told:
        stream = io.StringIO()
        logs.append(configure(format=format, stream=stream, **options))  # type: ignore[arg-type]

        def told() -> list[str]:
            logs[-1].flush()
            return stream.getvalue().split("\n")[:-1]

        return told

    yield begin
    for one in logs:
        one.close()


def test_a_json_line_has_time_level_logger_event_message_and_fields(
    opened: Callable[..., Told],
) -> None:
    told = opened()
    event(log, logging.INFO, "recovered", "all is 100% there", topics=3, path=Path("/x"), s=0.25)

    (line,) = map(json.loads, told())
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "flintmq.tests.lines",
        "event": "recovered",
        "message": "all is 100% there",
        "topics": 3,
        "path": "/x",
        "s": 0.25,
    }


def test_a_console_line_shows_fields_as_key_and_value(opened: Callable[..., Told]) -> None:
    told = opened("console")
    event(log, logging.WARNING, "slow_disk", "a sync took long", seconds=1.5, why="two words")

    (line,) = told()
    assert "warning [flintmq.tests.lines slow_disk] a sync took long" in line
    assert line.endswith('seconds=1.5  why="two words"')


@pytest.mark.parametrize("format", ["json", "console"])
def test_control_characters_in_text_and_values_cannot_forge_a_line(
    opened: Callable[..., Told], format: Format
) -> None:
    told = opened(format)
    event(log, logging.INFO, "x", HOSTILE, field=HOSTILE, many=[HOSTILE], named={HOSTILE: HOSTILE})
    log.info("%s", HOSTILE, extra={"given": HOSTILE})

    lines = told()
    assert len(lines) == 2
    for line in lines:
        assert line.isprintable()


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter()])
def test_half_a_character_can_be_written_too(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "a\ud800b", None, None)

    assert "\\ud800" in formatter.format(record)
    formatter.format(record).encode()


def test_a_traceback_is_set_in_so_that_no_row_of_it_looks_like_a_line(
    opened: Callable[..., Told],
) -> None:
    told = opened("console")
    try:
        raise ValueError("2026-01-01T00:00:00.000Z error\n2026-01-01T00:00:00.000Z forged")
    except ValueError as error:
        event(log, logging.ERROR, "failed", "it failed", exc_info=error)

    first, *rows = told()
    assert "it failed" in first
    assert rows
    assert all(row.startswith("    | ") for row in rows)


def test_bytes_are_shown_by_their_number_only(opened: Callable[..., Told]) -> None:
    told = opened()
    event(log, logging.INFO, "x", "y", value=b"MARKED", views=[memoryview(b"MARKED")])

    (line,) = told()
    assert "MARKED" not in line
    assert json.loads(line)["value"] == "(6 bytes)"


def test_a_field_cannot_replace_what_every_line_has(opened: Callable[..., Told]) -> None:
    told = opened()
    event(log, logging.INFO, "x", "y", level="none", logger="other")

    line = json.loads(told()[0])
    assert (line["level"], line["field_level"]) == ("info", "none")
    assert (line["logger"], line["field_logger"]) == ("flintmq.tests.lines", "other")


def test_a_value_that_cannot_be_shown_does_no_harm(opened: Callable[..., Told]) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    told = opened()
    event(log, logging.INFO, "x", "y", bad=Bad())

    assert told() == ["a log line of flintmq.tests.lines cannot be formatted: RuntimeError"]


def test_long_values_are_cut(opened: Callable[..., Told]) -> None:
    told = opened()
    event(log, logging.INFO, "x", "y", long="z" * 1_000_000)

    assert len(told()[0]) < 4_000


def test_levels_by_module_can_be_changed_and_taken_back(opened: Callable[..., Told]) -> None:
    stream = io.StringIO()
    logs = configure(level="warning", levels={"flintmq.tests": "debug"}, stream=stream)
    try:
        assert log.isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("flintmq.other").isEnabledFor(logging.INFO)
        logs.set_levels("info", {"flintmq.other": "error"})
        assert not log.isEnabledFor(logging.DEBUG)
        assert log.isEnabledFor(logging.INFO)
        assert not logging.getLogger("flintmq.other").isEnabledFor(logging.WARNING)
    finally:
        logs.close()
    assert logging.getLogger("flintmq.other").level == logging.NOTSET


def test_a_level_or_format_that_does_not_exist_is_refused() -> None:
    handlers = logging.getLogger().handlers[:]
    with pytest.raises(InvalidRequest, match="log level must be debug"):
        configure(level="loud", stream=io.StringIO())
    with pytest.raises(InvalidRequest, match="log format must be console"):
        configure(format="xml", stream=io.StringIO())  # type: ignore[arg-type]
    assert logging.getLogger().handlers == handlers


def test_auto_is_console_with_colours_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, begin in ((Terminal(), "\x1b[2m"), (io.StringIO(), '{"ts"')):
        logs = configure(stream=stream)
        event(log, logging.INFO, "x", "y", z=1)
        logs.close()
        assert stream.getvalue().startswith(begin)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    logs = configure(stream=plain)
    event(log, logging.INFO, "x", "y")
    logs.close()
    assert "\x1b" not in plain.getvalue()


def test_what_was_left_out_is_told_at_the_end_at_the_latest() -> None:
    stream = io.StringIO()
    logs = configure(format="json", stream=stream)
    for _ in range(5):
        limited(log, logging.WARNING, "login_refused", "peer-9", "a login failed", peer="peer-9")
    logs.close()

    first, last = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "a login failed"
    assert (last["event"], last["left_out"], last["key"]) == ("login_refused", 4, "peer-9")


def test_without_any_logging_configured_a_warning_still_carries_its_facts() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import logging; from flintmq.observe.logs import event; "
            "event(logging.getLogger('flintmq.x'), logging.WARNING, 'dead_letters', "
            "'2 messages are dead letters now', topic='jobs', group='the workers', count=2)",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stderr == '2 messages are dead letters now (topic=jobs, group="the workers")\n'
