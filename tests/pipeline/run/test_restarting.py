"""A pipeline that failed is run again with growing pauses, as often as its policy says."""

from __future__ import annotations

import pytest

from flintmq.errors import Disconnected, InvalidRequest
from flintmq.pipeline.run.restarting import RestartPolicy, restart_policy, with_restarts
from flintmq.pipeline.run.running import Outcome, PipelineFailed
from flintmq.pipeline.run.stopping import Stop

DONE = Outcome(pipeline="p", ended="done", seconds=1.0, flows={})
FAILED = PipelineFailed("p", {"totals": "no"}, DONE)


class Waiting(Stop):
    """Waits no time, and keeps how long it would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


class Attempts:
    """Fails as often as it has errors; every run takes `seconds`."""

    def __init__(self, *errors: Exception, seconds: float = 1.0) -> None:
        self.errors, self.seconds, self.time = list(errors), seconds, 0.0
        self.numbers: list[int] = []

    def now(self) -> float:
        return self.time

    def __call__(self, number: int) -> Outcome:
        self.numbers.append(number)
        self.time += self.seconds
        if self.errors:
            raise self.errors.pop(0)
        return DONE


def run(attempts: Attempts, policy: str) -> tuple[Outcome, list[float], list[str]]:
    stop, told = Waiting(), list[str]()
    outcome = with_restarts(attempts, restart_policy(policy), stop, told.append, now=attempts.now)
    return outcome, stop.waited, told


def test_it_is_run_again_with_growing_pauses() -> None:
    attempts = Attempts(*[FAILED] * 7, Disconnected("b", "gone"))
    outcome, waited, told = run(attempts, "on-failure")

    assert outcome is DONE
    assert attempts.numbers == list(range(9))
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60]
    assert told[0] == "flow 'totals' of 'p': no\nrestarting in 1 s (failure 1 in a row)"


@pytest.mark.parametrize(("policy", "tries"), [("never", 1), ("on-failure:2", 3)])
def test_after_so_many_failures_in_a_row_the_last_one_is_raised(policy: str, tries: int) -> None:
    attempts = Attempts(*[FAILED] * 9)
    with pytest.raises(PipelineFailed):
        run(attempts, policy)
    assert len(attempts.numbers) == tries


def test_a_long_run_in_between_counts_as_success() -> None:
    outcome, waited, _ = run(Attempts(*[FAILED] * 5, seconds=300.0), "on-failure:1")
    assert (outcome, waited) == (DONE, [1.0] * 5)


def test_what_cannot_work_is_not_tried_again() -> None:
    attempts = Attempts(InvalidRequest("no such column"))
    with pytest.raises(InvalidRequest):
        run(attempts, "on-failure")
    assert attempts.numbers == [0]


def test_a_stop_ends_the_waiting() -> None:
    attempts, stop = Attempts(FAILED, FAILED), Waiting()
    stop.ask()
    with pytest.raises(PipelineFailed):
        with_restarts(attempts, RestartPolicy(None), stop, lambda text: None)
    assert attempts.numbers == [0]


@pytest.mark.parametrize("text", ["always", "on-failure:0", "on-failure:x", ""])
def test_another_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="restart must be never, on-failure"):
        restart_policy(text)
