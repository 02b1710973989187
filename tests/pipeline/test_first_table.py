"""The page of a first table shows what happens today."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from .an_hour import PAGE, masked, typed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_new_user_gets_from_a_topic_to_a_table_that_others_query() -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    page = PAGE.read_text()
    assert "(exit code" not in page
    assert masked(typed(page)) == masked(page), "run python -m tests.pipeline.an_hour"
