"""Stopping: what is asked, and the gate that functions are behind."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from flintmq.errors import Closed
from flintmq.pipeline.run.stopping import A_FLOW, BatchGate, Stop, stopped_by_signals


def test_the_first_ctrl_c_asks_and_the_second_is_urgent_and_sigterm_never_is() -> None:
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.is_asked(), stop.is_urgent) == (True, False)
        os.kill(os.getpid(), signal.SIGTERM)
        seen = [stop.is_urgent]
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(stop.is_urgent)
        assert seen == [False, True]
    assert signal.getsignal(signal.SIGINT) is before


def test_that_it_will_end_is_told_once() -> None:
    stop = Stop()
    told: list[str] = []
    stop.tell(told.append, "soon")
    stop.ask()
    stop.ask()
    stop.tell(told.append, "soon")
    stop.tell(told.append, "soon")

    assert told == ["stopping soon; Ctrl-C again stops at once"]
    assert not stop.is_urgent


def test_a_gate_that_is_closed_lets_nothing_begin_and_waits_for_what_is_at_work() -> None:
    gate, order = BatchGate(), []
    is_in, may_go = threading.Event(), threading.Event()

    def work() -> None:
        with gate.passed():
            is_in.set()
            may_go.wait(10)
            order.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    assert is_in.wait(10)
    gate.close()
    gate.wait_empty(0.001)  # it is at work still, and not waited for any longer
    order.append("not waited for")
    may_go.set()
    gate.wait_empty(10)
    order.append("waited for")
    thread.join(10)

    assert order == ["not waited for", "done", "waited for"]
    with pytest.raises(Closed, match=A_FLOW), gate.passed():
        pass
