"""One topic into another through Spark: read, decode, write; twice, to see that nothing doubles.

    pip install '.[server,spark]'
    python examples/spark_topics.py

Starts a broker of its own in a temporary directory. No Java has to be installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import flintmq
import flintmq.spark

ORDERS = [{"id": number, "who": "anna" if number % 3 else "ben"} for number in range(3_000)]


def run(servers: str, checkpoint: str) -> None:
    spark = flintmq.spark.session("local[2]")
    orders = (
        spark.readStream.format("flintmq")
        .option("servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000)
        .load()
    )
    decoded = flintmq.spark.from_value(orders, "id bigint, who string", format="auto")
    bills = decoded.selectExpr("data.id * 10 as cents", "data.who as key")
    query = (
        flintmq.spark.to_value(bills)
        .writeStream.format("flintmq")
        .option("servers", servers)
        .option("topic", "bills")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        serve = [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", f"{directory}/data"]
        with subprocess.Popen(
            [*serve, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        ) as broker:
            assert broker.stdout is not None
            servers = broker.stdout.readline().split("ready at ")[1].split(",")[0]
            try:
                with flintmq.connect_sync(servers) as mq:
                    mq.publish_batch("orders", ORDERS, format="json")
                    run(servers, f"{directory}/checkpoint")
                    run(servers, f"{directory}/checkpoint")
                    with mq.reader("bills") as reader:
                        bills = reader.read_batch(10_000, timeout=60)
                        print(f"{len(bills):,} bills, the first: {bills[0].decode()}")
            finally:
                broker.terminate()


if __name__ == "__main__":
    main()
