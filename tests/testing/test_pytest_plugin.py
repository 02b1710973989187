"""The fixtures as users meet them: in a pytest of their own, by the async plugin they like."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
PLUGINS = ("cacheprovider", "hypothesispytest", "schemathesis", "xdist")  # of ours, not of users
QUIET = (*(word for name in PLUGINS for word in ("-p", f"no:{name}")), "-W", "error")
SCOPE = ("-o", "asyncio_default_fixture_loop_scope=function")  # it warns where this is not said
AUTO = ("-o", "asyncio_mode=auto", *SCOPE)
STRICT = ("-o", "asyncio_mode=strict", *SCOPE)
ANYIO = ("-p", "no:asyncio")
NEITHER = (*ANYIO, "-p", "no:anyio")


def run_pytest(directory: Path, source: str, *options: str, code: int = 0) -> str:
    """Run a test file of a user in a process of its own; what pytest printed."""
    (directory / "test_users.py").write_text(textwrap.dedent(source))
    (directory / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *QUIET, *options, "test_users.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


USERS_TESTS = """
    import asyncio
    import pytest
    import flintmq
    from flintmq.testing import settle, wait_consumed

    {head}

    kept = []

    async def test_a_broker(flint, flintmq_clock):
        assert flint.clock.now_ms() == flintmq_clock.now_ms()
        await flint.publish("orders", b"x", ttl=60)
        kept.append(flint)
        await flintmq_clock.advance(61)
        assert (await flint.topic_stats("orders")).message_count == 0

    async def test_each_test_has_a_broker_of_its_own_and_the_last_one_is_closed(flint):
        assert await flint.topics() == []
        with pytest.raises(flintmq.Closed):
            await kept[0].topics()

    async def test_what_is_left_open_is_let_go(flint, flintmq_clock):
        reader = await flint.reader("orders", name="left")
        feed = await flint.live("orders")
        row = await flint.create_topic("row", partitions=3)
        asyncio.create_task(reader.read())
        asyncio.create_task((await flint.reader("row")).read())
        asyncio.create_task(feed.read(timeout=5))
        flint.publisher("orders", linger=60).send(b"never flushed")
        await flint.create_topic("full", retention_count=1, overflow="block")
        await flint.publish("full", b"x")
        flint.publisher("full").send(b"waits for ever")
        await settle()

    async def test_it_can_be_entered_and_closed_by_the_test_too(flint):
        async with flint as mq:
            await mq.publish("orders", b"x")

    async def test_waiting_for_a_consumer(flint):
        got = []

        async def consume():
            async with flint.reader("orders", name="n") as reader:
                async for message in reader:
                    got.append(message.value)

        task = asyncio.create_task(consume())
        await flint.publish_batch("orders", [b"a", b"b"])
        await wait_consumed(flint, "orders", name="n")
        assert got == [b"a", b"b"]
        task.cancel()

    def test_blocking(flint_sync):
        flint_sync.publish("orders", b"x")
        with flint_sync.reader("orders") as reader:
            assert reader.read().value == b"x"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "head"),
    [
        pytest.param(AUTO, "", id="pytest-asyncio-auto"),
        pytest.param(STRICT, "asyncio_mark = pytest.mark.asyncio", id="pytest-asyncio-strict"),
        pytest.param(
            ANYIO,
            "pytestmark = pytest.mark.anyio\n"
            "    anyio_backend = pytest.fixture(lambda: 'asyncio', name='anyio_backend')",
            id="anyio",
        ),
        pytest.param(
            STRICT,
            "pytestmark = pytest.mark.anyio\n"
            "    anyio_backend = pytest.fixture(lambda: 'asyncio', name='anyio_backend')",
            id="anyio-beside-pytest-asyncio",
        ),
    ],
)
def test_the_fixtures_work_with_every_async_plugin(
    tmp_path: Path, options: tuple[str, ...], head: str
) -> None:
    source = USERS_TESTS.format(head=head)
    if "asyncio_mark" in head:
        source = source.replace("    async def test", "    @asyncio_mark\n    async def test")
    assert "6 passed" in run_pytest(tmp_path, source, *options)


@pytest.mark.slow
def test_a_users_fixture_of_the_same_name_goes_before_ours(tmp_path: Path) -> None:
    run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.fixture
        def flint():
            return "mine"

        def test_mine(flint):
            assert flint == "mine"
        """,
        *NEITHER,
    )


@pytest.mark.slow
def test_a_run_that_uses_no_fixture_of_ours_loads_no_engine(tmp_path: Path) -> None:
    run_pytest(
        tmp_path,
        """
        import sys

        def test_nothing_heavy():
            assert "flintmq.testing.pytest_plugin" in sys.modules
            ours = {"flintmq.engine", "flintmq.client.blocking"}
            assert not {*ours, "pyarrow", "numpy", "lz4", "uvloop"} & set(sys.modules)
        """,
        *NEITHER,
    )


@pytest.mark.slow
def test_the_plugin_can_be_left_out(tmp_path: Path) -> None:
    printed = run_pytest(
        tmp_path, "def test_none(flint):\n    pass\n", *NEITHER, "-p", "no:flintmq", code=1
    )
    assert "fixture 'flint' not found" in printed


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_of_the_testing_document_passes(tmp_path: Path, number: int) -> None:
    block = BLOCKS[number]
    printed = run_pytest(tmp_path, block, *(ANYIO if "mark.anyio" in block else AUTO))
    assert f"{block.count('def test_')} passed" in printed
