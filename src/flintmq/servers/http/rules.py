"""Who may use a route: one rule each, asked before anybody looks whether something is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...access import Access, Permission


class Rule(NamedTuple):
    """What a key needs, in words and as a check that raises PermissionDenied."""

    text: str
    check: Callable[[Access, Mapping[str, str]], None]


def on_topic(*permissions: Permission) -> Rule:
    """One of these on the topic of the path."""

    def check(access: Access, path: Mapping[str, str]) -> None:
        if not any(access.may(permission, path["topic"]) for permission in permissions):
            access.require(permissions[0], path["topic"])

    return Rule(" or ".join(f"`{one}`" for one in permissions) + " on the topic", check)


def _see(access: Access, path: Mapping[str, str]) -> None:
    if not access.sees(path["topic"]):
        access.require("consume", path["topic"])  # which it may not either


def _of_the_broker(access: Access, path: Mapping[str, str]) -> None:
    access.require_all_of("administer", ">")


CONSUME, PUBLISH, ADMINISTER = on_topic("consume"), on_topic("publish"), on_topic("administer")
LOOK = on_topic("consume", "administer")
SEE = Rule("any permission on the topic", _see)
BROKER = Rule("`administer` on `>`", _of_the_broker)
ANY_KEY = Rule("any key; what it may not see is left out", lambda access, path: None)
