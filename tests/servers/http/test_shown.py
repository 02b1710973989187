"""Models of the JSON API are made from the values they show."""

from __future__ import annotations

from typing import get_type_hints

import msgspec
import pytest

from flintmq.client import dead_letters
from flintmq.frontends.http import models
from flintmq.frontends.http.shown import Model, Number, show, shows
from flintmq.group_model import GroupInfo, GroupStats, InFlight
from flintmq.model import TEXT_IN_JSON, Receipt, TopicInfo, TopicStats


class Place(msgspec.Struct, frozen=True):
    topic: str
    secret: str
    offset: int | None
    partition: int = 0
    count: int = 1
    ranges: list[tuple[int, int]] = []


@shows(Place, first=("partition",), without=("secret",), optional=("ranges",))
class ShownPlace(Model):
    """Where it is."""

    count: float
    note: str


def test_a_model_has_the_fields_of_its_value_then_its_own() -> None:
    names = ["partition", "topic", "offset", "count", "ranges", "note"]

    assert list(ShownPlace.__struct_fields__) == names
    assert (ShownPlace.__name__, ShownPlace.__doc__) == ("ShownPlace", "Where it is.")
    kinds = get_type_hints(ShownPlace, include_extras=True)
    assert (kinds["offset"], kinds["partition"]) == (Number | None, Number)
    assert (kinds["topic"], kinds["count"], kinds["note"]) == (str, float, str)
    required = [field.name for field in msgspec.structs.fields(ShownPlace) if field.required]
    assert required == ["partition", "topic", "offset", "count", "note"]


def test_offsets_are_shown_as_text_and_nothing_as_null() -> None:
    shown = show(ShownPlace, Place("t", "hidden", 2**60, 3, ranges=[(1, 2)]), note="n")
    nowhere = show(ShownPlace, Place("t", "hidden", None), note="n")

    assert msgspec.json.encode(shown) == (
        b'{"partition":"3","topic":"t","offset":"1152921504606846976","count":1,'
        b'"ranges":[[1,2]],"note":"n"}'
    )
    assert msgspec.to_builtins(nowhere)["offset"] is None


@pytest.mark.parametrize(
    "value", [TopicStats, TopicInfo, GroupStats, GroupInfo, InFlight, Receipt,
              dead_letters.DeadLetter],
    ids=lambda value: value.__name__,
)  # fmt: skip
def test_every_field_of_64_bits_is_shown_as_text(value: type[msgspec.Struct]) -> None:
    kinds = get_type_hints(value)
    wide = [
        name
        for name, kind in kinds.items()
        if kind in (int, int | None)
        and name.rpartition("_")[2] in ("offset", "id", "partition", "position")
    ]

    assert set(wide) <= set(TEXT_IN_JSON)


def test_a_receipt_says_first_where_it_is() -> None:
    shown = show(models.Receipt, Receipt("orders", 7, partition=2))

    assert msgspec.json.encode(shown) == (
        b'{"topic":"orders","partition":"2","offset":"7","count":1,"dropped":0,'
        b'"duplicate":false,"durability":"memory"}'
    )
