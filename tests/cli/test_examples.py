"""Every example of every `--help` does what it is there for, on a broker with a little in it."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import flintmq
from flintmq.cli.root import root

from .mini_shell import run_line
from .test_request import replying

pytestmark = pytest.mark.slow


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found)


def examples(command: click.Command) -> list[str]:
    text = inspect.cleandoc(command.help or "").partition("Examples:")[2].replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if "flintmq" in line]


EXAMPLES = sorted({line for command in commands(root) for line in examples(command)})
OWN_PORTS = {
    "serve": ("--listen",),
    "hermesd": ("--client-addr", "--metrics-addr"),
    "blipd": ("--listen", "--http", "--blip"),
}
"""Brokers run until they are told to stop; these options keep them off ports that others have."""

BROKERS = [line for line in EXAMPLES if any(f"flintmq {name}" in line for name in OWN_PORTS)]
OF_WORKERS = [line for line in EXAMPLES if line.startswith("flintmq worker")]
"""They need an app: tests/app/test_worker.py types them."""

OF_PROCESSES = [line for line in EXAMPLES if "--processes" in line and line not in OF_WORKERS]
"""They need a broker that runs: several processes use it."""

CLUSTERS = [line for line in EXAMPLES if "flintmq cluster run" in line]
OF_CLUSTERS = [
    line
    for line in EXAMPLES
    if "--run" not in line
    and any(
        f"flintmq cluster {verb}" in line
        for verb in ("status", "doctor", "restart-plan", "finalize")
    )
]
OF_MEMBERS = [
    line
    for line in EXAMPLES
    if any(
        f"flintmq cluster {verb} " in line
        for verb in ("add", "remove", "replace", "transfer", "set", "unset")
    )
    or "flintmq cluster settings" in line
    or "flintmq cluster restart-plan --run" in line
    or "flintmq cluster recover" in line
    or "flintmq backup --cluster" in line
    or ("flintmq key " in line and "--server" in line)
]
"""They need nodes of a cluster: tests/cluster has those."""

REQUESTS = [line for line in EXAMPLES if "flintmq request" in line]
REPLIES = [line for line in EXAMPLES if line.startswith("flintmq reply")]
"""It takes two: one asks, one answers."""

NOT_HERE = (
    "flintmq blip ",
    "flintmq pipeline run ",
    "flintmq pipeline test ",
    "flintmq pipeline export ",
)
ELSEWHERE_TYPED = [line for line in EXAMPLES if any(name in line for name in NOT_HERE)]
"""They need Spark, or a broker with BlipMQ's port: tests/pipeline and tests/servers/blip
type them."""

OF_WEBHOOKS = [line for line in EXAMPLES if line.startswith("flintmq webhook test")]
"""They need a broker that delivers: tests/webhooks/test_served.py types them."""

TYPED_BELOW = {
    *(*BROKERS, *CLUSTERS, *OF_CLUSTERS, *OF_PROCESSES, *ELSEWHERE_TYPED, *REQUESTS, *REPLIES),
    *(*OF_WEBHOOKS, *OF_MEMBERS, *OF_WORKERS),
}
PLACES = {
    "/var/lib/flint": "data",
    "/var/lib/blip": "blip",
    "/mnt/backup": "backup",
    "/etc/": "etc/",
    "~/": "home/",
}
ELSEWHERE = "flint://mq2.example.com:7600"

BEFORE = {
    "flintmq config check /etc/flintmq.yaml": ["flintmq config init /etc/flintmq.yaml"],
    "flintmq config check /etc/flintmq.toml": ["flintmq config init /etc/flintmq.toml"],
    "flintmq config show --config": ["flintmq config init /etc/flintmq.toml"],
    "flintmq doctor --config": ["flintmq config init /etc/flintmq.toml"],
    "flintmq serve --config": ["flintmq config init /etc/flintmq.toml"],
    "flintmq copy orders.jsonl": ["flintmq copy orders orders.jsonl"],
    **{
        f"flintmq webhook {verb}": ["flintmq webhook add orders crm https://crm.example.com/hook"]
        for verb in ("ls", "show", "pause", "resume", "rm")
    },
    **{
        f"flintmq schedule {verb}": ["flintmq schedule add nightly orders --cron '0 2 * * *'"]
        for verb in ("ls", "run", "pause", "resume", "rm")
    },
    **{
        f"flintmq schema {verb}": ["flintmq schema add orders order.avsc"]
        for verb in ("ls", "show", "check", "rm")
    },
    "flintmq sub prices": ["flintmq topic add prices --compact key"],
    "flintmq table prices": ["flintmq table prices --set EURUSD=1.08 --set GBPUSD=1.27"],
    "flintmq topic add orders": ["flintmq topic rm orders --yes"],
    "flintmq context use": ["flintmq context add prod --server flint://127.0.0.1:1"],
    "flintmq context rm": ["flintmq context add old --server flint://127.0.0.1:1"],
    "flintmq key rm": ["flintmq key add billing --grant '>:consume' --data-dir /var/lib/flint"],
    "flintmq log verify /mnt": ["flintmq backup /var/lib/flint /mnt/backup/flint-monday"],
    "flintmq pipeline check": ["flintmq pipeline new orders"],
    "flintmq pipeline plan": ["flintmq pipeline new orders"],
    "flintmq restore": [
        "flintmq backup /var/lib/flint /mnt/backup/flint-monday",
        "flintmq backup /var/lib/flint /mnt/backup/cluster-monday",
        "mv /var/lib/flint lost",
    ],
}
"""What has to be there first, by how an example begins."""

MORE = {
    "--follow": ("--timeout", "0"),
    "--watch": ("--timeout", "0"),
    "--live": ("--timeout", "0"),
    "flintmq bench": ("--messages", "60"),
    "flintmq bench latency": ("--messages", "3"),
    "--duration 10s": ("--duration", "10ms"),
    "flintmq group reset orders billing --to -1h": ("--yes",),
    "flintmq dlq redrive orders billing": ("--yes",),
    "flintmq pipeline check": ("--set", "servers=flint://127.0.0.1:1"),
    "flintmq pipeline plan": ("--set", "servers=flint://127.0.0.1:1"),
}
"""What keeps an example from going on for ever, or from asking. The last that fits counts."""

MAY_FIND_SOMETHING = ("flintmq doctor", "flintmq check")
"""Their exit code tells what they think of this machine and this broker."""


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a broker's directory that has some of everything in it."""
    place = tmp_path_factory.mktemp("furnished")
    for name in ("etc", "home", "backup"):
        (place / name).mkdir()
    (place / "etc/flintmq/pipelines").mkdir(parents=True)
    (place / "blipmq.toml").write_text("port = 5555\n")
    (place / "photo.png").write_bytes(bytes(range(256)))
    (place / "prod.key").write_text("flint_0_secret")
    (place / "order.avsc").write_text('{"type": "record", "name": "Order", "fields": []}')
    with flintmq.connect_sync(f"file://{place}/data") as mq:
        mq.create_topic("orders", max_deliveries=1)
        count = range(1200)
        mq.publish_batch(
            "orders", [b"%d" % n for n in count], key=[f"k{n}" for n in count],
            headers=[{"region": "eu" if n % 2 else "us"} for n in count],
        )  # fmt: skip
        for message in mq.poll("orders", "billing", max=12):
            message.reject("no such customer")
        mq.publish("orders.old", b"x")
    return place


