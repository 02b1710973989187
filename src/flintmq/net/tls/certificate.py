"""What we want to know of a certificate: its number, and from when to when it holds.

The standard library reads certificates of others only once it trusts them. Those few fields stand
at the front of the DER encoding (RFC 5280, 4.1), so they are read here.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

INTEGER, SEQUENCE, VERSION = 0x02, 0x30, 0xA0
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18

PEM_BEGIN, PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class Certificate(NamedTuple):
    serial: int
    not_before: float
    """Seconds since 1970."""
    not_after: float

    @classmethod
    def of_pem(cls, text: str) -> Certificate:
        """The first of a file, which is the server's own. Raises ValueError."""
        start = text.find(PEM_BEGIN)
        end = text.find(PEM_END, start)
        if start < 0 or end < 0:
            raise ValueError(f"it contains no {PEM_BEGIN}")
        return cls.of_der(ssl.PEM_cert_to_DER_cert(text[start : end + len(PEM_END)]))

    @classmethod
    def of_der(cls, data: bytes) -> Certificate:
        """Raises ValueError where this is no certificate."""
        _, whole, _ = _element(memoryview(data), SEQUENCE)
        _, fields, _ = _element(whole, SEQUENCE)
        if fields[:1] == bytes([VERSION]):
            _, _, fields = _element(fields)
        _, serial, fields = _element(fields, INTEGER)
        _, _, fields = _element(fields, SEQUENCE)  # how it is signed
        _, _, fields = _element(fields, SEQUENCE)  # by whom
        _, validity, _ = _element(fields, SEQUENCE)
        kind, text, rest = _element(validity)
        not_before = _time(kind, text)
        kind, text, _ = _element(rest)
        return cls(int.from_bytes(serial, signed=True), not_before, _time(kind, text))


def _element(data: memoryview, expected: int | None = None) -> tuple[int, memoryview, memoryview]:
    """Kind and content of the first element, and what comes behind it."""
    if len(data) < 2 or (expected is not None and data[0] != expected):
        raise ValueError("not a certificate")
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    if start + length > len(data):
        raise ValueError("the certificate is truncated")
    return data[0], data[start : start + length], data[start + length :]


def _time(kind: int, content: memoryview) -> float:
    text = bytes(content).decode("ascii", "replace")
    if kind == UTC_TIME:
        # RFC 5280, 4.1.2.5.1: two digits of a year are 1950 to 2049
        text = ("19" if text[:1] >= "5" else "20") + text
    elif kind != GENERALIZED_TIME:
        raise ValueError("a certificate's dates are missing")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
