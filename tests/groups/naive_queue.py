"""A queue in a hundred lines: a dict of messages that is sorted on every poll. What Queue must do,
without what makes it fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Entry:
    """A message as one group sees it."""

    offset: int
    priority: int
    key: int
    state: str = "ready"  # ready, scheduled, selected, leased, limbo, delayed
    count: int = 0
    token: int = 0
    holder: str = ""
    deadline: float = 0.0
    due_ms: int = 0
    late: int = 0  # the token whose lease ran out

    @property
    def is_started(self) -> bool:
        return self.count > 0 or self.state in ("selected", "leased", "limbo", "delayed")


class NaiveQueue:
    def __init__(self, order: str) -> None:
        self.order = order
        self.entries: dict[int, Entry] = {}  # those that are not settled
        self.settled: set[int] = set()
        self.floor = 0
        self.polls = 0

    def add(self, entry: Entry) -> None:
        self.entries[entry.offset] = entry

    def ready(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state == "ready"]

    def by_priority(self) -> list[Entry]:
        if self.order != "priority":
            return sorted(self.ready(), key=lambda entry: entry.offset)
        return sorted(self.ready(), key=lambda entry: (-entry.priority, entry.offset))

    def open_of_key(self, key: int) -> list[Entry]:
        """Those that are neither settled nor yet to come due: whose turn it is first, then by age.
        Who was begun keeps its turn, though an older one has come due since."""
        mine = [e for e in self.entries.values() if e.key == key and e.state != "scheduled"]
        is_begun = any(entry.is_started for entry in mine)
        came_due = {e.offset for e in mine if is_begun and e.due_ms and not e.is_started}
        return sorted(mine, key=lambda entry: (entry.offset in came_due, entry.offset))

    def by_key(self, wanted: int, together: bool) -> list[Entry]:
        """Of each key the oldest, and with it those that follow at once; but what was delivered
        before goes alone."""
        picked: list[Entry] = []
        for entry in self.by_priority():
            if len(picked) == wanted:
                break
            line = self.open_of_key(entry.key)
            before = line[: line.index(entry)]
            follows = together and all(e in picked and not e.count for e in before)
            if not entry.key or not before or (follows and not entry.count):
                picked.append(entry)
        return picked

    def recall_behind(self, back: list[Entry]) -> list[int]:
        """Those of a key that are out behind one that came back go back too, uncounted."""
        recalled = []
        for first in back if self.order == "key" else []:
            for entry in self.open_of_key(first.key) if first.key else []:
                if entry.offset > first.offset and entry.state == "leased":
                    recalled.append(self._recall(entry))
        return recalled

    def _recall(self, entry: Entry) -> int:
        entry.state, entry.late, entry.token = "ready", 0, 0
        entry.count -= 1
        return entry.offset

    def select(self, wanted: int, together: bool = False) -> list[int]:
        if self.order == "priority":
            ranked = self.by_priority()
            reserved = min(wanted // 4 + ((self.polls + 1) % 4 == 0), wanted)
            first = ranked[: wanted - reserved]
            rest = sorted(ranked[wanted - reserved :], key=lambda entry: entry.offset)
            picked = first + rest[:reserved]
            picked.sort(key=lambda entry: (-entry.priority, entry.offset))
        elif self.order == "log":
            picked = self.by_priority()[:wanted]
        else:
            picked = self.by_key(wanted, together)
        self.polls += bool(picked)
        for entry in picked:
            entry.state = "selected"
        return [entry.offset for entry in picked]

    def put_back(self, offsets: list[int]) -> None:
        for offset in offsets:
            self.entries[offset].state = "ready"

    def unfinish(self, offsets: list[int]) -> None:
        back = [self.entries[offset] for offset in offsets]
        for entry in back:
            entry.state = "unfinished"
        self.recall_behind(back)
        self.put_back(offsets)

    def grant(self, offsets: list[int], token: int, holder: str, deadline: float) -> None:
        for offset in offsets:
            entry = self.entries[offset]
            entry.state, entry.token, entry.holder = "leased", token, holder
            entry.deadline, entry.late = deadline, 0
            entry.count += 1

    def held(self, token: int, offsets: list[int]) -> list[Entry]:
        """Those that a token can settle."""
        entries = [self.entries[offset] for offset in offsets if offset in self.entries]
        return [
            entry
            for entry in entries
            if (entry.state == "leased" and entry.token == token)
            or (entry.state == "ready" and entry.late == token)
        ]

    def finish(self, token: int, offsets: list[int]) -> list[int]:
        held = self.held(token, offsets)
        for entry in held:
            entry.state, entry.late = "limbo", 0
        return [entry.offset for entry in held]

    def give_back(
        self, token: int, offsets: list[int], due_ms: int | None, uncounted: bool = False
    ) -> list[int]:
        held = self.held(token, offsets)
        for entry in held:
            entry.state, entry.late = "ready", 0
            entry.count -= uncounted
            if due_ms is not None:
                entry.state, entry.due_ms = "delayed", due_ms
            entry.token = 0
        for entry in held:
            entry.state, was = "back", entry.state
            self.recall_behind([entry])
            entry.state = was
        return [entry.offset for entry in held]

    def extend(self, token: int, offsets: list[int], holder: str, deadline: float) -> list[int]:
        held = self.held(token, offsets)
        for entry in held:
            entry.state, entry.late, entry.deadline, entry.token = "leased", 0, deadline, token
            entry.holder = holder
        return [entry.offset for entry in held]

    def expire(self, now: float) -> list[int]:
        over = [e for e in self.entries.values() if e.state == "leased" and e.deadline <= now]
        return self._give_up(over)

    def _give_up(self, held: list[Entry]) -> list[int]:
        """By key, only the oldest of a key was begun; and what is late is what was begun."""
        given = {entry.offset for entry in held}
        for entry in sorted(held, key=lambda entry: entry.offset):
            if entry.state != "leased":
                continue
            is_first = not entry.key or self.open_of_key(entry.key)[0] is entry
            if self.order != "key" or is_first:
                entry.state, entry.late = "ready", entry.token
            else:
                self._recall(entry)
            given.update(self.recall_behind([entry]))
        return sorted(given)

    def release_holder(self, holder: str) -> list[int]:
        return self._give_up(
            [e for e in self.entries.values() if e.state == "leased" and e.holder == holder]
        )

    def take_due(self, now_ms: int) -> int:
        due = [e for e in self.entries.values() if e.state == "delayed" and e.due_ms <= now_ms]
        for entry in due:
            entry.state = "ready"
        return len(due)

    def settle(self, offsets: list[int]) -> int:
        fresh = {offset for offset in offsets if offset >= self.floor} - self.settled
        for offset in fresh:
            self.entries.pop(offset, None)
        self.settled |= fresh
        self._move_floor()
        return len(fresh)

    def drop_before(self, offset: int) -> int:
        lost = set(range(self.floor, offset)) - self.settled
        self.entries = {o: entry for o, entry in self.entries.items() if o >= offset}
        self.floor = max(self.floor, offset)
        self._move_floor()
        return len(lost)

    def crash(self, deadline: float) -> None:
        """Counts and nack delays stay; what a token could settle is nobody's, but leased to it."""
        self.polls = 0
        token_of_key: dict[int, int] = {}
        for entry in sorted(self.entries.values(), key=lambda entry: entry.offset):
            held = entry.token if entry.state in ("leased", "limbo") else entry.late
            is_tried = self.order == "key" and entry.key and entry.count
            if is_tried and token_of_key.setdefault(entry.key, held) != held:
                # What was tried first has its turn, and what was granted with it and follows.
                held, token_of_key[entry.key] = 0, -1
            if held:
                entry.state, entry.late, entry.token = "leased", 0, held
                entry.holder, entry.deadline = "", deadline
            elif entry.state in ("selected", "leased", "limbo"):
                entry.state, entry.late = "ready", 0
            else:
                entry.late = 0

    def _move_floor(self) -> None:
        while self.floor in self.settled:
            self.floor += 1
        self.settled = {offset for offset in self.settled if offset >= self.floor}
