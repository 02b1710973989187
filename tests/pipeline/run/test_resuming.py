"""What a checkpoint cannot bear, told by comparing facts; what it can, is let pass."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flintmq.pipeline.define.definition import NOWHERE, FilePlace, Step
from flintmq.pipeline.run.checkpoints import NOTES, directory
from flintmq.pipeline.run.resuming import (
    CannotResume,
    FlowFacts,
    SourceFacts,
    changes,
    resume,
    step_digest,
)

ORDERS = SourceFacts(kind="topics", places=["orders"], decoding="d1")
BEFORE = FlowFacts(
    pipeline="rollup",
    flow="totals",
    sources={"orders": ORDERS},
    streams=1,
    has_state=True,
    steps={"totals": "s1"},
    sink="topic",
    to="orders.totals",
    mode="append",
    partition_by=[],
)


def with_source(**changed: object) -> dict[str, SourceFacts]:
    return {"orders": msgspec.structs.replace(ORDERS, **changed)}


DEPENDS = "and its state depends on it"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pipeline": "other"}, "it belongs to flow 'totals' of pipeline 'rollup'"),
        ({"steps": {"totals": "s2"}}, f"step 'totals' changed, {DEPENDS}"),
        ({"steps": {}}, f"step 'totals' was removed, {DEPENDS}"),
        (
            {"steps": {"totals": "s1", "clean": "s3"}},
            "step 'clean' is new, and its state depends on it",
        ),
        ({"has_state": False, "steps": {}}, "it now keeps no state, and did before"),
        (
            {"sources": with_source(decoding="d2")},
            f"the schema, format or watermark of source 'orders' changed, {DEPENDS}",
        ),
        (
            {"sources": with_source(places=["orders.eu"])},
            "source 'orders' no longer reads 'orders'",
        ),
        (
            {"sources": with_source(kind="pattern", places=["orders.>"])},
            "source 'orders' read topics 'orders', and now reads pattern 'orders.>'",
        ),
        (
            {"sources": {"sales": ORDERS}},
            "source 'orders' was removed; source 'sales' is new",
        ),
        (
            {"sources": {"orders": ORDERS, "sales": ORDERS}, "streams": 2},
            "source 'sales' is new; it read one stream, and now reads 2 streams",
        ),
        ({"mode": "update"}, "its mode was 'append', and is now 'update'"),
        (
            {"sink": "parquet", "to": "/data"},
            "it wrote to topic 'orders.totals', and now writes to parquet '/data'",
        ),
        ({"to": "sums"}, "it wrote to topic 'orders.totals', and now writes to 'sums'"),
        (
            {"partition_by": ["day"]},
            "its files were partitioned by nothing, and are now by day",
        ),
    ],
)
def test_what_changed_is_told(changed: dict[str, object], told: str) -> None:
    now = msgspec.structs.replace(BEFORE, **changed)

    assert "; ".join(changes(BEFORE, now)) == told


def test_the_order_of_several_streams_matters_and_so_does_every_step_of_them() -> None:
    two = msgspec.structs.replace(
        BEFORE, has_state=False, streams=2, sources={"a": ORDERS, "b": ORDERS}
    )
    turned = msgspec.structs.replace(two, sources={"b": ORDERS, "a": ORDERS})

    assert changes(two, turned) == ["its sources are in another order"]
    assert changes(two, msgspec.structs.replace(two, steps={"totals": "s2"})) == [
        "step 'totals' changed, and the order of its streams depends on it"
    ]


def test_more_topics_are_fine() -> None:
    more = msgspec.structs.replace(BEFORE, sources=with_source(places=["orders", "orders.eu"]))

    assert changes(BEFORE, more) == []
    assert changes(BEFORE, BEFORE) == []


def test_comments_and_layout_of_sql_and_functions_do_not_matter_and_what_they_do_does(
    tmp_path: Path,
) -> None:
    def sql(text: str) -> str:
        return step_digest(Step(name="s", sql=text))

    assert sql("select a, 'x y' from t") == sql("-- why\nselect a,\n  'x y' /* so */ from t")
    assert sql("select a, 'x y' from t") != sql("select a, 'x  y' from t")

    def code(text: str) -> str:
        (tmp_path / "f.py").write_text(text)
        place = FilePlace(str(tmp_path / "p.toml"))
        return step_digest(Step(name="s", function="f.py:f", inputs=("t",), place=place))

    first = code("def f(t):\n    return t\n")
    assert first == code('"""Says."""\n\ndef f(t):\n    """More."""\n    return t  # so\n')
    assert first != code("def f(t):\n    return t.limit(1)\n")


def checkpoint(tmp_path: Path, *batches: int) -> Path:
    (tmp_path / "offsets").mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (tmp_path / "offsets" / str(batch)).touch()
    return tmp_path


def noted(path: Path, facts: FlowFacts) -> str:
    return resume(directory(None, str(path)), facts, NOWHERE)


def test_a_checkpoint_keeps_its_id_and_a_new_one_has_another(tmp_path: Path) -> None:
    first = noted(checkpoint(tmp_path / "a"), BEFORE)

    assert noted(tmp_path / "a", BEFORE) == first
    assert noted(checkpoint(tmp_path / "b"), BEFORE) != first


def test_before_the_first_batch_everything_may_change_and_after_it_is_refused(
    tmp_path: Path,
) -> None:
    noted(checkpoint(tmp_path), BEFORE)
    other = msgspec.structs.replace(BEFORE, mode="update")
    noted(tmp_path, other)

    checkpoint(tmp_path, 0)
    with pytest.raises(CannotResume) as refused:
        noted(tmp_path, BEFORE)

    assert str(refused.value) == (
        f"<python>: flow 'totals' cannot continue from its checkpoint in {tmp_path}: its mode "
        "was 'update', and is now 'append'. Undo the change, use a new checkpoint (--checkpoint "
        "DIR), or start over with --from-scratch"
    )


@pytest.mark.parametrize("notes", [None, "{", "{}"])
def test_a_checkpoint_of_somebody_else_is_refused(tmp_path: Path, notes: str | None) -> None:
    checkpoint(tmp_path, 0)
    if notes is not None:
        (tmp_path / NOTES).write_text(notes)

    with pytest.raises(CannotResume):
        noted(tmp_path, BEFORE)