def at_home(line: str, place: Path) -> str:
    for path, name in PLACES.items():
        line = line.replace(path, f"{place}/{name}")
    return line.replace(ELSEWHERE, f"file://{place}/other")


@pytest.fixture
def place(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "place"
    shutil.copytree(furnished, found)
    monkeypatch.chdir(found)
    monkeypatch.setenv("FLINTMQ_SERVER", f"file://{found}/data")
    monkeypatch.setenv("FLINTMQ_CONTEXTS", str(found / "contexts.json"))
    return found


def prepare(line: str, place: Path) -> None:
    for beginning, first in BEFORE.items():
        if beginning in line:
            for step in first:
                done = run_line(at_home(step, place))
                assert done.code == 0, done.err


@pytest.mark.parametrize(
    "line",
    [line for line in EXAMPLES if line not in TYPED_BELOW],
)
def test_the_example_works(line: str, place: Path) -> None:
    prepare(line, place)
    more = [words for part, words in MORE.items() if part in line]
    if line.split()[1] == "top" and "--once" not in line:
        more = [("--once",)]
    done = run_line(at_home(line, place), more[-1] if more else ())
    assert "Traceback" not in done.err
    assert "--help`)" not in done.err, "it is used as it says itself"
    allowed = (0, 1, 2) if line.startswith(MAY_FIND_SOMETHING) else (0,)
    assert done.code in allowed, done.err
    assert done.out or done.err or ">" in line or "--timeout" in more[-1], "it says what it did"


@pytest.mark.parametrize("line", OF_PROCESSES)
def test_the_example_of_several_processes_works(line: str, remote: str) -> None:
    done = run_line(line, ("--messages", "60", "--server", remote))
    assert (done.code, b"2 processes" in done.out) == (0, True), done.err


@pytest.mark.parametrize("line", REQUESTS)
def test_the_request_of_the_example_is_answered(line: str, place: Path, remote: str) -> None:
    topic = line.split("flintmq request ")[1].split()[0]
    with replying(topic, "1.08", "--server", remote):
        done = run_line(line, ("--server", remote))
    assert done.code == 0, done.err
    assert b"1.08" in done.out


@pytest.mark.parametrize("line", REPLIES)
def test_the_responder_of_the_example_answers(line: str, place: Path, remote: str) -> None:
    (place / "quote.sh").write_text("#!/bin/sh\necho 1.08\n")
    (place / "quote.sh").chmod(0o700)
    arguments = shlex.split(line)[2:]
    with replying(*arguments, "--server", remote):
        done = run_line(f"flintmq request {arguments[0]} hello", ("--server", remote))
    assert done.code == 0, done.err
    assert done.out in (b"1.08\n", b"HELLO\n", b"ok\n")


@pytest.mark.parametrize("line", BROKERS)
def test_the_broker_of_the_example_starts_and_stops(line: str, place: Path) -> None:
    prepare(line, place)
    words = shlex.split(at_home(line, place).replace(":7601", "127.0.0.1:0"))
    at = words.index("flintmq")
    variables = dict(word.split("=", 1) for word in words[:at])
    arguments = words[at + 1 :]
    for option in OWN_PORTS[arguments[0]]:
        arguments += [option, "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "flintmq.cli", *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "ready at" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize("line", CLUSTERS)
def test_the_cluster_of_the_example_starts_shows_its_nodes_and_stops(
    line: str, place: Path
) -> None:
    words = [*shlex.split(at_home(line, place))[1:], "--base-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "flintmq.cli", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip().partition("ready at ")[2]
            shown = [run_line(example, ("--server", url)) for example in OF_CLUSTERS]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert shown
    assert [one for one in shown if one.code] == []
    assert any(b"leader" in one.out for one in shown), shown
