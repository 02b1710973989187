"""Many pipelines in one Spark: each in a thread, with a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from ...errors import FlintError
from ..check.queries import quiet_spark
from .running import Outcome
from .stopping import Stop

LOOK_SECONDS = 0.1


def run_together(
    works: Mapping[str, Callable[[], Outcome]],
    stop: Stop,
    tell: Callable[[str], None],
) -> tuple[Sequence[Outcome], Mapping[str, BaseException]]:
    """Run all of them; one that fails does not end the others. Returns what ended, and the errors
    of the rest."""
    outcomes: list[Outcome] = []
    errors: dict[str, BaseException] = {}

    def work(name: str) -> None:
        try:
            outcomes.append(works[name]())
        except BaseException as error:
            errors[name] = error
            if isinstance(error, FlintError):
                tell(str(error))

    threads = [
        threading.Thread(target=work, args=(name,), name=f"flintmq-{name}") for name in works
    ]
    with quiet_spark():  # once: each of them would bring the logs back for the others
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(LOOK_SECONDS)
                stop.tell(tell, "after the running micro-batches")
    unknown = [error for error in errors.values() if not isinstance(error, FlintError)]
    if unknown:
        raise unknown[0]
    return outcomes, errors
