"""The client's TLS: whom it trusts, and who it says it is."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from ...errors import InvalidRequest
from ...observe.logs import event
from ..tls.files import load_authorities, load_pair, stamp_of
from ..tls.pipe import TlsPipe

_log = logging.getLogger(__name__)

File = str | os.PathLike[str]

CA, CERT, KEY, VERIFY = (
    "FLINTMQ_TLS_CA",
    "FLINTMQ_TLS_CLIENT_CERT",
    "FLINTMQ_TLS_CLIENT_KEY",
    "FLINTMQ_TLS_VERIFY",
)
"""Of clients alone: FLINTMQ_TLS_CERT and FLINTMQ_TLS_KEY are the broker's own."""


class ClientTls:
    """Files are read when this is made, so that what is wrong with them is heard at once, and again
    before a connection if they have changed: certificates are renewed while clients run."""

    def __init__(
        self, ca: Path | None, certificate: Path | None, key: Path | None, verify: bool
    ) -> None:
        if key is not None and certificate is None:
            raise InvalidRequest("tls_key needs tls_cert too")
        self._ca, self._certificate, self._verify = ca, certificate, verify
        self._key = key if key is not None else certificate
        self._files = [path for path in (ca, certificate, self._key) if path is not None]
        self._stamp = stamp_of(self._files)
        self._context = self._build()
        if not verify:
            event(
                _log,
                logging.WARNING,
                "tls_not_checked",
                "the broker's certificate is not verified: any server could impersonate the broker",
            )

    @classmethod
    def given(
        cls,
        *,
        ca: File | None,
        cert: File | None,
        key: File | None,
        verify: bool,
        environment: Mapping[str, str] = os.environ,
    ) -> ClientTls:
        """What the call says goes before what the environment says."""
        said = environment.get(VERIFY, "").strip().lower()
        if said not in ("", "0", "1", "true", "false", "yes", "no"):
            raise InvalidRequest(f"{VERIFY} must be true or false, not {said!r}")
        if cert is None and key is None:
            cert, key = environment.get(CERT) or None, environment.get(KEY) or None
        if ca is None:
            ca = environment.get(CA) or None
        return cls(
            _path(ca, "tls_ca"),
            _path(cert, "tls_cert"),
            _path(key, "tls_key"),
            verify and said not in ("0", "false", "no"),
        )

    def pipe(self, host: str) -> TlsPipe:
        """For a connection to this host. Raises InvalidRequest where a file is of no use."""
        stamp = stamp_of(self._files)
        if stamp != self._stamp:
            self._context = self._build()
            self._stamp = stamp
        return TlsPipe(self._context, server_side=False, host=host.partition("%")[0])

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._ca is not None:
            load_authorities(context, self._ca, name="tls_ca")
        elif self._verify:
            context.load_default_certs()
        if self._certificate is not None and self._key is not None:
            load_pair(context, self._certificate, self._key, names="tls_cert, tls_key")
        return context


def _path(value: File | None, name: str) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise InvalidRequest(f"{name} must be the path of a file, not {value!r}")
    return Path(value)
