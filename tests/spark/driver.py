"""A driver as a process of its own, to be killed: one topic into another, through a shuffle.

    python -m tests.spark.driver SERVERS CHECKPOINT DELIVERY PER_TRIGGER

The first attempt of some tasks fails at the end of its rows, so after it has written a part.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import TaskContext
from pyspark.sql.functions import udf

import flintmq.spark

from .fixtures import MASTER, TUNED


def passed(value: Any) -> Any:
    if int(value) % 97 == 0:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt goes wrong")
    return value


def main(servers: str, checkpoint: str, delivery: str, per_trigger: str) -> None:
    config = {
        **TUNED,
        "spark.sql.execution.arrow.maxRecordsPerBatch": 20,
        "spark.sql.shuffle.partitions": 3,
    }
    spark = flintmq.spark.session(MASTER, app_name="driver", config=config, log_level="OFF")
    numbers = (
        spark.readStream.format("flintmq")
        .option("servers", servers)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_trigger)
        .load()
        .selectExpr("cast(value as string) as value")
    )
    failing = udf(passed, "string", useArrow=False)
    query = (
        numbers.repartition(3)
        .select(failing("value").alias("value"))
        .writeStream.format("flintmq")
        .option("servers", servers)
        .option("topic", "out")
        .option("delivery", delivery)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("running", flush=True)
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
