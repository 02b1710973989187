"""Tables of both kinds, as tests write and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flintmq.pipeline.lake.delta import DeltaTarget
from flintmq.pipeline.lake.iceberg import IcebergTarget

from .object_store import ObjectStore

Kind = Literal["delta", "iceberg"]
KINDS: tuple[Kind, ...] = ("delta", "iceberg")
FLOW = "orders/1"


class LakeOfTest:
    """One table in a directory of the test."""

    def __init__(self, kind: Kind, directory: Path, store: ObjectStore | None = None) -> None:
        self.kind, self.directory, self._store = kind, directory, store
        directory.mkdir(parents=True, exist_ok=True)
        if store is not None:
            store.bucket("lake")

    @property
    def name(self) -> str:
        if self.kind == "iceberg":
            return "shop.orders"
        return str(self.directory / "orders") if self._store is None else "s3://lake/orders"

    @property
    def options(self) -> Mapping[str, str]:
        if self.kind == "delta":
            return {} if self._store is None else self._store.of_delta
        here = f"file://{self.directory}/warehouse"
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": here if self._store is None else "s3://lake/ice",
            **({} if self._store is None else self._store.of_iceberg),
        }

    def target(self, flow: str = FLOW, **more: Any) -> Any:
        made = DeltaTarget if self.kind == "delta" else IcebergTarget
        return made(self.name, application=flow, options=self.options, **more)

    def rows(self) -> list[dict[str, Any]]:
        if self.kind == "delta":
            table = self._delta().to_pyarrow_table()
        else:
            table = self._iceberg().scan().to_arrow()
        found: list[dict[str, Any]] = table.to_pylist()
        return sorted(found, key=lambda row: int(row["id"]))

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]

    def files(self) -> list[str]:
        """Of the newest version."""
        if self.kind == "delta":
            return sorted(self._delta().file_uris())
        tasks = self._iceberg().scan().plan_files()
        return sorted(task.file.file_path.removeprefix("file://") for task in tasks)

    def stored(self) -> list[str]:
        """All files of rows, whether a version has them or not."""
        return sorted(
            str(path) for path in self.directory.rglob("*.parquet") if "_log" not in str(path)
        )

    def files_with(self, column: str, value: str) -> list[str]:
        """Those that a reader opens who asks for one value."""
        if self.kind == "delta":
            return list(self._delta().file_uris(file_pruning_predicate=[(column, "=", value)]))
        scan = self._iceberg().scan(row_filter=f"{column} = '{value}'")
        return [task.file.file_path for task in scan.plan_files()]

    def _delta(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.name, storage_options=dict(self.options) or None)

    def _iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.options).load_table(self.name)


def some_rows(spark: Any, ids: Sequence[int]) -> Any:
    """Orders of two regions and of two days."""
    return spark.createDataFrame(
        [(n, ["eu", "us"][n % 2], n / 2, 1_700_000_000 + n % 3 * 40_000) for n in ids],
        "id bigint, region string, amount double, second bigint",
    ).selectExpr("id", "region", "amount", "timestamp_seconds(second) as at")
