"""What Spark says, as one line."""

from __future__ import annotations

import os

import pytest

from flintmq.errors import InvalidRequest
from flintmq.spark.failures import LONG, plain, the_cause
from flintmq.spark.tracebacks import HIDE, without_traceback

OF_A_SOURCE = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: Traceback (most recent call last):
  File "/site-packages/pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
    initial_offset_func(reader, outfile)
             ^^^^^^^^^^^^^^^^^^^^^^
flintmq.errors.TopicNotFound: topic 'nothere' does not exist; create it with create_topic
 SQLSTATE: 38000"""  # noqa: E501

OF_A_READER = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source reader: flintmq.errors.InvalidRequest: set the address of the broker: .option('servers', ...)
 SQLSTATE: 38000"""  # noqa: E501

OF_A_FUNCTION = """\
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "own.py", line 3, in scored
    return 1 / amount
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)"""

OF_ANALYSIS = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `valu` cannot be resolved. Did you mean one of [`value`]? SQLSTATE: 42703; line 1 pos 7;
'Project ['valu]
+- SubqueryAlias orders"""  # noqa: E501

OF_A_BATCH = """\
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "readwriter.py", line 1839, in save
    self._jwrite.save()
pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] orders/0/20 does not decode SQLSTATE: P0001"""  # noqa: E501


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (OF_A_SOURCE, "topic 'nothere' does not exist; create it with create_topic"),
        (OF_A_READER, "set the address of the broker: .option('servers', ...)"),
        (OF_A_FUNCTION, "ZeroDivisionError: division by zero"),
        (
            OF_ANALYSIS,
            "A column with name `valu` cannot be resolved. Did you mean one of [`value`]?",
        ),
        (OF_A_BATCH, "orders/0/20 does not decode"),
        ("Job aborted.\n\tat org.apache.spark.Some.thing(Some.scala:1)", "Job aborted."),
        ("", ""),
    ],
)
def test_the_cause_is_told_without_the_way_it_came(said: str, told: str) -> None:
    assert plain(said) == told


def test_what_python_says_goes_before_what_java_makes_of_it() -> None:
    assert the_cause(["Job aborted", OF_A_FUNCTION, "Connection reset"]) == OF_A_FUNCTION
    assert the_cause(["Job aborted", OF_A_READER, "Connection reset"]) == OF_A_READER
    assert the_cause(["Job aborted", "disk full", ""]) == "disk full"
    assert the_cause([]) == ""


def test_a_line_has_an_end() -> None:
    assert len(plain("x" * 10_000)) == LONG


def test_our_errors_have_no_traceback_in_a_worker_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @without_traceback
    def refused() -> None:
        raise InvalidRequest("no")

    monkeypatch.delenv(HIDE, raising=False)
    with pytest.raises(InvalidRequest):
        refused()
    assert HIDE not in os.environ, "this is no worker"
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    with pytest.raises(InvalidRequest):
        refused()
    assert os.environ[HIDE] == "1"
