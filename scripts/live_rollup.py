"""Events become results: a feed of orders, a pipeline that sums them up, and its table as it grows.

The middle of `make run`. Everything real: the orders go to the broker on the network, the pipeline
is `flintmq pipeline run examples/pipelines/rollup.toml` in a process of its own, and the table is
what it writes to a topic.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import flintmq

PIPELINE = Path(__file__).resolve().parents[1] / "examples/pipelines/rollup.toml"
ORDERS, TOTALS = "demo.orders", "demo.totals"
REGIONS = ("africa", "america", "asia", "europe")
RATE, TURN = 200, 0.05
WINDOW_SECONDS = 5
WINDOWS_SHOWN = 3
HEADER = "  window     region      orders       amount      median"
START_SECONDS = 500
"""Spark on a cold and busy machine; where it takes longer, something else is wrong."""
USUAL_SECONDS = 30
"""Within which the first result comes, where the machine has little else to do."""
TELL_SECONDS = 5.0
"""When it is first said what is waited for, where there is no terminal; then after twice as long
each time."""
CLEAR_LINE, UP = "\x1b[2K", "\x1b[{}A"


class Feed(threading.Thread):
    """Orders, as many a second as RATE says, until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(name="feed", daemon=True)
        self._url, self._over = url, threading.Event()
        self.count = 0
        self.by_window: Counter[int] = Counter()

    def run(self) -> None:
        chance = random.Random(7)
        with flintmq.connect_sync(self._url) as mq, mq.publisher(ORDERS) as publisher:
            began = time.monotonic()
            while not self._over.wait(TURN):
                for _ in range(self.count, int((time.monotonic() - began) * RATE)):
                    self.count += 1
                    at = datetime.now(UTC)
                    self.by_window[window_of(at)] += 1
                    publisher.send(an_order(self.count, chance, at))

    def stop(self) -> None:
        self._over.set()
        self.join(30)


def window_of(at: datetime) -> int:
    """When the window of a time began, in seconds since 1970."""
    return int(at.timestamp()) // WINDOW_SECONDS * WINDOW_SECONDS


def an_order(number: int, chance: random.Random, at: datetime) -> dict[str, Any]:
    region = chance.choices(REGIONS, weights=(1, 3, 4, 2))[0]
    amount = round(chance.lognormvariate(3.5, 0.6), 2)
    return {"id": number, "region": region, "amount": amount, "at": at.isoformat()}


