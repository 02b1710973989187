"""What was read, as an Arrow table."""

from __future__ import annotations

import flintmq


async def test_rows_become_a_table_whatever_they_were_published_as() -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.publish("orders", b"single", key="a")
        await mq.publish_batch("orders", [b"%d" % number for number in range(100)])
        await mq.publish_batch("orders", [b"z"] * 70, batch_compression="zstd")
        await mq.publish("orders", b"last", headers={"region": "eu"})
        async with mq.reader("orders") as reader:
            rows = await reader.read_batch(1000)
        async with mq.reader("orders", filter="key == 'a' or exists(headers.region)") as reader:
            picked = await reader.read_batch(1000)

    table = rows.to_arrow()
    assert table["value"].to_pylist() == list(rows.values)
    assert table["offset"].to_pylist() == list(range(172))
    assert table["key"].to_pylist()[:2] == [b"a", None]
    assert picked.to_arrow()["value"].to_pylist() == [b"single", b"last"]


async def test_nothing_is_an_empty_table() -> None:
    assert flintmq.Rows().to_arrow().num_rows == 0
