"""Which tables a query reads, found in its text."""

from __future__ import annotations

import pytest

from flintmq.pipeline.define.sql_names import Mention, as_streams, mentions


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select * from orders", ("orders",)),
        ("SELECT * FROM Orders o", ("Orders",)),
        ("from orders select a", ("orders",)),
        ("table orders", ("orders",)),
        ("select a, b from x, `y z` as q, w", ("x", "y z", "w")),
        ("select * from a left join b on a.i = b.i and f(a.k, b.k), c", ("a", "b", "c")),
        ("select * from a join b using (i, j) join c", ("a", "b", "c")),
        ("select * from (a join b using (i))", ("a", "b")),
        ("select * from (select * from a, b) s, c", ("a", "b", "c")),
        ("select * from a where i in (select j from b) order by c, d", ("a", "b")),
        ("select x from a group by window(at, '1 minute'), y", ("a",)),
        ("select * from a union all select * from b", ("a", "b")),
        ("select * from a as t (x, y), b", ("a", "b")),
        # names that a query makes itself
        ("with t as (select * from a), u (x, y) as (select 1, 2) select * from t, u", ("a",)),
        ("with a as (select * from a where f(x)) select * from a", ("a",)),
        ("with a as (select * from b), b as (select * from a) select * from a, b", ("b",)),
        ("with recursive t as (select 1 union all select * from t) select * from t", ()),
        # functions that make tables, and names of a catalog
        ("select * from range(10), db.other, a lateral view explode(x) t as y, z", ("a",)),
        # what only looks like it
        ("select extract(day from at), trim(both 'x' from y) from a", ("a",)),
        ("select i is not distinct from j from a", ("a",)),
        ("select 'from b', \"from c\" -- from d\n/* from e */ from a", ("a",)),
        ("select row_number() over (partition by x, y order by z) from a", ("a",)),
        ("select distinct x from a", ("a",)),
        ("select * from a join (values ('eu', 1), ('us', 2)) as v (r, n), b", ("a", "b")),
        ("select * from values (1), (2) as t (n)", ()),
        ("select x.from, y as table, z from a", ("a",)),
        ("select 1", ()),
        ("", ()),
        (")) from ((", ()),
    ],
)
def test_the_tables_that_a_query_reads(sql: str, tables: tuple[str, ...]) -> None:
    assert tuple(dict.fromkeys(found.name for found in mentions(sql))) == tables


def test_a_mention_says_where() -> None:
    assert mentions("select *\nfrom a x, `b`") == [
        Mention("a", 14, 15, True),
        Mention("b", 19, 22, False),
    ]


@pytest.mark.parametrize(
    ("sql", "made"),
    [
        ("select * from a", "select * from STREAM(a) as a"),
        ("select * from A t join c", "select * from STREAM(A) t join c"),
        ("select a from a join b using (i)", "select a from STREAM(a) as a join STREAM(b) as b "
         "using (i)"),
        ("select * from `a` as t where t.a > (select max(a) from b)",
         "select * from STREAM(`a`) as t where t.a > (select max(a) from STREAM(b) as b)"),
    ],
)  # fmt: skip
def test_streams_are_called_so_for_pipelines_of_sparks_own(sql: str, made: str) -> None:
    assert as_streams(sql, {"a", "b"}) == made
