"""What operations of the native protocol ask of a key, checked before anything else is looked at.

A rule sees names and grants only, never whether a topic exists: a refusal reads the same in both
cases, and takes as long. `operations.py` says which operation has which rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

from ...access import LOOKING, Access, Permission
from ...errors import FlintError, InvalidRequest, PermissionDenied


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


class Revocable(Protocol):
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
        raise InvalidRequest(f"a topic name must be a str, not {type(name).__name__}")
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
    asker.access.require_one_of(LOOKING, _checked(control.topic))


def _sees(asker: Asker, control: Any) -> None:
    asker.access.require_sees(_checked(control.name))


def _sees_each(asker: Asker, control: Any) -> None:
    for name in control.names:
        asker.access.require_sees(_checked(name))


def _administers(asker: Asker, control: Any) -> None:
    asker.access.require("administer", _checked(control.name))


def _sets(asker: Asker, control: Any) -> None:
    """Dead letters are published on behalf of the key that sets this."""
    _administers(asker, control)
    target = control.options.get("dead_letter_topic")
    if target is not None:
        asker.access.require("publish", _checked(target))


def _publishes_each(asker: Asker, control: Any) -> None:
    for publish in control.publishes:
        PUBLISH.check(asker, publish)


def _consumes_each(asker: Asker, control: Any) -> None:
    for topic in control.topics:
        asker.access.require("consume", _checked(topic))


def _consumes_each_offset(asker: Asker, control: Any) -> None:
    for topic in control.offsets:
        asker.access.require("consume", topic)


def _everything(asker: Asker, control: Any) -> None:
    asker.access.require_operator()


def _administers_one_or_all(asker: Asker, control: Any) -> None:
    if not control.topic:
        _everything(asker, control)
    else:
        ADMINISTER.check(asker, control)


def _stages(asker: Asker, control: Any) -> None:
    for topic in control.topics:
        asker.access.require("publish", _checked(topic))
    _writes_as(asker, control)


def _writes_as(asker: Asker, control: Any) -> None:
    """A writer is everybody's who may publish to all topics it has written to. Else one key could
    commit, abort or overtake what another has staged."""
    writer, access = control.writer, asker.access
    if type(writer) is not str or access.may_all_of("publish", ">"):
        return  # the broker says what is wrong with the name
    for topic in asker.writer_topics(writer):
        if not access.may("publish", topic):
            raise PermissionDenied("publish", writer, "as writer")


def _feeds(asker: Asker, control: Any) -> None:
    """All that the pattern could ever match: what is made later is covered too."""
    asker.access.require_all_of("consume", _checked(control.pattern))


def _stream(asker: Asker, control: Any) -> None:
    """What was needed to open it is still granted; looked at whenever keys change."""
    denied = asker.stream(control.stream).denied
    if denied is not None:
        raise denied


OPEN = Rule("a key: the gate itself", _anybody)
ANYBODY = Rule("nothing", _anybody)
ADDRESS = Rule("none: only who got the request knows its reply address", _anybody)
LIST = Rule("nothing; topics that the key does not see are left out", _anybody)
PUBLISH = _topic("publish")
PUBLISH_EACH = Rule(PUBLISH.text, _publishes_each)
CONSUME = _topic("consume")
ADMINISTER = _topic("administer")
ADMINISTER_ANY = Rule(
    "`administer` on the topic; on `>` where none is named, as for keys of a cluster",
    _administers_one_or_all,
)
LOOK = Rule("`consume` or `administer` on the topic", _looks)
SEE = Rule("any permission on the topic", _sees)
SEE_EACH = Rule(SEE.text, _sees_each)
EVERYTHING = Rule("`administer` on `>`", _everything)
FEED = Rule("`consume` on everything the pattern could match, in one grant", _feeds)
EACH_TOPIC = Rule(CONSUME.text, _consumes_each)
EACH_OFFSET = Rule(CONSUME.text, _consumes_each_offset)
STAGE = Rule("`publish` on each topic, and on all the writer has written to", _stages)
NAMED = Rule(ADMINISTER.text, _administers)
STREAM = Rule("what opening it needed", _stream)
WRITER = Rule("`publish` on all topics the writer has written to", _writes_as)
SETS = Rule("`administer` on the topic, `publish` on its `dead_letter_topic` if one is set", _sets)

may_publish: Check = PUBLISH.check
