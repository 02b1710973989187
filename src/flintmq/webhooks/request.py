"""A message as an HTTP request, signed as Standard Webhooks describes it. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from urllib.parse import quote

from .. import __version__
from ..rows import Message
from ..webhook_model import Webhook, secret_bytes

TRACE = ("traceparent", "tracestate")
DEFAULT_TYPE = "application/octet-stream"
_PLAIN = " !#$&'()*+,-./:;<=>?@[]^_`{|}~\""


def id_of(topic_id: int, partition: int | None, offset: int | None) -> str:
    """The same for each attempt of a message, and never that of another, nor of a test."""
    if offset is None:
        return f"test_{secrets.token_hex(8)}"
    return f"msg_{topic_id:x}_{partition or 0}_{offset}"


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    signed = f"{id}.{timestamp}.".encode() + body
    mac = hmac.new(secret_bytes(secret), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(mac).decode()


def headers_of(
    webhook: Webhook, message: Message, id: str, timestamp: int, deliveries: int
) -> list[tuple[str, str]]:
    """What is no header as it is stands there with %XX."""
    found = [
        ("content-type", shown(message.content_type or DEFAULT_TYPE)),
        ("webhook-id", id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature(webhook.secret, id, timestamp, bytes(message.value))),
        ("x-flint-topic", shown(message.topic)),
        ("x-flint-group", shown(webhook.group)),
        ("x-flint-partition", str(message.partition or 0)),
        ("x-flint-delivery-count", str(deliveries)),
        ("user-agent", f"FlintMQ/{__version__}"),
    ]
    if message.offset is not None:
        found.append(("x-flint-offset", str(message.offset)))
    if message.key is not None:
        found.append(("x-flint-key", shown(message.key)))
    for name, value in (message.headers or {}).items():
        # A trace goes on at the target, under the names it is looked for.
        header = name if name in TRACE else f"x-flint-header-{quote(name, safe='')}"
        found.append((header, shown(value)))
    found += webhook.headers.items()
    return found


def shown(value: object) -> str:
    """Text or bytes as the value of a header."""
    if isinstance(value, str | bytes | memoryview):
        data = value.encode() if isinstance(value, str) else bytes(value)
        return quote(data, safe=_PLAIN)
    return quote(str(value), safe=_PLAIN)


def request_bytes(target: str, host: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = [f"POST {target} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
