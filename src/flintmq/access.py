"""Who may do what: permissions on topics, by pattern. Pure.

A permission is asked by name before anybody looks whether the topic is there, so an answer gives
nothing away about topics that one may not see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from .errors import InvalidRequest, PermissionDenied
from .patterns import check_pattern, covers, matches

Permission = Literal["publish", "consume", "administer"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
LOOKING: tuple[Permission, ...] = ("consume", "administer")
"""Either shows how a topic and its groups are doing."""

KNOWN_MAX = 4096
KNOWN_NAME_MAX = 256
"""Decisions are remembered for so many topics, and for names up to so many characters: what a
client asks for must not fill the memory."""


@dataclass(frozen=True, slots=True)
class TopicGrant:
    """Some permissions on every topic whose name a pattern matches."""

    pattern: str
    permissions: frozenset[Permission]

    @classmethod
    def of(cls, pattern: str, permissions: Iterable[str]) -> TopicGrant:
        chosen: set[Permission] = set()
        for one in permissions:
            if one not in PERMISSIONS:
                raise InvalidRequest(
                    f"a permission must be {', '.join(PERMISSIONS[:-1])} or "
                    f"{PERMISSIONS[-1]}, not {one!r}"
                )
            chosen.add(one)
        if not chosen:
            raise InvalidRequest(f"a grant on {pattern!r} needs permissions, for example publish")
        return cls(check_pattern(pattern), frozenset(chosen))


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody who has said who they are may do.

    Never changed: a key with other grants has another Access, so what was decided can be remembered
    here, and a publish costs one look into a dict.
    """

    name: str
    """Of the key, for logs and lists; no secret."""
    grants: tuple[TopicGrant, ...]
    key: str = ""
    """The public id of the key; empty where nobody was asked for one."""
    _known: dict[str, frozenset[Permission]] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    def permissions_on(self, topic: str) -> frozenset[Permission]:
        found = self._known.get(topic)
        if found is None:
            plain = topic.partition("/")[0]  # a partition is its topic's
            found = frozenset[Permission](
                permission
                for grant in self.grants
                if matches(grant.pattern, plain)
                for permission in grant.permissions
            )
            if len(topic) <= KNOWN_NAME_MAX:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[topic] = found
        return found

    def may(self, permission: Permission, topic: str) -> bool:
        return permission in self.permissions_on(topic)

    def may_all_of(self, permission: Permission, pattern: str) -> bool:
        """Whether every topic that `pattern` could ever match is covered by one grant."""
        return any(
            permission in grant.permissions and covers(grant.pattern, pattern)
            for grant in self.grants
        )

    def sees(self, topic: str) -> bool:
        """Whether there is anything one may do with it; what one may not see is not listed."""
        return bool(self.permissions_on(topic))

    def require(self, permission: Permission, topic: str) -> None:
        if permission not in self.permissions_on(topic):
            raise PermissionDenied(permission, topic)

    def require_one_of(self, permissions: Iterable[Permission], topic: str) -> None:
        wanted = list(permissions)
        if self.permissions_on(topic).isdisjoint(wanted):
            raise PermissionDenied(" or ".join(wanted), topic)

    def may_look(self, topic: str) -> bool:
        return not self.permissions_on(topic).isdisjoint(LOOKING)

    def require_look_at_all(self) -> None:
        if not any(self.may_all_of(one, ">") for one in LOOKING):
            raise PermissionDenied(" or ".join(LOOKING), ">")

    def may_create(self, topic: str) -> bool:
        """Topics are made on the fly by those who may publish to them, or administer them."""
        return self.may("publish", topic) or self.may("administer", topic)

    def is_operator(self) -> bool:
        """Whether of the whole broker."""
        return self.may_all_of("administer", ">")

    def require_operator(self) -> None:
        self.require_all_of("administer", ">")

    def require_sees(self, topic: str) -> None:
        if not self.permissions_on(topic):
            raise PermissionDenied("see", topic, "topic")

    def require_all_of(self, permission: Permission, pattern: str) -> None:
        if not self.may_all_of(permission, pattern):
            raise PermissionDenied(permission, pattern)


EVERYTHING = Access("", (TopicGrant(">", frozenset(PERMISSIONS)),))
"""Of a broker that asks nobody who they are."""
