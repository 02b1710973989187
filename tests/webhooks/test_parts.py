from __future__ import annotations

import base64
import hashlib
import hmac
from ipaddress import ip_address, ip_network

import pytest

from flintmq.errors import InvalidRequest
from flintmq.webhook_model import Webhook, check_url, checked_webhook, new_secret, secret_bytes
from flintmq.webhooks.addresses import may_be_reached
from flintmq.webhooks.judging import Fate, judged, retry_after
from flintmq.webhooks.posting import HttpAnswer
from flintmq.webhooks.request import request_bytes, shown, signature

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """By the example of the specification."""
    body = b'{"test": 2432232314}'
    made = signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = b"id.7." + body
    mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert signature(SECRET, "id", 7, body) == f"v1,{mac}"


def test_new_secrets_are_valid_and_differ() -> None:
    first, second = new_secret(), new_secret()
    assert first != second
    assert len(secret_bytes(first)) == 24


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",
        "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1",
        "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1",
        "::7f00:1", "fec0::1", "64:ff9b:1::7f00:1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused_unless_allowed(address: str) -> None:
    found = ip_address(address)
    assert not may_be_reached(found, [])
    assert may_be_reached(found, [ip_network("0.0.0.0/0"), ip_network("::/0")])


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111"])
def test_public_addresses_may_be_reached(address: str) -> None:
    assert may_be_reached(ip_address(address), [])


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com/hook", "ftp://example.com", "https://", "http://user:pass@example.com/",
        "https://example.com/a b", "https://example.com:0/", "https://example.com:99999/", "http://[::1",
        "https://exam\nple.com/", "https://bücher.example/", "https://a..example/",
        f"https://{'a' * 64}.example/",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_target_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check_url(url)


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": "hunter2"},
        {"secret": "whsec_AAAA"},
        {"concurrency": 0},
        {"rate": 0.0},
        {"timeout": 0.0},
        {"timeout": 301.0},
        {"retries": -1},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"webhook-id": "1"}},
        {"headers": {"a b": "1"}},
        {"headers": {"x": "1\r\ny: 2"}},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {"topic": "t", "group": "g", "url": "https://a.example/"}
    with pytest.raises(InvalidRequest):
        checked_webhook(Webhook(**{"secret": SECRET, **given, **wrong}))  # type: ignore[arg-type]


def test_no_value_of_a_message_can_end_a_header() -> None:
    assert shown("a\r\nx: 1") == "a%0D%0Ax: 1"
    assert shown(b"\xff\x00") == "%FF%00"
    assert shown("ключ") == "%D0%BA%D0%BB%D1%8E%D1%87"
    assert request_bytes("/", "a", [("x", shown("\n"))], b"").count(b"\n") == 5


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (200, Fate.DELIVERED), (204, Fate.DELIVERED), (301, Fate.FAILED), (400, Fate.FAILED),
        (404, Fate.FAILED), (410, Fate.GONE), (429, Fate.DOWN), (500, Fate.FAILED),
        (501, Fate.FAILED), (502, Fate.DOWN), (503, Fate.DOWN), (504, Fate.DOWN),
    ],
)  # fmt: skip
def test_a_status_says_what_becomes_of_the_message(status: int, fate: Fate) -> None:
    verdict = judged(HttpAnswer(status, {}, "some\n text"), 0)
    assert verdict.fate is fate
    assert (verdict.error == "") is (fate is Fate.DELIVERED)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None), ("3", 3.0), ("0.5", 0.5), ("-3", 0.0), ("1e9", 3600.0), ("nan", None),
        ("soon", None), ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), ("Thu, 99 Jan", None),
        (f"Thu, 01 Jan 1970 00:01:00 +{'9' * 20}", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_and_bounded(
    value: str | None, seconds: float | None
) -> None:
    assert retry_after(value, 10_000) == seconds
