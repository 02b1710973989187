"""What people see: tables and bars by rich on a terminal, plain text in a pipe."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from flintmq.cli import look
from flintmq.cli.bench_chart import print_bars
from flintmq.cli.latencies import Latencies

from .conftest import Shell

LONG = "orders." * 15 + "end"


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What something prints to a terminal of 80 columns that knows colours."""

    def printed(draw: Callable[[], None], **environment: str) -> str:
        out = io.StringIO()
        with monkeypatch.context() as patch:
            for name, value in {"TERM": "xterm", "COLUMNS": "80", **environment}.items():
                patch.setenv(name, value)
            patch.setattr(out, "isatty", lambda: True)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out)
            draw()
        return out.getvalue()

    return printed


def test_a_table_on_a_terminal_has_colours_and_cuts_nothing_off(
    on_terminal: Callable[..., str],
) -> None:
    rows = [("orders", 1_234, "[red]3 s"), (LONG, 5, "4 s")]
    text = on_terminal(lambda: look.print_table(["TOPIC", "COUNT", "AGE"], rows))
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert "\x1b[36m" in text
    assert max(map(len, plain.splitlines())) <= 80
    assert LONG in "".join(line.split(" ")[0] for line in plain.splitlines()[2:])
    assert "[red]3 s" in plain
    assert re.search(r" +5  4 s", plain), "numbers are on the right"


def test_no_color_is_heeded(on_terminal: Callable[..., str]) -> None:
    text = on_terminal(lambda: look.print_facts({"topic": "orders"}, "  "), NO_COLOR="1")
    assert "\x1b[36m" not in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text).rstrip() == "  topic  orders"


def test_a_table_in_a_pipe_is_plain_and_as_wide_as_it_needs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    look.print_table(["TOPIC", "COUNT"], [("orders", 12), (LONG, 5)])
    look.print_facts({"name": "orders", "id": 7}, "  ")
    width = len(LONG)
    assert capfd.readouterr().out.splitlines() == [
        f"{'TOPIC':{width}}  COUNT",
        f"{'orders':{width}}  12",
        f"{LONG}  5",
        "  name  orders",
        "  id    7",
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_progress_fits_the_terminal(width: int) -> None:
    out = Console(width=width, file=io.StringIO())
    with out.capture() as drawn:
        out.print(look.progress("copied", 900_000_000, 10**10, 200.0))
    assert max(map(len, drawn.get().splitlines())) <= width
    with out.capture() as drawn:
        out.print(look.progress("copied", 7, None, 0.1))
    assert drawn.get().split() == ["copied", "7"]


def test_progress_says_how_far_how_fast_and_how_long() -> None:
    out = Console(width=100, file=io.StringIO())
    with out.capture() as drawn:
        out.print(look.progress("copied", 500, 1000, 2.0))
    assert re.fullmatch(r"copied  \S+ +50%  500 of 1,000  250/s  2 s left\s*", drawn.get())


def test_what_is_being_done_is_gone_when_it_is_done(on_terminal: Callable[..., str]) -> None:
    def work() -> None:
        bar = look.ProgressBar("copied", 10)
        bar.show(5)
        look.say("checking the rest")
        bar.clear()

    text = on_terminal(work)
    assert "50%" in text
    assert "checking the rest" in text
    assert text.endswith(("\x1b[2K", "\x1b[?25h", "\r\x1b[1A\x1b[2K"))


def test_nobody_is_told_of_progress_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    bar = look.ProgressBar("copied", 10)
    bar.show(5)
    look.say("checking")
    bar.clear()
    assert capfd.readouterr() == ("", "")


def test_latencies_are_bars(
    on_terminal: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    times = Latencies()
    for microseconds in (500, 600, 1500):
        times.add(microseconds)
    assert "█" in on_terminal(lambda: print_bars(times))
    capfd.readouterr()
    print_bars(times)
    assert f"{'#' * 40}  2\n" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["--help", "pub orders x", "topic ls", "sub orders"])
def test_a_pipe_does_not_wait_for_rich(shell: Shell, server: str, typed: str) -> None:
    shell("pub", "orders", "x")
    program = (
        "import sys\nfrom flintmq.cli.root import run\n"
        f"code = run({typed.split()!r})\n"
        "assert code == 0 and 'rich' not in sys.modules, code\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path("/")
    )
    assert done.returncode == 0, done.stderr
