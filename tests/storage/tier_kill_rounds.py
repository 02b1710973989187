"""Killing a broker that copies its segments to a real S3 server, and the server, with kill -9.

    python -m tests.storage.tier_kill_rounds --rounds 20 --seed 7

In each round messages are published while segments are sealed, uploaded and removed; then broker or
server is killed, at a moment that chance chose, and started again. In the end every message that
was acknowledged is there, once and in order; and when all is quiet, the bucket has the objects that
the broker knows of, and no other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import flintmq
from flintmq.client.blocking.client import BlockingClient
from flintmq.errors import FlintError
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.inspect import list_directory, verify
from tests.patience import free_port
from tests.pipeline.lake.object_store import KEY, SECRET, serving
from tests.spark.fixtures import BrokerProcess

ROW = b"x" * 1000
SMALL = ("--checkpoint-bytes", "128KiB", "--journal-file-bytes", "256KiB")


def run(directory: Path, rounds: int, seed: int) -> dict[str, int]:
    """What came of it. Raises AssertionError where a promise was broken."""
    chance, port = random.Random(seed), free_port()
    servers = ExitStack()
    store = servers.enter_context(serving(directory / "s3", port))
    os.environ |= {
        "AWS_ENDPOINT_URL": store.url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    url = f"s3://{store.bucket('tier')}"
    broker = BrokerProcess(directory / "data", *SMALL).start()
    broker_kills = store_kills = sent = 0
    try:
        with flintmq.connect_sync(broker.url, timeout=60) as mq:
            mq.create_topic(
                "orders", tier=url, local_retention_bytes=1, retention_bytes=None, partitions=None
            )
            for _ in range(rounds):
                until = time.monotonic() + 0.3 + chance.random()
                while time.monotonic() < until:
                    rows = [b"%d " % number + ROW for number in range(sent, sent + 50)]
                    assert mq.publish_batch("orders", rows).offset == sent
                    sent += len(rows)
                if chance.random() < 0.7:
                    broker.kill()
                    broker.start()
                    broker_kills += 1
                else:
                    servers.close()
                    time.sleep(chance.random())
                    store = servers.enter_context(serving(directory / "s3", port))
                    store_kills += 1
            found = everything(mq, sent)
            assert found == list(range(sent)), f"{len(found)} of {sent} messages"
        broker.stop()
        # Quiet: what was begun and not finished is removed, and the rest uploaded.
        broker.start()
        with flintmq.connect_sync(broker.url, timeout=60) as mq:
            assert everything(mq, sent) == list(range(sent))
            time.sleep(1.0)
        broker.stop()
        files = LocalFileSystem(directory / "data")
        problems = [one for one in verify(files) if one.is_damage]
        assert problems == [], problems
        (topic,) = [one for one in list_directory(files).topics if one.name == "orders"]
        named = {name.rpartition("/")[2] for name in topic.segments if "://" in name}
        there = {path.name for path in (directory / "s3" / "tier").rglob("*.seg")}
        assert named <= there, f"not in the bucket: {named - there}"
        assert there <= named, f"nobody knows of them: {there - named}"
        return {
            "seed": seed,
            "rounds": rounds,
            "broker_kills": broker_kills,
            "store_kills": store_kills,
            "sent": sent,
            "objects": len(named),
            "segments": len(topic.segments) - len(named),
        }
    finally:
        broker.stop()
        servers.close()


def everything(mq: BlockingClient, count: int) -> list[int]:
    """The numbers of all messages. A store that is just starting is asked again."""
    found: list[int] = []
    give_up_at = time.monotonic() + 120
    with mq.reader("orders") as reader:
        while len(found) < count and time.monotonic() < give_up_at:
            try:
                rows = reader.read_batch(1000, timeout=1)
            except FlintError:
                time.sleep(0.2)
                continue
            found += [int(bytes(value).partition(b" ")[0]) for value in rows.values]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flintmq-tier-kills-") as directory:
        print(json.dumps(run(Path(directory), given.rounds, given.seed)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
