"""`flintmq check`: health check with exit codes for monitoring."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import monotonic

import click

from ..amounts import age, precise
from ..client.client import Client
from ..errors import FlintError
from .connecting import Target, server_options
from .durations import Duration
from .names import GROUP, TOPIC
from .remedies import told
from .shared import output_option, show

OK, WARN, BAD = "ok", "warning", "critical"
CODES = {OK: 0, WARN: 1, BAD: 2}


@dataclass(frozen=True, slots=True)
class CheckResult:
    verdict: str
    text: str


def judged(
    what: str, value: float, shown: str, warn: float | None, bad: float | None
) -> CheckResult:
    """Compare a value with its two limits."""
    if bad is not None and value > bad:
        return CheckResult(BAD, f"{what} is {shown}, limit {bad:g}")
    if warn is not None and value > warn:
        return CheckResult(WARN, f"{what} is {shown}, limit {warn:g}")
    return CheckResult(OK, f"{what} is {shown}")


@click.command("check")
@click.argument("topic", type=TOPIC, required=False)
@click.argument("group", type=GROUP, required=False)
@click.option(
    "--timeout", type=Duration(), default=5.0, help="Maximum time to wait for the broker."
)
@click.option("--lag-warn", type=click.IntRange(min=0), help="Messages the group has not settled.")
@click.option("--lag-critical", type=click.IntRange(min=0))
@click.option("--age-warn", type=Duration(), help="Age of the oldest message not settled.")
@click.option("--age-critical", type=Duration())
@click.option("--dead-warn", type=click.IntRange(min=0), help="Number of dead letters.")
@click.option("--dead-critical", type=click.IntRange(min=0))
@output_option
@server_options
def command(
    target: Target,
    topic: str | None,
    group: str | None,
    timeout: float,
    lag_warn: int | None,
    lag_critical: int | None,
    age_warn: float | None,
    age_critical: float | None,
    dead_warn: int | None,
    dead_critical: int | None,
    output: str,
) -> int:
    """Check that a broker answers, that TOPIC exists, and that GROUP keeps up.

    Exit codes follow the convention of monitoring plugins: 0 ok, 1 warning, 2 critical (or
    wrong usage).

    \b
    Examples:
      flintmq check
      flintmq check orders
      flintmq check orders billing --lag-warn 1000 --lag-critical 10000 --age-critical 10m
    """
    limits = (lag_warn, lag_critical, age_warn, age_critical, dead_warn, dead_critical)
    if group is None and any(limit is not None for limit in limits):
        raise click.UsageError("limits apply to a group: pass TOPIC and GROUP")

    began = monotonic()

    async def work(mq: Client) -> list[CheckResult]:
        await mq.topics("flint.check")  # any request will do
        found = [CheckResult(OK, f"the broker answered in {precise(monotonic() - began)}")]
        if topic is not None:
            stats = await mq.topic_stats(topic)
            found.append(CheckResult(OK, f"{topic} has {stats.message_count:,} messages"))
        if topic is not None and group is not None:
            found += await _group(mq, topic, group)
        return found

    async def _group(mq: Client, topic: str, group: str) -> list[CheckResult]:
        stats = await mq.group_stats(topic, group)
        oldest = stats.oldest_age or 0.0
        return [
            judged(f"lag of {group}", stats.lag, f"{stats.lag:,}", lag_warn, lag_critical),
            judged("age of the oldest message", oldest, age(oldest), age_warn, age_critical),
            judged(
                f"number of dead letters of {group}",
                stats.dead_letters,
                f"{stats.dead_letters:,}",
                dead_warn,
                dead_critical,
            ),
            *([CheckResult(WARN, f"{group} is paused")] if stats.paused else []),
        ]

    try:
        found = target.ask(work, timeout=timeout)
    except FlintError as error:
        found = [CheckResult(BAD, told(error))]
    worst = max((finding.verdict for finding in found), key=CODES.__getitem__)
    show(
        output,
        {"verdict": worst, "findings": [asdict(finding) for finding in found]},
        "\n".join(f"{finding.verdict.upper()}: {finding.text}" for finding in found),
    )
    return CODES[worst]
