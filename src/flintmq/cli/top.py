"""`flintmq top`: a live view of topics and groups in the terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from threading import Thread
from time import monotonic

import click

from ..client.client import Client
from ..errors import Disconnected, OutcomeUnknown
from .connecting import Target, run_async, server_options, stats_of_groups
from .durations import Duration
from .look import console
from .shared import output_option, print_json
from .top_screen import TopSnapshot, group_lines, screen, topic_lines

TOPICS_MAX = 500
QUIT = (b"q", b"Q", b"\x03", b"\x1b")


@click.command("top")
@click.argument("pattern", default=">")
@click.option("--interval", type=Duration(), default=2.0, help="Refresh interval.  [2s]")
@click.option("--once", is_flag=True, help="Print once and exit: for scripts.")
@output_option
@server_options
def command(target: Target, pattern: str, interval: float, once: bool, output: str) -> int:
    """Live view of topics and groups with rates and lag. Press q to quit.

    The busiest topics and the groups with the largest lag come first. Rates are measured
    between two refreshes. With more than 500 topics, the busiest are refreshed each time and
    the others in turn. Use a PATTERN such as 'orders.>' to select topics. --once prints all of
    them once, as text or JSON, with the broker's ten-second rates.

    \b
    Examples:
      flintmq top
      flintmq top 'orders.>' --interval 500ms
      flintmq top --once
      flintmq top --once --output json
    """
    if output == "json" and not once:
        raise click.UsageError("--output json needs --once")
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("no terminal to draw on; use --once")
    if interval < 0.1:
        raise click.UsageError("--interval must be at least 100ms")
    if not once:
        with _keys_as_pressed():
            run_async(_watch(target, pattern, interval))
        return 0

    found = target.ask(lambda mq: look(mq, pattern))
    if output == "json":
        print_json(
            {
                "topics": [asdict(line) for line in topic_lines(found, None)],
                "groups": [asdict(line) for line in group_lines(found, None)],
            }
        )
    else:
        out = console()
        with out.capture() as printed:  # without the blanks that fill lines up
            out.print(screen(target.url, found, None, height=None))
        click.echo("\n".join(line.rstrip() for line in printed.get().rstrip().splitlines()))
    return 0


async def look(
    mq: Client, pattern: str, before: TopSnapshot | None = None, most: int = 0
) -> TopSnapshot:
    """A snapshot: of all topics, or of `most` with earlier values for the others."""
    names = await mq.topics(pattern)
    wanted = names if not most or len(names) <= most else to_look_at(names, before, most)
    topics = await mq.stats_of(wanted)
    groups = await stats_of_groups(mq, [one.name for one in topics if one.lag])
    now = monotonic()
    if before is None or len(wanted) == len(names):
        return TopSnapshot(now, topics, groups, len(names))
    left = set(names) - set(wanted)
    old = [one for one in before.topics if one.name in left]
    seen_at = {one.name: before.seen_at.get(one.name, before.at) for one in old}
    groups += [one for one in before.groups if one.topic in left]
    return TopSnapshot(now, topics + old, groups, len(names), seen_at)


def to_look_at(names: Sequence[str], before: TopSnapshot | None, most: int) -> list[str]:
    """The busiest known topics for half of the budget, then those not refreshed for longest."""
    if before is None:
        return list(names[:most])
    present = set(names)
    busiest = [one for one in topic_lines(before, None) if one.name in present]
    chosen = [one.name for one in busiest if one.in_rate + one.out_rate > 0][: most // 2]
    seen = {one.name: before.seen_at.get(one.name, before.at) for one in before.topics}
    others = sorted(present.difference(chosen), key=lambda name: (seen.get(name, 0.0), name))
    return chosen + others[: most - len(chosen)]


@contextmanager
def _keys_as_pressed() -> Iterator[None]:
    """Restores the terminal afterwards."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _watch(target: Target, pattern: str, interval: float) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def keys() -> None:
        """In a thread: the loop would make the terminal non-blocking, for its shell too."""
        while os.read(sys.stdin.fileno(), 1) not in (*QUIT, b""):
            pass
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(ended.set)

    resized = asyncio.Event()
    Thread(target=keys, daemon=True).start()
    loop.add_signal_handler(signal.SIGWINCH, resized.set)
    try:
        drawing = asyncio.ensure_future(_draw(target, pattern, interval, resized))
        leaving = asyncio.ensure_future(ended.wait())
        await asyncio.wait({drawing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if drawing.done():
            drawing.result()
        drawing.cancel()
        await asyncio.gather(drawing, leaving, return_exceptions=True)
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def _draw(target: Target, pattern: str, interval: float, resized: asyncio.Event) -> None:
    from rich.live import Live

    before: TopSnapshot | None = None
    async with target.connect(timeout=max(2.0, interval)) as mq:
        now = await look(mq, pattern, None, TOPICS_MAX)
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            while True:
                note = f"every {interval:g} s; q to quit"
                try:
                    if before is not None:
                        now = await look(mq, pattern, before, TOPICS_MAX)
                except (Disconnected, OutcomeUnknown, TimeoutError) as error:
                    note = f"no answer from the broker: {error}"
                shown = before if before is not now else None
                height = live.console.size.height
                live.update(screen(target.url, now, shown, height=height, note=note), refresh=True)
                before = now
                resized.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(resized.wait(), interval)
