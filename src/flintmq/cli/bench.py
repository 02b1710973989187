"""`flintmq bench`: measure a broker. Uses its own topics and deletes them at the end."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from ..amounts import many, precise, size
from ..errors import TopicNotFound
from ..fsync_policy import POLICIES, FsyncPolicy
from .bench_chart import check_chart, print_bars, svg, write_chart
from .bench_processes import Processes, first_of
from .bench_workloads import STAMP, WORKLOADS, BenchPlan, BenchRun, Side, lost_in_queues
from .connecting import Target, run_async, server_options
from .durations import Duration, Size
from .latencies import Latencies
from .look import ProgressBar, print_table
from .shared import output_option, print_json

MESSAGES = {"latency": 1000}
WITH_SUBSCRIBERS = ("sub", "pubsub", "queue")


@click.command("bench")
@click.argument("workload", type=click.Choice(list(WORKLOADS)))
@click.option("--publishers", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--subscribers", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--topics", type=click.IntRange(1, 10_000), default=1, show_default=True)
@click.option(
    "--messages", type=click.IntRange(min=1), help="Messages to publish.  [100,000; latency: 1,000]"
)
@click.option("--msg-size", type=Size(most=1 << 26), default=128, show_default=True)
@click.option(
    "--batch", type=click.IntRange(1, 100_000), default=1, help="Messages per publish. [1]"
)
@click.option(
    "--qos", type=click.IntRange(0, 1), default=1, help="0: live subscribers only, not stored.  [1]"
)
@click.option("--in-flight", type=click.IntRange(1, 10_000), default=64, show_default=True)
@click.option(
    "--durability",
    metavar="HOW",
    help=f"memory or durable. With --in-process also an fsync policy: {POLICIES}.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    help="Spread publishers and subscribers over N client processes.  [1]",
)
@click.option("--in-process", is_flag=True, help="Run a broker in this process; needs no server.")
@click.option("--duration", type=Duration(), help="Publish for this long, instead of --messages.")
@click.option(
    "--chart", type=click.Path(dir_okay=False, path_type=Path), help="Write a chart (.svg or .png)."
)
@output_option
@server_options
def command(
    target: Target,
    workload: str,
    publishers: int,
    subscribers: int,
    topics: int,
    messages: int | None,
    msg_size: int,
    batch: int,
    qos: int,
    in_flight: int,
    durability: str | None,
    processes: int,
    in_process: bool,
    duration: float | None,
    chart: Path | None,
    output: str,
) -> int:
    """Measure a broker: throughput and latency.

    pub publishes; sub reads messages published before; pubsub does both at once; queue consumes
    and acknowledges through a group; latency sends one message at a time. Each publisher keeps
    --in-flight calls pending. All clients run in one process, which is often the bottleneck;
    use --processes to spread them over several. `publish` is the time from the call to the
    acknowledgement, `delivery` from the call until the message is received.

    \b
    Examples:
      flintmq bench pub
      flintmq bench pubsub --publishers 4 --subscribers 4 --topics 4 --batch 100
      flintmq bench pubsub --publishers 2 --subscribers 2 --processes 2
      flintmq bench queue --messages 20000 --subscribers 2
      flintmq bench latency --durability memory --chart latency.svg
      flintmq bench pub --in-process --durability always --duration 10s --output json
    """
    if workload not in ("pub", "sub") and msg_size < STAMP:
        raise click.UsageError(
            f"--msg-size must be at least {STAMP} here: each message carries a timestamp"
        )
    if qos == 0 and workload in ("sub", "queue"):
        raise click.UsageError(f"{workload} reads stored messages: use --qos 1")
    if chart is not None:
        if chart.suffix not in (".svg", ".png"):
            raise click.UsageError("--chart must end in .svg or .png")
        check_chart(chart)
    if processes > 1 and (in_process or workload == "latency"):
        raise click.UsageError("--processes needs a running broker, and does not work with latency")
    if workload == "latency":
        publishers = subscribers = in_flight = batch = 1
    how = _durability(durability, in_process)
    plan = BenchPlan(
        workload,
        publishers,
        subscribers,
        [f"bench.{os.getpid()}.{number}" for number in range(topics)],
        messages or MESSAGES.get(workload, 100_000),
        msg_size,
        batch,
        qos,
        in_flight,
        duration,
    )
    bar = ProgressBar(workload, None if duration is not None else plan.messages)
    run = BenchRun(plan, bar.show)
    run.processes = processes
    with ExitStack() as stack:
        keywords: dict[str, Any] = {}
        if in_process:
            target = Target("memory://", {})
            if how != "memory":
                directory = stack.enter_context(tempfile.TemporaryDirectory())
                target = Target(f"file://{directory}", {"fsync": how})
        else:
            keywords["storage"] = how
        near = target.url.startswith(("memory:", "file:"))
        if near and processes > 1:
            raise click.UsageError(
                "--processes needs a running broker: only one process can open a directory"
            )
        try:
            if near:
                run_async(_measure(run, target, keywords))
            else:
                run_async(_make(target, plan.topics, keywords))
                stack.callback(lambda: run_async(_delete(target, plan.topics)))
                if processes == 1:
                    run_async(_work(run, target=target))
                else:
                    work = functools.partial(_work, target=target)
                    Processes(run, processes, work, bar.show).measure()
        except KeyboardInterrupt:
            bar.clear()
            if run.published.count:
                _tell(run, output, "interrupted")
            raise
        except ExceptionGroup as several:
            bar.clear()
            raise first_of(several) from None
        finally:
            bar.clear()
    if workload == "queue":
        run.lost = lost_in_queues(run)
    _tell(run, output, "done")
    if chart is not None:
        write_chart(chart, svg(f"flintmq bench {workload}", _summary(run), _times(run)))
    return 1 if run.lost else 0


def _durability(said: str | None, in_process: bool) -> str:
    if in_process:
        how = {None: "memory", "durable": "always"}.get(said, said)
        if how != "memory":
            FsyncPolicy.parse(how or "")
        return how or "memory"
    if said not in (None, "memory", "durable"):
        raise click.UsageError(
            f"--durability {said}: a running broker decides by its own --fsync; use memory "
            "or durable, or add --in-process"
        )
    return said or "durable"


async def _make(target: Target, topics: Sequence[str], options: dict[str, Any]) -> None:
    async with target.connect() as mq:
        for topic in topics:
            await mq.create_topic(topic, **options)


async def _delete(target: Target, topics: Sequence[str]) -> None:
    """The topics that were created; an early end may come before the last one."""
    async with target.connect() as mq:
        for topic in topics:
            with suppress(TopicNotFound):
                await mq.delete_topic(topic)


async def _work(run: BenchRun, *, target: Target) -> None:
    """The publishers and subscribers of one process; each has its own connection."""
    plan = run.plan
    wanted = plan.subscribers if plan.workload != "pub" else 0
    async with AsyncExitStack() as stack:
        mqs = [
            await stack.enter_async_context(target.connect())
            for _ in range(plan.publishers + wanted)
        ]
        await WORKLOADS[plan.workload](run, mqs[: plan.publishers], mqs[plan.publishers :])


async def _measure(run: BenchRun, target: Target, options: dict[str, Any]) -> None:
    """A broker in this process: all share one connection, and the broker ends with it."""
    plan = run.plan
    async with target.connect(makes=True) as mq:
        for topic in plan.topics:
            await mq.create_topic(topic, **options)
        try:
            theirs = [] if plan.workload == "pub" else [mq] * plan.subscribers
            await WORKLOADS[plan.workload](run, [mq] * plan.publishers, theirs)
        finally:
            for topic in plan.topics:
                await mq.delete_topic(topic)


# --- what came of it


def _times(run: BenchRun) -> dict[str, Latencies]:
    both = {"publish": run.published.times, "delivery": run.received.times}
    if run.plan.workload == "sub":
        both.pop("publish")  # that only filled the topics
    return {name: times for name, times in both.items() if times.count}


def _summary(run: BenchRun) -> list[str]:
    plan = run.plan
    words = [f"messages of {plan.size:,} B", many(plan.publishers, "publisher")]
    if plan.workload in WITH_SUBSCRIBERS:
        words.append(many(plan.subscribers, "subscriber"))
    words.append(many(len(plan.topics), "topic"))
    if run.processes > 1:
        words.append(f"{run.processes} processes")
    more = [
        f"batches of {plan.batch:,}",
        f"{plan.in_flight:,} in flight",
        f"QoS {plan.qos}",
        run.durability or "nothing stored",
    ]
    lines = [", ".join(words), ", ".join(more)]
    for name, side in (("published", run.published), ("received", run.received)):
        if side.count:
            speed = size(side.count * plan.size / side.seconds)
            rate = f"{side.count / side.seconds:,.0f} msg/s, {speed}/s"
            name = "filled with" if run.plan.workload == "sub" and name == "published" else name
            lines.append(f"{name} {side.count:,} in {side.seconds:.2f} s: {rate}")
    if run.lost:
        lines.append(f"lost: {run.lost:,} messages were published but not received")
    return lines


def _side(side: Side, size: int) -> dict[str, Any] | None:
    if not side.count:
        return None
    times = {name: round(value, 1) for name, value in side.times.figures().items()}
    return {
        "count": side.count,
        "seconds": round(side.seconds, 6),
        "per_second": round(side.count / side.seconds, 1),
        "bytes_per_second": round(side.count * size / side.seconds),
        "microseconds": times if side.times.count else None,
    }


def _tell(run: BenchRun, output: str, ended: str) -> None:
    plan = run.plan
    if output == "json":
        print_json(
            {
                "workload": plan.workload,
                "publishers": plan.publishers,
                "subscribers": plan.subscribers if plan.workload != "pub" else 0,
                "topics": len(plan.topics),
                "processes": run.processes,
                "msg_size": plan.size,
                "batch": plan.batch,
                "qos": plan.qos,
                "in_flight": plan.in_flight,
                "durability": run.durability,
                "published": _side(run.published, plan.size),
                "received": _side(run.received, plan.size),
                "lost": run.lost,
                "histogram_microseconds": {
                    name: [[bound, count] for bound, count in times.histogram()]
                    for name, times in _times(run).items()
                },
                "ended": ended,
            }
        )
        return
    for line in _summary(run):
        click.echo(line)
    found = _times(run)
    if not found:
        return
    click.echo()
    figures = {name: times.figures() for name, times in found.items()}
    names = list(next(iter(figures.values()), {}))
    print_table(
        ["LATENCY", *names],
        [(name, *(precise(one[at] / 1e6) for at in names)) for name, one in figures.items()],
    )
    for name, times in found.items():
        click.echo(f"\n{name}")
        print_bars(times)
