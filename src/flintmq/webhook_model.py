"""The vocabulary of webhooks: what they are defined by, and how they are doing.

Plain values, shared by the client, the network and the part of the broker that delivers.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Any, Literal, TypedDict
from urllib.parse import urlsplit

import msgspec

from .errors import InvalidRequest
from .group_model import Order
from .model import Definition, seconds

KIND = "webhook"
"""Of their definitions."""
SECRET_PREFIX = "whsec_"
SECRET_BYTES = (16, 64)
CONCURRENCY_MAX = 256
TIMEOUT_MAX = 300.0
HEADERS_MAX = 32
NOT_FOR_USERS = ("host", "content-length", "transfer-encoding", "connection", "webhook-")

WebhookCondition = Literal["delivering", "paused", "down", "stopped"]


class Webhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of a topic whose messages the broker sends to a URL."""

    topic: str
    group: str
    url: str
    secret: str
    """Signs each request, as Standard Webhooks describes it: `whsec_` and 16 to 64 bytes in
    base64."""
    headers: dict[str, str] = {}
    """Sent with each request, for example an Authorization."""
    concurrency: int = 4
    """How many requests may be in flight."""
    rate: float | None = None
    """How many requests may be sent in a second."""
    timeout: float = 15.0
    """How many seconds the target has for its answer."""
    retries: int | None = None
    """How often a message that failed is sent again. None: as often as `max_deliveries` of the
    topic allows."""
    backoff: float = 1.0
    backoff_max: float = 300.0
    """The seconds before the first retry, and at most; they double from one to the next."""
    paused: bool = False

    def __repr__(self) -> str:
        return f"Webhook(topic={self.topic!r}, group={self.group!r}, url={self.url!r})"


class WebhookKeywords(TypedDict, total=False):
    """What `create_webhook` takes besides topic, group, url and secret."""

    headers: dict[str, str]
    concurrency: int
    rate: float | None
    timeout: float
    retries: int | None
    backoff: float
    backoff_max: float
    order: Order
    filter: str
    start: Any


class WebhookState(msgspec.Struct, frozen=True, kw_only=True):
    """How a webhook is doing at the node that delivers, since that began to."""

    topic: str
    group: str
    url: str
    condition: WebhookCondition
    delivered: int = 0
    retried: int = 0
    dead: int = 0
    """Messages that became dead letters."""
    in_flight: int = 0
    per_second: float = 0.0
    """Messages delivered per second, over the last ten seconds."""
    last_status: int | None = None
    last_error: str = ""
    last_delivery_ms: int | None = None
    next_attempt_seconds: float | None = None
    """Of a webhook whose target is down."""


class WebhookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request."""

    ok: bool
    status: int | None = None
    error: str = ""
    seconds: float = 0.0


def webhook_of(definition: Definition) -> Webhook | None:
    """None where a newer version has defined it in a way that is not known here."""
    try:
        return msgspec.json.decode(definition.value, type=Webhook)
    except msgspec.DecodeError:
        return None


def resting_state(webhook: Webhook, error: str = "") -> WebhookState:
    """Of one that is not being delivered here, and why if that is known."""
    return WebhookState(
        topic=webhook.topic,
        group=webhook.group,
        url=webhook.url,
        condition="paused" if webhook.paused else "stopped",
        last_error=error,
    )


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(24)).decode()


def secret_bytes(secret: str) -> bytes:
    """The key itself. Raises InvalidRequest."""
    least, most = SECRET_BYTES
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not least <= len(key) <= most:
        raise InvalidRequest(
            f"the secret of a webhook is {SECRET_PREFIX!r} and {least} to {most} bytes in base64; "
            "leave it out to have one made"
        )
    return key


def checked_webhook(webhook: Webhook) -> Webhook:
    """Raises InvalidRequest, which says what is wrong."""
    check_url(webhook.url)
    secret_bytes(webhook.secret)
    _whole("concurrency", webhook.concurrency, 1, CONCURRENCY_MAX)
    if webhook.retries is not None:
        _whole("retries", webhook.retries, 0, 1_000_000)
    if webhook.rate is not None and not webhook.rate > 0:
        raise InvalidRequest(f"rate must be a number above 0, not {webhook.rate!r}")
    if not 0 < seconds(webhook.timeout, "timeout") <= TIMEOUT_MAX:
        raise InvalidRequest(
            f"timeout must be above 0 and at most {TIMEOUT_MAX:g} seconds, not {webhook.timeout!r}"
        )
    seconds(webhook.backoff, "backoff")
    seconds(webhook.backoff_max, "backoff_max")
    _check_headers(webhook.headers)
    return webhook


def check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as it will be looked up
    except UnicodeError:
        raise InvalidRequest(f"{url!r} is not a URL: its host is no name of a host") from None
    except ValueError as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidRequest(f"a webhook needs a URL such as https://example.com/hook, not {url!r}")
    if parts.username or parts.password:
        raise InvalidRequest("leave user and password out of the URL; send them as a header")
    if any(ord(one) <= 32 or ord(one) >= 127 for one in url):
        raise InvalidRequest(f"{url!r} has characters that a URL must have as %XX")


def _whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidRequest(f"{name} must be a whole number from {least} to {most}, not {value!r}")


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > HEADERS_MAX:
        raise InvalidRequest(f"a webhook has at most {HEADERS_MAX} headers")
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise InvalidRequest(f"{name!r} is not the name of an HTTP header")
        if name.lower().startswith(NOT_FOR_USERS):
            raise InvalidRequest(f"the header {name!r} is set by the broker")
        if any(ord(one) < 32 or ord(one) > 126 for one in value):
            raise InvalidRequest(f"the header {name!r} has characters that HTTP does not allow")
