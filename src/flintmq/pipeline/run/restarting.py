"""Runs a pipeline again after a failure, from its checkpoints, with growing pauses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import Disconnected, InvalidRequest
from .running import Outcome, PipelineFailed
from .stopping import Stop

PAUSE_MAX_SECONDS = 60.0
CALM_SECONDS = 300.0
"""After a run of this length a failure counts as the first one again."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often to run again in a row; None: always."""

    times: int | None = 0

    def allows(self, failures: int) -> bool:
        return self.times is None or failures <= self.times


def restart_policy(text: str) -> RestartPolicy:
    """`never`, `on-failure`, or `on-failure:5`."""
    found = re.fullmatch(r"never|on-failure(?::([1-9]\d*))?", text.strip())
    if found is None:
        raise InvalidRequest(f"restart must be never, on-failure or on-failure:TIMES, not {text!r}")
    if text.strip() == "never":
        return RestartPolicy(0)
    return RestartPolicy(None if found[1] is None else int(found[1]))


def with_restarts(
    attempt: Callable[[int], Outcome],
    policy: RestartPolicy,
    stop: Stop,
    tell: Callable[[str], None],
    *,
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Call `attempt` with 0, and after failures with 1, 2 ... What cannot work (a file that is
    wrong, a checkpoint that does not fit) is not tried again."""
    number = failures = 0
    while True:
        began = now()
        try:
            return attempt(number)
        except (PipelineFailed, Disconnected) as error:
            if now() - began >= CALM_SECONDS:
                failures = 0
            failures += 1
            if stop.is_asked() or not policy.allows(failures):
                raise
            pause = min(PAUSE_MAX_SECONDS, 2.0 ** (failures - 1))
            tell(f"{error}\nrestarting in {pause:.0f} s (failure {failures} in a row)")
            stop.wait(pause)
            if stop.is_asked():
                raise
            number += 1
