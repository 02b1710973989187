"""The figures of pipelines as Prometheus reads them."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from flintmq.errors import InvalidRequest
from flintmq.pipeline.run.metrics import PipelineMetrics, served
from flintmq.pipeline.run.watching import FlowProgress, broken_of

BATCH = FlowProgress(
    flow="totals", batch=3, rows_in=10, rows_out=4, seconds=0.5, rows_per_second=20.0, lag=7,
    state_rows=None, state_bytes=None, watermark=None, rows_in_total=99, rows_out_total=44,
    broken={'orders.po"s': 2},
)  # fmt: skip


def test_counters_add_up_over_restarts_and_gauges_are_the_last() -> None:
    metrics = PipelineMetrics(now=lambda: 1_700_000_000.25)
    metrics.began("p")
    metrics.progress("p", BATCH)
    metrics.restarted("p")
    metrics.progress("p", replace(BATCH, lag=0, rows_in_total=10, broken={}))
    metrics.ended("p")

    lines = metrics.page().splitlines()
    assert set(lines) >= {
        'flintmq_pipeline_up{pipeline="p"} 0',
        'flintmq_pipeline_restarts_total{pipeline="p"} 1',
        'flintmq_pipeline_batches_total{pipeline="p",flow="totals"} 2',
        'flintmq_pipeline_rows_in_total{pipeline="p",flow="totals"} 20',
        'flintmq_pipeline_rows_out_total{pipeline="p",flow="totals"} 8',
        'flintmq_pipeline_lag{pipeline="p",flow="totals"} 0',
        'flintmq_pipeline_batch_end_timestamp_seconds{pipeline="p",flow="totals"} 1700000000.25',
        'flintmq_pipeline_expectations_broken_total'
        '{pipeline="p",flow="totals",rule="orders.po\\"s"} 2',
    }  # fmt: skip
    assert "# TYPE flintmq_pipeline_rows_in_total counter" in lines
    assert not any("state_rows" in line for line in lines), "it has no state"


def test_the_page_is_served_where_it_was_asked_for() -> None:
    metrics = PipelineMetrics()
    metrics.began("p")
    with served(metrics, "127.0.0.1:0") as place:
        with urllib.request.urlopen(f"http://{place}/metrics") as answer:
            assert answer.read().decode() == metrics.page()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://{place}/")
        refused.value.close()
        with pytest.raises(InvalidRequest, match="cannot listen on"), served(metrics, place):
            pass
    with pytest.raises(InvalidRequest, match="--metrics must be"), served(metrics, "a:b:c/"):
        pass


def test_counts_of_rules_are_told_from_other_metrics() -> None:
    observed = {
        "flintmq_rows": {"rows": 5},
        "flintmq_broken.orders": {"positive": 2, "known": None},
    }

    assert broken_of(observed) == {"orders.positive": 2, "orders.known": 0}
