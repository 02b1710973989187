"""How the handlers of an app are doing: counts that people, health checks and Prometheus read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..observe.metrics import LONG_SECONDS, Histogram


class HandlerFigures(msgspec.Struct, kw_only=True):
    """One handler at one moment. `dead` counts those of `failed` that became dead letters."""

    name: str
    kind: str
    topic: str
    group: str
    running: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    seconds: float = 0.0
    """The time that all calls took together."""
    buckets: list[int] = []
    """How many calls took at most each of `LONG_SECONDS`; the last is beyond all of them."""


class HandlerMeter:
    """Counts the calls of one handler."""

    def __init__(self, name: str, kind: str, topic: str, group: str) -> None:
        self.now = HandlerFigures(name=name, kind=kind, topic=topic, group=group)
        self._took = Histogram(LONG_SECONDS)

    def ended(self, seconds: float, count: int = 1) -> None:
        self.now.done += count
        self._took.observe(seconds)

    def fell(self, seconds: float, *, is_dead: bool, count: int = 1) -> None:
        self.now.failed += count
        self.now.dead += count if is_dead else 0
        self._took.observe(seconds)

    def figures(self) -> HandlerFigures:
        took = self._took
        return msgspec.structs.replace(self.now, seconds=took.total, buckets=list(took.counts))


def added(many: Iterable[HandlerFigures]) -> list[HandlerFigures]:
    """The figures of several processes, by handler."""
    sums: dict[tuple[str, str], HandlerFigures] = {}
    for one in many:
        known = sums.get((one.kind, one.name))
        if known is None:
            sums[one.kind, one.name] = msgspec.structs.replace(one, buckets=list(one.buckets))
            continue
        for field in ("running", "done", "failed", "dead", "seconds"):
            setattr(known, field, getattr(known, field) + getattr(one, field))
        known.buckets = [a + b for a, b in zip(known.buckets, one.buckets, strict=True)]
    return list(sums.values())


def prometheus_text(handlers: Iterable[HandlerFigures], processes: int, restarts: int) -> str:
    """The figures as Prometheus reads them."""
    handlers = list(handlers)
    lines = [
        "# TYPE flintmq_worker_processes gauge",
        f"flintmq_worker_processes {processes}",
        "# TYPE flintmq_worker_restarts_total counter",
        f"flintmq_worker_restarts_total {restarts}",
    ]
    for name, kind in (("done", "counter"), ("failed", "counter"), ("dead", "counter")):
        lines.append(f"# TYPE flintmq_handler_{name}_total {kind}")
        lines += [
            f"flintmq_handler_{name}_total{{{_labels(one)}}} {getattr(one, name)}"
            for one in handlers
        ]
    lines.append("# TYPE flintmq_handler_running gauge")
    lines += [f"flintmq_handler_running{{{_labels(one)}}} {one.running}" for one in handlers]
    lines.append("# TYPE flintmq_handler_seconds histogram")
    for one in handlers:
        total = 0
        for bound, count in zip([*LONG_SECONDS, "+Inf"], one.buckets, strict=True):
            total += count
            lines.append(f'flintmq_handler_seconds_bucket{{{_labels(one)},le="{bound}"}} {total}')
        lines.append(f"flintmq_handler_seconds_sum{{{_labels(one)}}} {one.seconds:.6f}")
        lines.append(f"flintmq_handler_seconds_count{{{_labels(one)}}} {total}")
    return "\n".join(lines) + "\n"


def _labels(one: HandlerFigures) -> str:
    return f'handler="{_quoted(one.name)}",kind="{one.kind}",topic="{_quoted(one.topic)}"'


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
