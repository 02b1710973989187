"""Many pipelines side by side: one that fails does not end the others."""

from __future__ import annotations

import pytest

from flintmq.errors import InvalidRequest
from flintmq.pipeline.run.running import Outcome
from flintmq.pipeline.run.stopping import Stop
from flintmq.pipeline.run.together import run_together

DONE = Outcome(pipeline="good", ended="done", seconds=1.0, flows={})


def fail() -> Outcome:
    raise InvalidRequest("it is wrong")


def test_each_ends_by_itself_and_errors_are_told_at_once() -> None:
    told: list[str] = []
    outcomes, errors = run_together({"bad": fail, "good": lambda: DONE}, Stop(), told.append)

    assert outcomes == [DONE]
    assert list(errors) == ["bad"]
    assert told == ["it is wrong"]


def test_an_error_that_is_not_ours_is_raised() -> None:
    def broken() -> Outcome:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_together({"broken": broken, "good": lambda: DONE}, Stop(), lambda text: None)
