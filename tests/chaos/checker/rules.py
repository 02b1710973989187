"""The rules of a chaos run, each a function of the history; the table is at the end."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from .content import checksum_of
from .history import (
    CHURN,
    DEAD,
    SECOND,
    Delivery,
    FinalTopic,
    History,
    MessageId,
    Settle,
    Written,
)
from .verdict import Check

CLOCK_NS = 10_000_000
"""What rounding to milliseconds, and two clocks, may make of a time."""
LATE_NS = 2 * SECOND
"""How long a row that was fetched in time may wait for whoever reads it."""
LONG_TTL = 3600.0
"""What expires no sooner is there at the end of any run."""
NOTHING_DONE = frozenset(
    {"Disconnected", "StorageFull", "QueueFull", "TopicFull", "InvalidRequest", "MessageTooLarge"}
)
"""Errors that say that nothing was done."""
RING = "ring"
RING_COUNT = 300
BRIEF, KEYED = "brief", "keyed"


def lasts(written: Written) -> bool:
    """Whether nothing takes the message before the run ends."""
    return (
        not written.topic.startswith(CHURN)
        and written.topic != RING
        and (written.ttl is None or written.ttl >= LONG_TTL)
    )


def is_log(topic: str) -> bool:
    """Whether a topic is there from the beginning to the end, and holds what clients publish."""
    return not topic.startswith((CHURN, DEAD))


def copies(history: History) -> Counter[str]:
    """How often each name is stored at the end, dead letters left aside."""
    return Counter(
        row.name
        for topic, final in history.last.items()
        if not topic.startswith(DEAD)
        for row in final.rows.values()
    )


def may_be_damaged(history: History, topic: str) -> bool:
    return bool(history.last.get(topic, FinalTopic(0, 0)).damaged)


# --- publishing


def receipts(history: History) -> Check:
    check = Check("what has a receipt is where the receipt says")
    stored = copies(history)
    for call in history.publishes():
        if not call.is_done or not is_log(call.topic):
            continue
        assert call.outcome is not None
        offset, final = call.outcome["offset"], history.last.get(call.topic, FinalTopic(0, 0))
        for at, name in enumerate(call.facts["names"]):
            if not lasts(history.written[name]) and call.topic != RING:
                continue
            if offset is None:
                if not final.damaged:
                    check.expect(name in stored, f"{call.topic}: {name} had a receipt and is gone")
                continue
            place = offset + at
            if (call.topic == RING and place < final.first) or final.is_damaged(place):
                continue
            found = final.rows.get(place)
            there = "nothing" if found is None else found.name
            check.expect(
                there == name, f"{call.topic} offset {place}: {name}, but {there} is there"
            )
    return check


def invented(history: History) -> Check:
    check = Check("nothing is invented or altered")
    for seen in history.seen:
        written = history.written.get(seen.name)
        what = f"{seen.topic} offset {seen.offset} ({seen.how} of {seen.worker}): {seen.name}"
        if written is None:
            check.expect(False, f"{what} was never published")
            continue
        if checksum_of(seen.name, written.size) != seen.checksum:
            check.expect(False, f"{what} has other bytes")
        elif seen.topic != written.topic and not seen.topic.startswith(f"{DEAD}{written.topic}."):
            check.expect(False, f"{what} was published to {written.topic}")
        elif seen.key != written.key or seen.priority not in (None, written.priority):
            check.expect(
                False,
                f"{what} has key {seen.key!r} and priority {seen.priority}, not "
                f"{written.key!r} and {written.priority}",
            )
        else:
            check.expect(seen.at >= written.begun, f"{what} was seen before it was published")
    return check


def one_place(history: History) -> Check:
    check = Check("an offset has one message for ever")
    places: dict[tuple[str, int], str] = {}
    for seen in history.seen:
        if seen.offset is None or not is_log(seen.topic):
            continue
        before = places.setdefault((seen.topic, seen.offset), seen.name)
        check.expect(
            before == seen.name,
            f"{seen.topic} offset {seen.offset}: {before}, and {seen.name} ({seen.how})",
        )
    return check


def stored_once(history: History) -> Check:
    check = Check("what was published once is stored once")
    dead = Counter(name for _, name in dead_rows(history))
    for name, times in copies(history).items():
        allowed = 1 + dead[name]  # each dead letter may have been put back
        check.expect(times <= allowed, f"{name} is stored {times} times")
    return check


def refused(history: History) -> Check:
    check = Check("what was refused is not stored")
    stored = copies(history)
    for call in history.publishes():
        if call.error not in NOTHING_DONE or call.is_done:
            continue
        for name in call.facts["names"]:
            if len(history.written[name].calls) == 1:
                check.expect(name not in stored, f"{name}: {call.error}, and it is there")
    return check


def idempotent(history: History) -> Check:
    check = Check("idempotent publishes: one message, one receipt")
    stored = copies(history)
    offsets: dict[str, int] = {}
    for call in history.publishes():
        if call.facts["how"] != "once" or not call.is_done:
            continue
        assert call.outcome is not None
        name, offset = call.facts["names"][0], call.outcome["offset"]
        first = offsets.setdefault(name, offset)
        check.expect(first == offset, f"{name} has receipts for {first} and {offset}")
        if not may_be_damaged(history, call.topic):
            for each in call.facts["names"]:
                check.expect(stored[each] == 1, f"{each} is stored {stored[each]} times")
    return check


def whole_batches(history: History) -> Check:
    check = Check("batches are stored whole or not at all")
    stored = copies(history)
    for call in history.publishes():
        names = call.facts["names"]
        if call.facts["how"] not in ("batch", "once") or len(names) < 2:
            continue
        if not lasts(history.written[names[0]]) or may_be_damaged(history, call.topic):
            continue
        there = sum(name in stored for name in names)
        check.expect(there in (0, len(names)), f"{there} of {len(names)} from {names[0]} on")
    return check


def order(history: History) -> Check:
    """Whatever began after a receipt was there lies behind what that receipt is for."""
    check = Check("later publishes lie behind earlier ones")
    for topic, spans in sorted(_spans(history).items()):
        ended: list[tuple[int, int]] = []
        highest = -1
        for begun, end, first, count in sorted(spans):
            while ended and ended[0][0] < begun:
                highest = max(highest, heapq.heappop(ended)[1])
            check.expect(first > highest, f"{topic} offset {first} came after {highest} was known")
            heapq.heappush(ended, (end, first + count - 1))
    return check


def _spans(history: History) -> dict[str, list[tuple[int, int, int, int]]]:
    """By topic: when it was first tried, when the first receipt came, offset and count."""
    spans: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    seen: set[str] = set()
    for call in history.publishes():
        if call.ended is None or not is_log(call.topic):
            continue
        assert call.outcome is not None
        name, offset = call.facts["names"][0], call.outcome["offset"]
        if offset is None or name in seen:
            continue
        seen.add(name)
        spans[call.topic].append(
            (history.written[name].begun, call.ended, offset, len(call.facts["names"]))
        )
    for staged in history.staged.values():
        done = [commit for commit in staged.commits if commit.ended is not None]
        if not done:
            continue
        assert done[0].ended is not None
        assert done[0].outcome is not None
        for topic, offset, count, _ in done[0].outcome["receipts"]:
            spans[topic].append((staged.commits[0].begun, done[0].ended, offset, count))
    return spans


# --- staged writes


def staged_whole(history: History) -> Check:
    check = Check("staged writes: all parts or none, once")
    stored = copies(history)
    for (writer, number), staged in history.staged.items():
        what = f"{writer} {number}"
        by_topic: dict[str, list[str]] = defaultdict(list)
        for part in staged.commits[0].facts["parts"] if staged.commits else staged.parts:
            for topic, names in staged.parts.get(part, {}).items():
                by_topic[topic] += names
        if any(may_be_damaged(history, topic) for topic in by_topic):
            continue
        names = [name for of_topic in by_topic.values() for name in of_topic]
        there = sum(name in stored for name in names)
        check.expect(
            all(stored[name] <= 1 for name in names), f"{what}: some are there more than once"
        )
        if not staged.commits:
            check.expect(there == 0, f"{what}: never committed, and {there} are there")
            continue
        done = [commit for commit in staged.commits if commit.is_done]
        if not done:
            check.expect(there in (0, len(names)), f"{what}: {there} of {len(names)} are there")
            continue
        check.expect(there == len(names), f"{what}: committed, and {there} of {len(names)} there")
        assert done[0].outcome is not None
        for topic, offset, count, _ in done[0].outcome["receipts"]:
            rows = history.last.get(topic, FinalTopic(0, 0)).rows
            found = [rows[at].name if at in rows else "" for at in range(offset, offset + count)]
            check.expect(found == by_topic[topic], f"{what}: {topic} offset {offset} has others")
    return check


# --- reading


def readers(history: History) -> Check:
    check = Check("readers see every row, in order")
    for life, rows in history.reads.items():
        topic = rows[0].topic
        if life in history.named or not is_log(topic):
            continue
        may_skip = topic in (RING, BRIEF) or may_be_damaged(history, topic)
        for before, row in itertools.pairwise(rows):
            assert before.offset is not None
            assert row.offset is not None
            step = row.offset - before.offset
            check.expect(
                step == 1 or (may_skip and step > 1),
                f"{life}: offset {row.offset} behind {before.offset}",
            )
    return check


def named_readers(history: History) -> Check:
    """A row counts as dealt with if whoever read it began to commit afterwards."""
    check = Check("readers of one name: every row reached one who committed")
    dealt: dict[tuple[str, str], set[int]] = defaultdict(set)
    for life, who in history.named.items():
        last = max(history.keeps[life], default=0)
        dealt[who].update(row.offset or 0 for row in history.reads[life] if row.at <= last)
    for (topic, name), offsets in dealt.items():
        final = history.last.get(topic, FinalTopic(0, 0))
        missing = sorted(set(final.rows) - offsets)
        check.judged += len(final.rows)
        if missing:
            check.failures.append(
                f"{name} of {topic}: {len(missing)} rows of {len(final.rows)}, "
                f"the first are {missing[:5]}"
            )
    return check


def feeds(history: History) -> Check:
    check = Check("live feeds show nothing twice")
    for life, rows in history.feeds.items():
        times = Counter((row.topic, row.offset) for row in rows if is_log(row.topic))
        for (topic, offset), count in times.items():
            check.expect(count == 1, f"{life}: {topic} offset {offset} came {count} times")
    return check


def looks_agree(history: History) -> Check:
    check = Check("one more kill changes nothing")
    if len(history.looks) < 2:
        return check
    first, *others = (history.looks[number] for number in sorted(history.looks))
    for other in others:
        for topic in sorted(set(first) | set(other)):
            ours, theirs = _lasting(history, first, topic), _lasting(history, other, topic)
            damaged = [
                *first.get(topic, FinalTopic(0, 0)).damaged,
                *other.get(topic, FinalTopic(0, 0)).damaged,
            ]
            for rows in (ours, theirs):
                for offset in [at for at in rows or () if _within(at, damaged)]:
                    del (rows or {})[offset]
            check.expect(ours == theirs, topic)
    return check


def _within(offset: int, ranges: list[tuple[int, int]]) -> bool:
    return any(first <= offset < end for first, end in ranges)


def _lasting(history: History, look: dict[str, FinalTopic], topic: str) -> dict[int, str] | None:
    final = look.get(topic)
    if final is None:
        return None
    return {
        offset: row.name
        for offset, row in final.rows.items()
        if row.name not in history.written or history.written[row.name].ttl in (None, LONG_TTL)
    }


# --- queues


def settled_again(history: History) -> Check:
    check = Check("what is settled is never delivered again")
    for message, settles in history.settles.items():
        done = [one for one in settles if one.is_done and one.fate in ("ack", "reject")]
        if not done:
            continue
        last = max(done, key=lambda one: one.token)
        assert last.ended is not None
        for delivery in history.deliveries[message]:
            again = delivery.token > last.token or (
                delivery.at > last.ended and delivery.token == last.token
            )
            check.expect(
                not again,
                f"{_id(message)}: token {last.token} was settled ({last.fate}), then "
                f"{delivery.member} got it with token {delivery.token}, "
                f"{(delivery.at - last.ended) / SECOND:+.3f} s after",
            )
    return check


def stale(history: History) -> Check:
    """A delivery of an older token, handed out after another member had settled the message."""
    check = Check("nothing is handed out that another has settled")
    for message, settles in history.settles.items():
        done = [one for one in settles if one.is_done and one.fate in ("ack", "reject")]
        for delivery in history.deliveries[message]:
            for one in done:
                if delivery.token >= one.token:
                    continue
                assert one.ended is not None
                # A lease that ran out where nobody could say so is nobody's fault.
                knew = history.is_undisturbed(one.ended, delivery.at, delivery.worker)
                late = delivery.at > one.ended
                if late and not knew:
                    continue
                check.expect(
                    not late,
                    f"{_id(message)}: settled with token {one.token}, and "
                    f"{(delivery.at - one.ended) / SECOND:.3f} s later {delivery.member} "
                    f"got it with token {delivery.token}",
                )
    return check


def one_holder(history: History) -> Check:
    check = Check("no two members hold a message at one time")
    for message, deliveries in history.deliveries.items():
        ordered = sorted(deliveries, key=lambda one: one.token)
        settles = history.settles.get(message, [])
        for first, second in itertools.pairwise(ordered):
            if first.token == second.token:
                continue
            begun = min(first.at, second.at, _had_since(first))
            ended = max(first.at, second.at)
            if not history.is_undisturbed(begun, ended, first.worker, second.worker):
                continue
            until = _held_until(history, first, settles)
            check.expect(
                second.at >= until,
                f"{_id(message)}: {first.member} had token {first.token}, and "
                f"{(second.at - first.at) / SECOND:.3f} s later {second.member} got "
                f"token {second.token}",
            )
    return check


def _had_since(delivery: Delivery) -> int:
    """When it was granted, at the earliest: what a subscription takes ahead may be a while old."""
    return delivery.at - delivery.lease_ns if delivery.asked is None else delivery.asked


def _held_until(history: History, delivery: Delivery, settles: list[Settle]) -> int:
    """When it may go to another, at the earliest: settled, given back, or its lease ran out."""
    ends = [one.begun for one in settles if one.token == delivery.token]
    ends += history.closings(delivery)
    if delivery.asked is not None:
        ends.append(delivery.asked + delivery.lease_ns - CLOCK_NS)
    for older in _older_with(history, delivery):  # if one of these comes back, so does this
        of_older = history.settles.get((older.topic, older.group, older.offset), [])
        ends += [one.begun for one in of_older if one.token == older.token and one.fate != "ack"]
    return min(ends, default=1 << 62)


def _older_with(history: History, delivery: Delivery) -> list[Delivery]:
    """Those of its key that were granted with a message, ahead of it."""
    if delivery.topic != KEYED:
        return []
    return [
        other
        for (topic, _, offset), deliveries in history.deliveries.items()
        if topic == KEYED and offset < delivery.offset
        for other in deliveries
        if other.token == delivery.token and other.key == delivery.key
    ]


def tokens(history: History) -> Check:
    check = Check("tokens and delivery counts grow")
    for message, deliveries in history.deliveries.items():
        ordered = sorted(deliveries, key=lambda one: (one.token, one.at))
        for first, second in itertools.pairwise(ordered):
            what = (
                f"{_id(message)}: {first.member} token {first.token} count {first.count}, then "
                f"{second.member} token {second.token} count {second.count}"
            )
            given_back = bool(history.closings(first))
            # Counts are written before a message is handed out, and nobody waits for the sync.
            since = min(first.at, second.at) - first.lease_ns
            may_be_same = given_back or history.lost_power(since, max(first.at, second.at))
            # By key, what was handed out behind one that came back goes back uncounted.
            may_be_same = may_be_same or bool(_older_with(history, first))
            grows = second.count > first.count or may_be_same
            check.expect(second.token > first.token and grows, what)
    return check


def fates(history: History) -> Check:
    check = Check("every message of a queue comes to an end")
    dead = {name for _, name in dead_rows(history)}
    gone = {
        name
        for call in history.changes("cancel")
        for name in call.facts["names"]
        if call.is_done or call.error not in NOTHING_DONE
    }
    for (topic, group), state in history.last_groups.items():
        if not may_be_damaged(history, topic):
            check.expect(state.lag == 0, f"{group} of {topic}: {state.lag} are left")
        for offset, row in history.last[topic].rows.items():
            settles = history.settles.get((topic, group, offset), [])
            is_settled = any(_may_be_settled(history, one) for one in settles)
            check.expect(
                is_settled or row.name in dead or row.name in gone,
                f"{_id((topic, group, offset))}: {row.name} was never settled; "
                f"{len(history.deliveries.get((topic, group, offset), []))} deliveries",
            )
    return check


def _may_be_settled(history: History, one: Settle) -> bool:
    """LeaseLost after a lost session may also mean that it was settled just before."""
    if one.fate not in ("ack", "reject"):
        return False
    if not one.is_lost:
        return True
    assert one.ended is not None
    return not history.is_undisturbed(one.begun, one.ended, one.worker)


def too_early(history: History) -> Check:
    check = Check("nothing is delivered before it is due")
    for message, deliveries in history.deliveries.items():
        for delivery in deliveries:
            written = history.written.get(delivery.name)
            # A copy of a dead letter is due at once.
            is_copy = written is not None and _is_copy(written, delivery.offset)
            if written is not None and written.delay and not is_copy:
                due = written.begun + round(written.delay * SECOND)
                check.expect(
                    delivery.at >= due - CLOCK_NS,
                    f"{_id(message)}: {(due - delivery.at) / SECOND:.3f} s too early",
                )
        for one in history.settles.get(message, []):
            if one.fate != "nack" or not one.delay_ns or not one.is_done:
                continue
            for delivery in deliveries:
                if delivery.token > one.token and not history.lost_power(one.begun, delivery.at):
                    due = one.begun + one.delay_ns
                    check.expect(
                        delivery.at >= due - CLOCK_NS,
                        f"{_id(message)}: nacked, {(due - delivery.at) / SECOND:.3f} s too early",
                    )
    return check


def _is_copy(written: Written, offset: int) -> bool:
    for call in written.calls:
        if call.outcome is not None and call.outcome["offset"] is not None:
            at = call.facts["names"].index(written.name)
            return bool(call.outcome["offset"] + at != offset)
    return True  # nobody knows which it is


def key_order(history: History) -> Check:
    """Several may be granted together. Where one of them comes again, those behind it were taken
    back with it; but nothing was granted behind it in between."""
    check = Check("messages of a key come in order")
    for _key, deliveries in _by_key(history):
        before: list[Delivery] = []
        last_token: dict[int, int] = {}
        for delivery in sorted(deliveries, key=lambda one: (one.token, one.offset)):
            since = last_token.get(delivery.offset, -1)
            ahead = [e for e in before if e.offset > delivery.offset and e.token > since]
            check.expect(
                not ahead,
                f"{delivery.topic} key {delivery.key}: offset {delivery.offset} "
                f"(token {delivery.token}) behind {[one.offset for one in ahead]}",
            )
            before.append(delivery)
            last_token[delivery.offset] = delivery.token
    return check


def one_of_a_key(history: History) -> Check:
    """What was granted together is with one member."""
    check = Check("messages of a key are out with one member at a time")
    for _key, deliveries in _by_key(history):
        ordered = sorted(deliveries, key=lambda one: one.at)
        grants = [list(some) for _, some in itertools.groupby(ordered, lambda one: one.token)]
        pairs = [
            (first, others[0]) for some, others in itertools.pairwise(grants) for first in some
        ]
        for first, second in pairs:
            # What is younger was taken back with the one that comes again.
            if first.offset >= second.offset or not history.is_undisturbed(
                _had_since(first), second.at, first.worker, second.worker
            ):
                continue
            settles = history.settles.get((first.topic, first.group, first.offset), [])
            check.expect(
                second.at >= _held_until(history, first, settles),
                f"{first.topic} key {first.key}: {first.member} had offset {first.offset} "
                f"(token {first.token}) when {second.member} got {second.offset} "
                f"(token {second.token})",
            )
    return check


def _by_key(history: History) -> Iterator[tuple[str, list[Delivery]]]:
    by_key: dict[str, list[Delivery]] = defaultdict(list)
    for (topic, _, _), deliveries in history.deliveries.items():
        if topic == KEYED:
            for delivery in deliveries:
                by_key[str(delivery.key)].append(delivery)
    yield from sorted(by_key.items())


def dead_rows(history: History) -> Iterator[tuple[str, str]]:
    """Topics of dead letters, and the names in them: of all that ever came there. What is damaged
    by now may have been seen before."""
    seen = {
        (seen.topic, seen.offset): seen.name
        for seen in history.seen
        if seen.topic.startswith(DEAD) and may_be_damaged(history, seen.topic)
    }
    for topic, final in history.last.items():
        if topic.startswith(DEAD):
            for row in final.rows.values():
                yield topic, row.name
            for first, end in final.damaged:
                for offset in range(first, end):
                    if offset not in final.rows and (topic, offset) in seen:
                        yield topic, seen[topic, offset]


def dead_letters(history: History) -> Check:
    check = Check("a dead letter is in one place")
    if any(final.damaged for final in history.last.values()):
        return check  # what cannot be read may be the letter, or what it was
    stored, dead = copies(history), Counter(name for _, name in dead_rows(history))
    waiting = Counter(name for group in history.last_groups.values() for name in group.letters)
    for (topic, group, offset), settles in history.settles.items():
        for one in settles:
            if one.fate == "reject" and one.is_done and topic in history.last:
                row = history.last[topic].rows.get(offset)
                name = row.name if row is not None else ""
                check.expect(
                    dead[name] > 0, f"{_id((topic, group, offset))} was rejected: no letter"
                )
    for name, times in dead.items():
        check.expect(
            times == waiting[name] + stored[name] - 1,
            f"{name}: {times} times a dead letter, {waiting[name]} wait, "
            f"stored {stored[name]} times",
        )
    for name in waiting:
        check.expect(dead[name] > 0, f"{name} waits among the dead letters, which do not have it")
    return check


def cancelled(history: History) -> Check:
    check = Check("what was cancelled is never delivered")
    delivered = {one.name for each in history.deliveries.values() for one in each}
    for call in history.changes("cancel"):
        if not call.is_done:
            continue
        assert call.outcome is not None
        names = call.facts["names"]
        if call.outcome["result"] == len(names):
            check.expect(delivered.isdisjoint(names), f"{names} were cancelled and delivered")
    return check


# --- topics


def never_back(history: History) -> Check:
    check = Check("what was purged or deleted never comes back")
    ends: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for call in history.changes("purge", "delete"):
        ends[call.topic].append((call.begun, call.ended))
    for seen in history.seen:
        written = history.written.get(seen.name)
        if written is None or written.ended is None or not written.topic.startswith(CHURN):
            continue
        gone = any(
            ended is not None and written.ended < begun and ended < seen.at and seen.how != "feed"
            for begun, ended in ends[written.topic]
        )
        check.expect(not gone, f"{seen.topic}: {seen.name} came back ({seen.how} of {seen.worker})")
    stored = copies(history)
    for written in history.written.values():
        if not written.topic.startswith(CHURN) or written.ended is None:
            continue
        if any(begun > written.begun for begun, _ in ends[written.topic]):
            continue
        if not may_be_damaged(history, written.topic):
            check.expect(written.name in stored, f"{written.topic}: {written.name} is gone")
    return check


def retention(history: History) -> Check:
    check = Check("retention keeps what it should, and never gives back")
    for topic, extents in history.extents.items():
        first = next_offset = 0
        for _, worker, its_first, its_next in extents:
            check.expect(
                its_first >= first and its_next >= next_offset,
                f"{topic}: {first} to {next_offset}, then {its_first} to {its_next} ({worker})",
            )
            first, next_offset = max(first, its_first), max(next_offset, its_next)
        final = history.last.get(topic)
        if final is not None and topic == RING:
            kept = final.next - final.first
            check.expect(kept >= min(RING_COUNT, final.next), f"{topic} has kept {kept}")
            check.expect(final.first >= first, f"{topic}: {final.first} is first, {first} was")
            missing = [
                at
                for at in range(final.first, final.next)
                if at not in final.rows and not final.is_damaged(at)
            ]
            check.expect(not missing, f"{topic}: {missing[:5]} are not there")
    return check


def damage(history: History) -> Check:
    """Nobody is told of damage where none was done, and it takes what it has hit alone."""
    check = Check("damage is told only where it was done")
    was_done = any(fault.kind == "damage" for fault in history.faults)
    for topic, final in history.last.items():
        for first, end in final.damaged:
            check.expect(was_done and first < end, f"{topic} offset {first} to {end}")
        check.expect(was_done or not final.damaged, f"{topic} is damaged")
    return check


def expired(history: History) -> Check:
    check = Check("what has expired is not handed out")
    for seen in history.seen:
        written = history.written.get(seen.name)
        if written is None or written.ttl is None or written.ended is None:
            continue
        gone = written.ended + round(written.ttl * SECOND)
        if not history.is_undisturbed(written.begun, seen.at, seen.worker):
            continue
        check.expect(
            seen.at <= gone + LATE_NS,
            f"{seen.topic} offset {seen.offset}: {(seen.at - gone) / SECOND:.1f} s after its end "
            f"({seen.how} of {seen.worker})",
        )
    return check


def _id(message: MessageId) -> str:
    topic, group, offset = message
    return f"{topic} offset {offset} of {group}"


Rule = Callable[[History], Check]

RULES: tuple[Rule, ...] = (
    receipts,
    invented,
    one_place,
    stored_once,
    refused,
    idempotent,
    whole_batches,
    order,
    staged_whole,
    readers,
    named_readers,
    feeds,
    looks_agree,
    settled_again,
    stale,
    one_holder,
    tokens,
    fates,
    too_early,
    key_order,
    one_of_a_key,
    dead_letters,
    cancelled,
    never_back,
    retention,
    damage,
    expired,
)
