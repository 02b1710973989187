"""A flow that is watched: begun again where the machine was too busy for it, and only there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.pipeline.define.definition import Pipeline, Sink, Source
from flintmq.pipeline.define.flows import Flow
from flintmq.pipeline.run.standing import Lag
from flintmq.pipeline.run.stopping import BatchGate
from flintmq.pipeline.run.watching import LATE, TRIES_MAX, Watched

PIPELINE = Pipeline(name="p", sources={"t": Source(name="t", files="d")}, steps={}, sinks={})
FLOW = Flow(
    pipeline="p",
    name="out",
    sink=Sink(name="out", takes="t", topic="out"),
    tables=("t",),
    sources=("t",),
)

LAG = Lag(PIPELINE, FLOW, {})


def ended(why: str | None) -> Any:
    """A query that has ended, as far as it is asked."""
    error = SimpleNamespace(getMessage=lambda: why, getCause=lambda: None)
    java = SimpleNamespace(
        isActive=lambda: False,
        lastProgress=lambda: None,
        exception=lambda: SimpleNamespace(isDefined=lambda: why is not None, get=lambda: error),
    )
    return SimpleNamespace(_jsq=java, stop=lambda: None)


@pytest.mark.parametrize(
    ("whys", "begun", "error"),
    [
        ([f"{LATE} to connect back", None], 2, None),
        ([f"{LATE} to connect back"] * 20, TRIES_MAX, f"{LATE} to connect back"),
        (["disk full", None], 1, "disk full"),
    ],
)
def test_a_query_that_could_not_begin_in_time_is_begun_again_a_few_times(
    whys: list[str | None], begun: int, error: str | None
) -> None:
    queries = iter([ended(why) for why in whys])
    starts = []

    def start() -> Any:
        starts.append(1)
        return next(queries)

    watched = Watched(FLOW, start, BatchGate(), LAG)
    for _ in range(20):
        assert list(watched.news()) == []

    assert watched.has_ended()
    assert (len(starts), watched.error) == (begun, error)


def test_one_that_is_to_stop_is_not() -> None:
    query = ended(f"{LATE} to connect back")
    query._jsq.isActive = lambda: True
    watched = Watched(FLOW, lambda: query, BatchGate(), LAG)
    watched.stop_after_batch()
    query._jsq.isActive = lambda: False

    assert list(watched.news()) == []
    assert watched.has_ended()
