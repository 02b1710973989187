"""The vocabulary of tasks: their topics, ids and headers, what follows them, what came of them.

Plain values; pure.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from ..errors import InvalidRequest

TASK_TOPICS = "tasks."
"""Before the name of a task: the topic its messages go to."""
GROUP = "workers"
RESULTS = "task-results"
"""The topic of outcomes, compacted: the newest of each task is kept."""
CANCELS = "task-cancels"
"""The topic of wishes to cancel, by the id of the task."""
JOINS = "task-joins"
"""The topic of groups of tasks that something follows."""

TASK_ID = "task-id"
THEN = "task-then"
"""The header that has what follows the task."""
UNIQUE = "task-unique"
"""The header that names the claim of a unique task."""
RESULT_TTL = "task-result-ttl"
"""The header that says for how many seconds the outcome is kept; 0: it is not."""
SCHEDULED = "scheduled-ms"
"""The header of what a schedule published: the time it was due, in milliseconds since 1970."""

RESULT_SECONDS = 3600.0
KEPT_SECONDS = 86_400.0
"""How long outcomes and wishes to cancel may be kept."""
TIME_DIGITS, RANDOM_BYTES = 12, 10

TaskStatus = Literal["running", "retrying", "done", "failed", "cancelled"]
ENDED = ("done", "failed", "cancelled")


class TaskOutcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of a task, as it is kept in the topic of results."""

    status: TaskStatus
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    progress: float = 0.0
    note: str = ""
    attempt: int = 1

    @property
    def is_final(self) -> bool:
        return self.status in ENDED


class PlannedTask(msgspec.Struct, kw_only=True, omit_defaults=True, tag="task"):
    """A task that is to be sent once others are done."""

    topic: str
    id: str
    arguments: dict[str, msgspec.Raw] = {}
    into: str | None = None
    """The argument that gets the result of what came before."""
    key: str | None = None
    priority: int = 0
    delay: float | None = None
    result_ttl: float = RESULT_SECONDS


class PlannedGroup(msgspec.Struct, kw_only=True, tag="group"):
    """Tasks that are to be sent together; their results are a list."""

    id: str
    tasks: list[PlannedTask]


Planned = PlannedTask | PlannedGroup


class Join(msgspec.Struct, kw_only=True):
    """Wait for these tasks, then go on with what follows."""

    ids: list[str]
    since_ms: int
    then: list[Planned]


_planned = msgspec.json.Decoder(list[Planned])


def planned_of(header: Any) -> list[Planned]:
    """What follows, as the header of a task's message has it."""
    return _planned.decode(header) if header else []


def new_task_id(now_ms: int) -> str:
    """An id that begins with the time, so that its outcome is looked for from there on."""
    return f"{now_ms:0{TIME_DIGITS}x}{secrets.token_hex(RANDOM_BYTES)}"


def sent_ms(task_id: str) -> int | None:
    """When a task was sent; None for an id that somebody else has made."""
    if len(task_id) != TIME_DIGITS + 2 * RANDOM_BYTES:
        return None
    try:
        int(task_id, 16)
    except ValueError:
        return None
    return int(task_id[:TIME_DIGITS], 16)


def checked_id(task_id: Any) -> str:
    if not isinstance(task_id, str) or not 0 < len(task_id.encode(errors="replace")) <= 512:
        raise InvalidRequest(f"the id of a task is a str of 1 to 512 bytes, not {task_id!r}")
    return task_id


def claim_name(task: str, key: str) -> str:
    """What a unique key is called among definitions: any text, in a form that names allow."""
    return blake2b(f"{task}\0{key}".encode(errors="surrogatepass"), digest_size=16).hexdigest()


def deliveries_of(retries: int) -> int:
    """How often a task is delivered at most, where its workers die: once more than it may be tried,
    and then for a worker to say that it has failed. The broker delivers it alone these two times,
    as perhaps another task of the same process was the deadly one, but not the first two times."""
    return max(retries + 3, 4)
