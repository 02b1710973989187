"""The JSON API of `flintmq serve`: the requests of its document, keys, purges that last."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

import flintmq
from flintmq.access import TopicGrant
from flintmq.storage.key_file import KeyFile, make_key
from tests.servers.http.test_documented import curls

from .served import Served

pytestmark = pytest.mark.slow


async def test_every_request_of_the_document_is_answered(tmp_path: Path) -> None:
    broker = await Served(tmp_path / "data", "--http", "127.0.0.1:0").start()
    try:
        async with httpx.AsyncClient(base_url=broker.http) as client:
            for one in curls():
                response = await client.request(
                    one.method, one.path, content=one.body, headers=one.headers
                )
                assert response.status_code == 200, (one, response.text)
            shown = (await client.get("/api/v1/config")).json()["settings"]
            assert shown["data_dir"] == str(tmp_path / "data")
        assert await broker.end(signal.SIGTERM) == 0

        broker = await Served(tmp_path / "data", "--http", "127.0.0.1:0").start()
        async with flintmq.connect(broker.url) as mq:
            stats = await mq.topic_stats("orders")
            assert 1 == stats.first_offset < stats.next_offset
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()


async def test_with_keys_nobody_comes_in_without_one(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    file = KeyFile(directory / "keys.json")
    admin = add(file, "admin", (">", "publish consume administer"))
    some = add(file, "some", ("orders", "publish"))
    broker = await Served(directory, "--http", "127.0.0.1:0").start()
    try:
        async with httpx.AsyncClient(base_url=f"{broker.http}/api/v1") as client:

            async def ask(key: str | None, method: str, path: str) -> httpx.Response:
                headers = {} if key is None else {"authorization": f"Bearer {key}"}
                body = {"text": "x"} if method == "POST" else None
                return await client.request(method, path, headers=headers, json=body)

            for key in (None, "nonsense", some + "x"):
                assert (await ask(key, "GET", "/topics")).status_code == 401
            assert (await ask(some, "POST", "/topics/orders/messages")).status_code == 200
            assert (await ask(admin, "POST", "/topics/hidden/messages")).status_code == 200
            for topic in ("hidden", "missing"):
                response = await ask(some, "POST", f"/topics/{topic}/messages")
                assert (response.status_code, topic in response.text) == (403, True)
            seen = (await ask(some, "GET", "/topics")).json()["topics"]
            assert [one["name"] for one in seen] == ["orders"]
            assert (await ask(some, "GET", "/keys")).status_code == 403
            keys = await ask(admin, "GET", "/keys")
            assert [one["name"] for one in keys.json()["keys"]] == ["admin", "some"]
            for secret in (admin, some, "hash", "salt"):
                assert secret not in keys.text
        async with flintmq.connect(broker.url, api_key=admin):
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {admin}"}) as client:
                found = (await client.get(f"{broker.http}/api/v1/connections")).json()
            assert [one["key"] for one in found["connections"]] == ["admin"]
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()


def add(file: KeyFile, name: str, *grants: tuple[str, str]) -> str:
    """A new key; what is to be shown."""
    wanted = [TopicGrant.of(pattern, permissions.split()) for pattern, permissions in grants]
    key, text = make_key(name, wanted, now_ms=0, expires_at_ms=None)
    file.add(key)
    return text
