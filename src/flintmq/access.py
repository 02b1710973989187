"""Who may do what: permissions on topics, by pattern. Pure.

A permission is asked by name before anybody looks whether the topic is there, so an answer gives
nothing away about topics that one may not see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from .errors import InvalidRequest, PermissionDenied
from .patterns import check_pattern, covers, matches

Permission = Literal["publish", "consume", "administer"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)


@dataclass(frozen=True, slots=True)
class Grant:
    """Some permissions on every topic whose name a pattern matches."""

    pattern: str
    permissions: frozenset[Permission]

    @classmethod
    def of(cls, pattern: str, permissions: Iterable[str]) -> Grant:
        chosen: set[Permission] = set()
        for one in permissions:
            if one not in PERMISSIONS:
                raise InvalidRequest(
                    f"a permission is {', '.join(PERMISSIONS[:-1])} or {PERMISSIONS[-1]}, "
                    f"not {one!r}"
                )
            chosen.add(one)
        return cls(check_pattern(pattern), frozenset(chosen))


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody who has said who they are may do."""

    name: str
    """Of the key, for logs and lists; no secret."""
    grants: tuple[Grant, ...]

    def may(self, permission: Permission, topic: str) -> bool:
        plain = topic.partition("/")[0]  # a partition is its topic's
        return any(
            permission in grant.permissions and matches(grant.pattern, plain)
            for grant in self.grants
        )

    def may_all_of(self, permission: Permission, pattern: str) -> bool:
        """Whether every topic that `pattern` could ever match is covered by one grant."""
        return any(
            permission in grant.permissions and covers(grant.pattern, pattern)
            for grant in self.grants
        )

    def sees(self, topic: str) -> bool:
        """Whether there is anything one may do with it; what one may not see is not listed."""
        return any(self.may(permission, topic) for permission in PERMISSIONS)

    def require(self, permission: Permission, topic: str) -> None:
        if not self.may(permission, topic):
            raise PermissionDenied(permission, topic)

    def require_all_of(self, permission: Permission, pattern: str) -> None:
        if not self.may_all_of(permission, pattern):
            raise PermissionDenied(permission, pattern)


EVERYTHING = Access("", (Grant(">", frozenset(PERMISSIONS)),))
"""Of a broker that asks nobody who they are."""
