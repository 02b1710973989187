"""Settings of a cluster lie over those of a node, and go again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flintmq.config.shared import NAMES, overlaid, parsed, values_in
from flintmq.config.table import SETTINGS, Config
from flintmq.daemon.reloading import Reloading
from flintmq.errors import InvalidRequest
from flintmq.model import Definition


def setting(name: str, value: bytes) -> Definition:
    return Definition("setting", "", name, value, 1)


def test_what_is_understood_lies_over_the_configuration_of_a_node() -> None:
    values = values_in(
        [setting("auto_create", b"false"), setting("of.a.later.version", b"1"),
         setting("staged_seconds", b"\xff")]
    )  # fmt: skip

    found = overlaid(Config(data_dir=Path("d")), values)

    assert found.auto_create is False
    assert found.sources["auto_create"] == "the cluster"
    assert values.keys() == {"auto_create"}


@pytest.mark.parametrize(("name", "value"), [("listen", "1:2"), ("staged_seconds", "soon")])
def test_what_no_cluster_keeps_is_refused_with_what_it_keeps(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        parsed(name, value)


def test_all_of_them_can_be_changed_while_a_broker_runs() -> None:
    assert [one.name for one in SETTINGS if one.name in NAMES and not one.reload] == []


def test_a_reload_changes_what_is_below_and_not_what_the_cluster_says() -> None:
    own = Config(data_dir=Path("d"))
    reread = [msgspec.structs.replace(own, staged_seconds=50.0, auto_create=True)]
    reloading = Reloading(own, lambda: reread[0])
    told: list[tuple[bool, float]] = []
    reloading.on_reload.append(
        lambda before, after: told.append((after.auto_create, after.staged_seconds))
    )

    reloading.share({"auto_create": False})
    reloading.reload(has_keys=False)
    reloading.share({})

    assert told == [(False, own.staged_seconds), (False, 50.0), (True, 50.0)]
    assert reloading.config.auto_create is True
