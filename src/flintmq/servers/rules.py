"""What each operation of the native protocol asks of a key: one table, asked before anything else.

A rule looks at names and grants alone, never at whether a topic is there: so what is refused sounds
the same in both cases, and takes as long. docs/security.md has the same table for people; a
test compares the two, and another finds operations without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

from ..access import Access, Permission
from ..errors import FlintError, InvalidRequest, PermissionDenied
from ..wire.operations import (
    AbortStage,
    CommitStage,
    Extents,
    Name,
    Op,
    OpenFeed,
    PurgeTopic,
    SetTopic,
    Stage,
    WaitBeyond,
)

FROM_SERVER = frozenset({Op.REPLY, Op.ERROR, Op.TOPIC_CHANGED, Op.DRAIN})
"""What only a server says; a client that does so hears that it is not known."""


class Need(NamedTuple):
    """What has to be granted for as long as a stream is open."""

    permission: Permission
    name: str
    is_pattern: bool = False

    def check(self, access: Access) -> None:
        if self.is_pattern:
            access.require_all_of(self.permission, self.name)
        else:
            access.require(self.permission, self.name)


class Held(Protocol):
    """A reader, a feed or a membership."""

    denied: FlintError | None


class Asker(Protocol):
    """A session, as far as rules know it."""

    @property
    def access(self) -> Access: ...
    def stream(self, number: int) -> Any: ...
    def writer_topics(self, writer: str) -> Collection[str]: ...


Rule = Callable[[Asker, Any], None]


def _checked(name: Any) -> str:
    if type(name) is not str:
        raise InvalidRequest(f"a topic name is a str, not {type(name).__name__}")
    return name


def _anybody(asker: Asker, control: Any) -> None:
    """It concerns nothing but the session itself."""


def _topic(*permissions: Permission) -> Rule:
    """One of these on the topic that is named."""

    def rule(asker: Asker, control: Any) -> None:
        name = _checked(control.topic)
        if asker.access.permissions_on(name).isdisjoint(permissions):
            asker.access.require_one_of(permissions, name)

    return rule


def _sees(asker: Asker, control: Name) -> None:
    asker.access.require_sees(_checked(control.name))


def _administers(asker: Asker, control: Name | SetTopic | PurgeTopic) -> None:
    asker.access.require("administer", _checked(control.name))


def _sets(asker: Asker, control: SetTopic) -> None:
    """Dead letters are published on behalf of whoever sends them there."""
    _administers(asker, control)
    target = control.options.get("dead_letter_topic")
    if target is not None:
        asker.access.require("publish", _checked(target))


def _sees_all(asker: Asker, control: Extents) -> None:
    for topic in control.topics:
        asker.access.require_sees(_checked(topic))


def _sees_all_offsets(asker: Asker, control: WaitBeyond) -> None:
    for topic in control.offsets:
        asker.access.require_sees(topic)


def _everything(asker: Asker, control: Any) -> None:
    asker.access.require_all_of("administer", ">")


def _stages(asker: Asker, control: Stage) -> None:
    for topic in control.topics:
        asker.access.require("publish", _checked(topic))
    _writes_as(asker, control)


def _writes_as(asker: Asker, control: Stage | CommitStage | AbortStage) -> None:
    """A writer is everybody's who may publish to all topics it has written to. Else one key could
    commit, abort or overtake what another has staged."""
    writer, access = control.writer, asker.access
    if type(writer) is not str or access.may_all_of("publish", ">"):
        return  # the broker says what is wrong with the name
    for topic in asker.writer_topics(writer):
        if not access.may("publish", topic):
            raise PermissionDenied("publish", writer, "as writer")


def _feeds(asker: Asker, control: OpenFeed) -> None:
    """All that the pattern could ever match: what is made later is covered too."""
    asker.access.require_all_of("consume", _checked(control.pattern))


def _stream(asker: Asker, control: Any) -> None:
    """What was needed to open it is still granted; looked at whenever keys change."""
    denied = asker.stream(control.stream).denied
    if denied is not None:
        raise denied


RULES: dict[Op, Rule] = {
    Op.OPEN: _anybody,  # the gate itself
    Op.PING: _anybody,
    Op.CANCEL: _anybody,
    Op.GOODBYE: _anybody,
    Op.PUBLISH: _topic("publish"),
    Op.STAGE: _stages,
    Op.COMMIT_STAGE: _writes_as,
    Op.ABORT_STAGE: _writes_as,
    Op.CREATE_TOPIC: _sets,
    Op.CONFIGURE_TOPIC: _sets,
    Op.DELETE_TOPIC: _administers,
    Op.TOPICS: _anybody,  # who hears of what one sees
    Op.TOPIC_INFO: _sees,
    Op.TOPIC_STATS: _sees,
    Op.BACKUP: _everything,
    Op.PURGE_TOPIC: _administers,
    Op.OPEN_READER: _topic("consume"),
    Op.OPEN_FEED: _feeds,
    Op.TAKE: _stream,
    Op.SEEK: _stream,
    Op.COMMIT: _stream,
    Op.POSITION: _stream,
    Op.LAG: _stream,
    Op.CLOSE_STREAM: _anybody,
    Op.FETCH: _topic("consume"),
    Op.PUT_BACK: _stream,
    Op.EXTENTS: _sees_all,
    Op.WAIT_BEYOND: _sees_all_offsets,
    Op.JOIN_GROUP: _topic("consume"),
    Op.TAKE_LEASED: _stream,
    Op.SETTLE: _stream,
    Op.GROUPS: _topic("consume", "administer"),
    Op.GROUP_STATS: _topic("consume", "administer"),
    Op.PAUSE_GROUP: _topic("administer"),
    Op.RESET_GROUP: _topic("administer"),
    Op.DELETE_GROUP: _topic("administer"),
    Op.PEEK: _topic("consume"),
    Op.IN_FLIGHT: _topic("consume", "administer"),
    Op.DEAD_LETTERS: _topic("consume"),
    Op.REDRIVE: _topic("administer"),
    Op.DISCARD: _topic("administer"),
    Op.CANCEL_DELAYED: _topic("publish"),
}

may_publish: Rule = RULES[Op.PUBLISH]