class Pipeline:
    """The process that runs it. What it says of its progress is kept, the last of it."""

    def __init__(self, url: str, place: Path) -> None:
        given = {
            "servers": url,
            "state": str(place),
            "input": ORDERS,
            "output": TOTALS,
            "window": f"{WINDOW_SECONDS} seconds",
            "late": "1 second",
        }
        command = [sys.executable, "-m", "flintmq.cli", "pipeline", "run", str(PIPELINE)]
        command += ["--master", "local[2]", "--output", "json"]
        command += [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        self.errors: deque[str] = deque(maxlen=20)
        self.progress: dict[str, Any] = {}
        self.is_up = False
        # A session of its own: Ctrl-C is for us, and we tell the pipeline, once.
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        threading.Thread(target=self._follow, args=(self._process.stdout,), daemon=True).start()
        threading.Thread(
            target=self.errors.extend, args=(self._process.stderr,), daemon=True
        ).start()

    def _follow(self, lines: TextIO) -> None:
        for line in lines:
            said = json.loads(line)
            if said["event"] == "ready":
                self.is_up = True
            elif said["event"] == "batch" and said["flow"] == "totals":
                self.progress = said

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> int:
        """After the batch it is at."""
        if not self.has_ended:
            self._process.terminate()
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@dataclass(slots=True)
class Totals:
    """What came out so far, by window and region."""

    rows: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def take(self, row: dict[str, Any]) -> None:
        self.rows[row["since"], row["region"]] = row

    @property
    def windows(self) -> list[str]:
        return sorted({since for since, _ in self.rows})

    def by_window(self) -> Counter[int]:
        counts: Counter[int] = Counter()
        for (since, _), row in self.rows.items():
            counts[window_of(datetime.fromisoformat(since))] += row["orders"]
        return counts

    def of(self, window: str) -> list[dict[str, Any]]:
        return [self.rows[key] for key in sorted(self.rows) if key[0] == window]


def windows_of(count: int, kind: str = "") -> str:
    """How many windows, of which kind."""
    return f"{count:,} {kind}window{'' if count == 1 else 's'}"


def table(totals: Totals, feed_count: int, pipeline: Pipeline, seconds: float) -> list[str]:
    """What is shown, line by line."""
    counted = sum(row["orders"] for row in totals.rows.values())
    lines = [f"  feed      {ORDERS:14}{feed_count:>7,} published, {RATE} orders a second"]
    progress = pipeline.progress
    if not progress:
        what = "Spark is up and runs the first batch" if pipeline.is_up else "Spark is starting"
        lines.append(f"  pipeline  {'rollup':14}{what}: {seconds:.0f} s")
        when = f"the first usually comes within {USUAL_SECONDS} s"
        if seconds > USUAL_SECONDS:
            when = "the first takes longer where the machine is busy"
        lines.append(f"  results   {'':14}{when}")
        return lines
    read, batch, lag = (progress[name] for name in ("rows_in_total", "batch", "lag"))
    lines += [
        f"  pipeline  {'rollup':14}{read:>7,} read, batch {batch} in {progress['seconds']:.1f} s, "
        f"lag {lag:,}",
        f"  results   {TOTALS:14}{counted:>7,} counted, in {windows_of(len(totals.windows))} "
        f"of {WINDOW_SECONDS} s",
        "",
        HEADER,
    ]
    for window in totals.windows[-WINDOWS_SHOWN:]:
        lines += [a_row(row) for row in totals.of(window)]
    return lines


def a_row(row: dict[str, Any]) -> str:
    since = datetime.fromisoformat(row["since"]).strftime("%H:%M:%S")
    return (
        f"  {since}   {row['region']:9}{row['orders']:>9,}{row['amount']:>13,.2f}"
        f"{row['median']:>12,.2f}"
    )


class Screen:
    """The table in its place on a terminal; elsewhere, each window once it is there."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._drawn, self._told = out, 0, 0
        self._live = out.isatty()
        self._said_at, self._tell_after = time.monotonic(), TELL_SECONDS

    def show(self, lines: list[str], totals: Totals) -> None:
        if not self._live:
            self._tell(lines, totals)
            return
        width = shutil.get_terminal_size().columns
        move = UP.format(self._drawn) if self._drawn else ""
        body = "".join(f"{CLEAR_LINE}{line[:width]}\n" for line in lines)
        self._out.write(f"{move}{body}")
        self._out.flush()
        self._drawn = max(self._drawn, len(lines))

    def _tell(self, lines: list[str], totals: Totals) -> None:
        if not totals.rows:  # what it waits for, now and then
            if time.monotonic() - self._said_at > self._tell_after:
                self._said_at, self._tell_after = time.monotonic(), self._tell_after * 2
                print(lines[1], file=self._out, flush=True)
            return
        news = totals.windows[self._told :]
        if news and not self._told:
            print(HEADER, file=self._out)
        self._told += len(news)
        if len(news) > WINDOWS_SHOWN:
            before = windows_of(len(news) - WINDOWS_SHOWN, "earlier ")
            print(f"  ({before}, not shown here)", file=self._out)
        for window in news[-WINDOWS_SHOWN:]:
            print("\n".join(map(a_row, totals.of(window))), file=self._out, flush=True)


def show(url: str, seconds: float, out: TextIO = sys.stdout) -> int:
    """Run it for so long from the first result on; 0 is until Ctrl-C."""
    print(
        f"  Spark starts (its Java comes from PyPI); {RATE} orders a second wait for it ...",
        file=out,
        flush=True,
    )
    screen, totals, feed = Screen(out), Totals(), Feed(url)
    began, first = time.monotonic(), None
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-rollup-") as place,
        flintmq.connect_sync(url) as mq,
    ):
        for topic in (ORDERS, TOTALS):
            mq.create_topic(topic)
        feed.start()
        pipeline = Pipeline(url, Path(place))
        try:
            with mq.reader(TOTALS) as results:
                while not pipeline.has_ended:
                    for message in results.read_batch(100, timeout=0.25):
                        totals.take(message.decode())
                        first = first or time.monotonic()
                    now = time.monotonic()
                    screen.show(table(totals, feed.count, pipeline, now - began), totals)
                    if first is None and now - began > START_SECONDS:
                        raise SystemExit(
                            f"no result after {START_SECONDS} s: {''.join(pipeline.errors)}"
                        )
                    if seconds and first and now - first > seconds:
                        break
        except KeyboardInterrupt:
            pass
        finally:
            feed.stop()
            code = pipeline.stop()
    if code not in (0, 130):
        print(f"  the pipeline ended: {''.join(pipeline.errors).strip()}", file=sys.stderr)
        return code
    counted = totals.by_window()
    if not counted:
        print("  stopped before the first result", file=out)
        return 0
    print(f"  stopped: {verdict(counted, feed.by_window)}", file=out)
    return int(bool(wrong(counted, feed.by_window)))


def wrong(counted: Counter[int], published: Counter[int]) -> list[int]:
    """The windows in which the pipeline did not count what was published."""
    return [window for window, count in counted.items() if count != published[window]]


def verdict(counted: Counter[int], published: Counter[int]) -> str:
    if others := wrong(counted, published):
        return f"WRONG in {windows_of(len(others))} of {len(counted):,}"
    return f"{counted.total():,} orders in {windows_of(len(counted))}, each of them counted once"
