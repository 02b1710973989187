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


Check = Callable[[Asker, Any], None]


class Rule(NamedTuple):
    """What a key needs, in words and as a check that raises PermissionDenied."""

    text: str
    check: Check


def _checked(name: Any) -> str:
    if type(name) is not str:
        raise InvalidRequest(f"a topic name is a str, not {type(name).__name__}")
    return name


def _anybody(asker: Asker, control: Any) -> None:
    """It concerns nothing but the session itself."""


def _topic(permission: Permission) -> Rule:
    """This on the topic that is named."""

    def check(asker: Asker, control: Any) -> None:
        topic = control.topic
        if type(topic) is not str or permission not in asker.access.permissions_on(topic):
            asker.access.require(permission, _checked(topic))

    return Rule(f"`{permission}` on the topic", check)


def _looks(asker: Asker, control: Any) -> None:
    asker.access.require_one_of(("consume", "administer"), _checked(control.topic))


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


def _consumes_each(asker: Asker, control: Extents) -> None:
    for topic in control.topics:
        asker.access.require("consume", _checked(topic))


def _consumes_each_offset(asker: Asker, control: WaitBeyond) -> None:
    for topic in control.offsets:
        asker.access.require("consume", topic)


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


ANYBODY = Rule("nothing", _anybody)
PUBLISH = _topic("publish")
CONSUME = _topic("consume")
ADMINISTER = _topic("administer")
LOOK = Rule("`consume` or `administer` on the topic", _looks)
SEE = "any permission on the topic"
NAMED = Rule(ADMINISTER.text, _administers)
STREAM = Rule("still what it was opened with", _stream)
WRITER = Rule("`publish` on all topics the writer has written to", _writes_as)
SETS = Rule("`administer` on the topic, `publish` on its `dead_letter_topic` if one is set", _sets)

RULES: dict[Op, Rule] = {
    Op.OPEN: Rule("a key: the gate itself", _anybody),
    Op.PING: ANYBODY,
    Op.CANCEL: ANYBODY,
    Op.GOODBYE: ANYBODY,
    Op.PUBLISH: PUBLISH,
    Op.STAGE: Rule("`publish` on each topic, and on all the writer has written to", _stages),
    Op.COMMIT_STAGE: WRITER,
    Op.ABORT_STAGE: WRITER,
    Op.CREATE_TOPIC: SETS,
    Op.CONFIGURE_TOPIC: SETS,
    Op.DELETE_TOPIC: NAMED,
    Op.TOPICS: Rule("nothing; topics that the key does not see are left out", _anybody),
    Op.TOPIC_INFO: Rule(SEE, _sees),
    Op.TOPIC_STATS: Rule(SEE, _sees),
    Op.BACKUP: Rule("`administer` on `>`", _everything),
    Op.PURGE_TOPIC: NAMED,
    Op.OPEN_READER: CONSUME,
    Op.OPEN_FEED: Rule("`consume` on all that the pattern could match, by one grant", _feeds),
    Op.TAKE: STREAM,
    Op.SEEK: STREAM,
    Op.COMMIT: STREAM,
    Op.POSITION: STREAM,
    Op.LAG: STREAM,
    Op.CLOSE_STREAM: ANYBODY,
    Op.FETCH: CONSUME,
    Op.FETCH_RANGE: CONSUME,
    Op.PUT_BACK: STREAM,
    Op.EXTENTS: Rule(CONSUME.text, _consumes_each),
    Op.WAIT_BEYOND: Rule(CONSUME.text, _consumes_each_offset),
    Op.JOIN_GROUP: CONSUME,
    Op.TAKE_LEASED: STREAM,
    Op.SETTLE: STREAM,
    Op.GROUPS: LOOK,
    Op.GROUP_STATS: LOOK,
    Op.PAUSE_GROUP: ADMINISTER,
    Op.RESET_GROUP: ADMINISTER,
    Op.DELETE_GROUP: ADMINISTER,
    Op.PEEK: CONSUME,
    Op.IN_FLIGHT: LOOK,
    Op.DEAD_LETTERS: CONSUME,
    Op.REDRIVE: ADMINISTER,
    Op.DISCARD: ADMINISTER,
    Op.CANCEL_DELAYED: PUBLISH,
}

may_publish: Check = PUBLISH.check
