"""Who may use a route: one rule each, asked before anybody looks whether something is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...access import LOOKING, Access, Permission


class ApiRule(NamedTuple):
    """What a key needs, in words and as a check that raises PermissionDenied."""

    text: str
    check: Callable[[Access, Mapping[str, str]], None]


def on_topic(*permissions: Permission) -> ApiRule:
    """One of these on the topic of the path."""
    return ApiRule(
        " or ".join(f"`{one}`" for one in permissions) + " on the topic",
        lambda access, path: access.require_one_of(permissions, path["topic"]),
    )


def _see(access: Access, path: Mapping[str, str]) -> None:
    access.require_sees(path["topic"])


def _of_the_broker(access: Access, path: Mapping[str, str]) -> None:
    access.require_operator()


def _stream(access: Access, path: Mapping[str, str]) -> None:
    if is_pattern(path["topic"]):
        access.require_all_of("consume", path["topic"])
    else:
        access.require("consume", path["topic"])


def is_pattern(topic: str) -> bool:
    return not {"*", ">"}.isdisjoint(topic.split("."))


CONSUME, PUBLISH, ADMINISTER = on_topic("consume"), on_topic("publish"), on_topic("administer")
SETS = ApiRule(
    f"{ADMINISTER.text}, `publish` on its `dead_letter_topic` if one is set",
    ADMINISTER.check,  # the rest is in the body: the handler asks
)
STREAM = ApiRule("`consume` on the topic, or on all that the pattern matches", _stream)
LOOK = on_topic(*LOOKING)
SEE = ApiRule("any permission on the topic", _see)
BROKER = ApiRule("`administer` on `>`", _of_the_broker)
ANY_KEY = ApiRule("any key; the result contains only what it may see", lambda access, path: None)
ADDRESS = ApiRule(
    "none: only who got the request knows its reply address", lambda access, path: None
)
