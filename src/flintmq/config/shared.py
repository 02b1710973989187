"""Settings that a cluster keeps for all of its nodes, in the place of what each was started with.

They decide what the node that leads does, whichever that is: nodes that differ in them would act
differently from one moment to the next. As definitions of no topic, each has its value as text, as
an environment variable would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..errors import InvalidRequest
from ..model import Definition
from .kinds import UnfitValue
from .table import SETTINGS, Config

KIND = "setting"
"""Of the definitions."""
NAMES = (
    "auto_create",
    "topic_defaults",
    "staged_seconds",
    "producer_seconds",
    "max_producer_bytes",
)
FROM = "the cluster"
"""The source of such a setting."""

_BY_NAME = {setting.name: setting for setting in SETTINGS if setting.name in NAMES}


def parsed(name: str, text: str) -> Any:
    """Raises InvalidRequest for what no cluster keeps, or for a value that is none."""
    setting = _BY_NAME.get(name)
    if setting is None:
        raise InvalidRequest(
            f"the cluster keeps {', '.join(NAMES)}, but not {name}: set it on each node"
        )
    try:
        return setting.from_text(text)
    except UnfitValue as error:
        raise InvalidRequest(f"{name}: {error}") from None


def values_in(definitions: Iterable[Definition]) -> dict[str, Any]:
    """What is understood of them: a later version may keep more."""
    found: dict[str, Any] = {}
    for one in definitions:
        try:
            found[one.name] = parsed(one.name, one.value.decode())
        except (InvalidRequest, UnicodeDecodeError):
            continue
    return found


def overlaid(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration of a node, with those of the cluster in the place of its own."""
    if not values:
        return config
    sources = {**config.sources, **dict.fromkeys(values, FROM)}
    return msgspec.structs.replace(config, **values, sources=sources)
