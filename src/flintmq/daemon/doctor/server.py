"""Whether a broker answers, and how long its certificate is valid."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime

from ...amounts import precise
from ...client.client import Client
from ...errors import FlintError, NotAuthenticated, PermissionDenied, TlsFailed
from ...net.remote.address import parse_addresses
from ...net.tls.certificate import Certificate
from .bundle import without_userinfo
from .findings import DoctorFinding, bad, ok, warn

ANSWER_SECONDS = 5.0


async def look_at_server(url: str, connect: Callable[[], Client]) -> DoctorFinding:
    """Connect, and list the topics. `connect` supplies keys and certificates."""
    shown = without_userinfo(url)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            client = await connect()
    except TimeoutError:
        return bad(
            "server",
            f"{shown} did not answer within {ANSWER_SECONDS:g} s",
            "check that the broker is running there, and that no firewall blocks it",
        )
    except (FlintError, OSError) as error:
        return bad("server", f"{shown}: {without_userinfo(str(error))}", _remedy(error))
    try:
        connected = time.perf_counter() - began
        topics: int | None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                topics = len(await client.topics())
        except PermissionDenied:
            topics = None
        except (TimeoutError, FlintError) as error:
            return warn(
                "server",
                f"{shown} accepts connections, but does not answer: {error or 'no answer in time'}",
                "check its log; it may be stopping, or waiting for its disk",
            )
    finally:
        await client.close()
    seen = "no permission to list topics" if topics is None else f"{topics:,} topics"
    what = f"{shown} answers, connected in {precise(connected)}; {seen}"
    return ok("server", what, seconds=connected, topics=topics)


def _remedy(error: Exception) -> str:
    match error:
        case NotAuthenticated():
            return "it is running and requires a key: pass one with --api-key-file"
        case TlsFailed():
            return (
                "check --tls-ca; if the broker requires a client certificate, pass --tls-cert "
                "and --tls-key"
            )
    return "check that the broker is running there"


EXPIRY_DAYS_FEW = 14.0


async def look_at_certificate(url: str) -> DoctorFinding:
    """The certificate of the first host of a flints:// URL, whoever signed it."""
    host, port = parse_addresses(url)[0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is looked at, not trusted
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        return bad(
            "certificate", f"no TLS at {host}:{port}: {error}", "check that TLS is enabled there"
        )
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return judge_certificate(Certificate.of_der(shown), time.time())


def judge_certificate(certificate: Certificate, now: float) -> DoctorFinding:
    until = datetime.fromtimestamp(certificate.not_after, UTC).date().isoformat()
    days = (certificate.not_after - now) / 86_400
    if days < 0:
        return bad("certificate", f"expired on {until}: clients reject it", "renew it")
    if certificate.not_before > now:
        return bad("certificate", "not valid yet", "check the clocks of both machines")
    what = f"valid until {until}, {days:,.0f} days left"
    if days < EXPIRY_DAYS_FEW:
        return warn(
            "certificate", what, "renew it in time; send SIGHUP to load the new one", days=days
        )
    return ok("certificate", what, days=days)
