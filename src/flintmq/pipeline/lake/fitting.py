"""Rows as the columns of a table: columns that are new are added to it, those that rows do not have
are null, and rows of another type are an error that names the column and both types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest
from ..define.partitions import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE = ("tinyint", "smallint", "int", "bigint")
REAL = ("float", "double")


@dataclass(frozen=True, slots=True)
class Fit:
    """How rows become rows of a table."""

    added: Any
    """Fields of the rows that the table does not have, as a type of Spark."""
    columns: Sequence[tuple[str, Any, str | None]]
    """Of the table: name, type, and the column of the rows, if they have it."""

    def rows(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions

        return frame.select(
            *(
                (functions.lit(None) if source is None else functions.col(quoted(source)))
                .cast(kind)
                .alias(name)
                for name, kind, source in self.columns
            )
        )


def fit(rows: Any, table: Any, what: str) -> Fit:
    """Compare the schema of rows with that of a table, both as Spark's StructType.

    Raises InvalidRequest with every column that does not fit.
    """
    from pyspark.sql.types import StructType

    by_name = {field.name.lower(): field for field in rows.fields}
    if len(by_name) < len(rows.fields):
        raise InvalidRequest(f"{what}: two columns of the rows differ only in case")
    known = {field.name.lower() for field in table.fields}
    wrong = []
    columns: list[tuple[str, Any, str | None]] = []
    for field in table.fields:
        found = by_name.get(field.name.lower())
        kind = field.dataType.simpleString()
        if found is None or found.dataType.simpleString() == "void":
            if not field.nullable:
                wrong.append(f"column {field.name!r}: the table needs it, and the rows have none")
            columns.append((field.name, field.dataType, None))
            continue
        if not is_wider(kind, found.dataType.simpleString()):
            wrong.append(
                f"column {field.name!r}: the table has {kind}, and the rows have "
                f"{found.dataType.simpleString()}"
            )
        columns.append((field.name, field.dataType, found.name))
    added = [field for field in rows.fields if field.name.lower() not in known]
    added = [field for field in added if field.dataType.simpleString() != "void"]
    columns += [(field.name, field.dataType, field.name) for field in added]
    if wrong:
        raise InvalidRequest(
            f"{what} does not take these rows: {'; '.join(wrong)}. Cast in a step, or write to "
            "another table"
        )
    return Fit(StructType(added), columns)


def is_wider(table: str, rows: str) -> bool:
    """Whether a column of the table takes all values of the rows' type."""
    for kinds in (WHOLE, REAL):
        if table in kinds and rows in kinds:
            return kinds.index(table) >= kinds.index(rows)
    return table == rows


def nullable(kind: Any) -> Any:
    """A type for a new table: anything may be null later. Columns without a type are left out."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(field.name, nullable(field.dataType))
                for field in kind.fields
                if field.dataType.simpleString() != "void"
            ]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def with_parts(frame: DataFrame, partitions: Sequence[Partition]) -> DataFrame:
    """Add the columns of times that are cut down: `at_day` for `day(at)`."""
    for one in partitions:
        if one.unit is not None:
            if one.name.lower() in {name.lower() for name in frame.columns}:
                raise InvalidRequest(
                    f"partition_by {one.unit}({one.column}) makes a column {one.name!r}, which the "
                    "rows have already: rename it in a step"
                )
            frame = frame.withColumn(one.name, part(one))
    return frame


def part(one: Partition) -> Any:
    """The value of a partition, as a column: 2026, 2026-11, a date, 2026-11-18-23."""
    from pyspark.sql import functions

    column = functions.col(quoted(one.column))
    match one.unit:
        case None:
            return column
        case "year":
            return functions.year(column)
        case "month":
            return functions.date_format(column, "yyyy-MM")
        case "day":
            return functions.to_date(column)
        case "hour":
            return functions.date_format(column, "yyyy-MM-dd-HH")


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
