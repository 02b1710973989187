"""The HTTP port over the same TLS: one certificate for both ports, and figures of it."""

from __future__ import annotations

import asyncio
import ssl

import flintmq
from flintmq.frontends.http.server import HttpServer
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.tls.certificate import Certificate

from ..servers.http.running import Line
from .conftest import Run
from .test_handshakes import tls
from .test_reload import serial_seen_by
from .throw_away import Authority, failure, served


def test_both_ports_take_up_a_new_certificate_and_tell_when_it_expires(
    run: Run, ca: Authority
) -> None:
    async def ask(port: int, path: str) -> tuple[int, str]:
        trusting = ssl.create_default_context(cafile=ca.file)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        answer = await Line(reader, writer).ask(path)
        assert answer.status == 200
        writer.close()
        await writer.wait_closed()
        return Certificate.of_der(der).serial, answer.body.decode()

    async def story() -> None:
        pair = ca.pair()
        secured = tls(pair)
        async with served(secured) as (native, port):
            http = HttpServer(HttpState(native.broker, ApiKeyGate(), native, "0.1"))
            _, http_port = await http.start("127.0.0.1", 0, secured.context)
            try:
                for _ in range(2):
                    serial, page = await ask(http_port, "/ready")
                    assert serial == pair.serial
                    url = f"flints://127.0.0.1:{port}"
                    async with flintmq.connect(url, tls_ca=ca.file) as mq:
                        assert serial_seen_by(mq) == serial
                    ca.pair(over=pair)
                    assert secured.reload()
                await failure(f"flint://127.0.0.1:{port}")
                _, page = await ask(http_port, "/metrics")
            finally:
                await http.close()
        figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[:1] != "#")
        expires = float(figures["flintmq_tls_certificate_expiry_timestamp_seconds"])
        assert expires == secured.certificate_expires_at
        assert figures["flintmq_tls_handshakes_failed_total"] == "1"

    run(story())
