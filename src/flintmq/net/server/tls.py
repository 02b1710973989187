"""The broker's TLS: one context for every port, and certificates that change under traffic.

`context` stays the same object for as long as the broker runs. Each handshake asks it for the
certificate as it is now; connections that are open keep what they have. Files are looked at when
a client connects, at most every few seconds, and at once on SIGHUP (`reload`): nothing polls, and a
port without clients needs no new certificate.
"""

from __future__ import annotations

import logging
import ssl
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import InvalidRequest
from ...observe.logs import event
from ..tls.certificate import Certificate
from ..tls.files import Stamp, load_authorities, load_pair, read_text, stamp_of
from ..tls.pipe import TlsPipe

_log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
SOON_SECONDS = 14 * 86_400.0
"""How long before a certificate expires a warning is logged, once a day."""
DAY_SECONDS = 86_400.0
NAMES = "tls_cert, tls_key"


class ServerTls:
    """TLS 1.2 and newer by a certificate and a key; with `client_ca`, clients bring one too."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None = None,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Raises InvalidRequest that names file, cause and remedy."""
        self._set_files(certificate, key, client_ca)
        self._look_seconds = look_seconds
        self._look_at = time.monotonic() + look_seconds
        self._stamp = stamp_of(self._files)
        self._doubted: Stamp | None = None
        """Files that did not fit together when they were looked at: maybe half written."""
        self._warn_at = 0.0
        self._current, self._certificate = self._load()
        self.context = self._build()
        self.context.sni_callback = self._choose
        self._warn_of_modes()
        self._warn_of_dates()

    # --- what others ask

    @property
    def certificate(self) -> Certificate:
        """The certificate for new connections."""
        self._look()
        return self._certificate

    @property
    def certificate_expires_at(self) -> float:
        """Seconds since 1970."""
        return self.certificate.not_after

    def pipe(self) -> TlsPipe:
        """For a connection that comes in."""
        return TlsPipe(self.context, server_side=True)

    def reload(
        self,
        certificate: Path | None = None,
        key: Path | None = None,
        client_ca: Path | None = None,
    ) -> bool:
        """Take up what is in the files now, or in others; whether that worked. What does not fit
        is logged, and the certificate before it stays, with the names of its files."""
        before = self._certificate_file, self._key_file, self._client_ca
        if certificate is not None and key is not None:
            self._set_files(certificate, key, client_ca)
        self._stamp = stamp_of(self._files)
        self._doubted = None
        try:
            self._take_up()
        except InvalidRequest as error:
            self._complain(error)
            if before != (self._certificate_file, self._key_file, self._client_ca):
                self._set_files(*before)
                self._stamp = stamp_of(self._files)
            return False
        return True

    # --- how it changes

    def _look(self) -> None:
        """Take up files that have changed. Cheap, and never raises."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._look_seconds
        stamp = stamp_of(self._files)
        if stamp == self._stamp:
            self._warn_of_dates()
            return
        try:
            self._take_up()
        except InvalidRequest as error:
            # A certificate is often written before its key: it is looked at once more before
            # anybody is woken.
            if self._doubted == stamp:
                self._stamp, self._doubted = stamp, None
                self._complain(error)
            else:
                self._doubted = stamp
        else:
            self._stamp, self._doubted = stamp, None

    def _set_files(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate_file, self._key_file, self._client_ca = certificate, key, client_ca
        self._files = [certificate, key] + ([client_ca] if client_ca is not None else [])

    def _take_up(self) -> None:
        self._current, self._certificate = self._load()
        self.context.verify_mode = self._current.verify_mode  # handshakes begin with this one
        self._warn_at = 0.0
        event(
            _log,
            logging.INFO,
            "tls_certificate",
            f"loaded a new TLS certificate from {self._certificate_file}, valid until "
            f"{day(self._certificate.not_after)}",
            serial=f"{self._certificate.serial:x}",
        )
        self._warn_of_modes()
        self._warn_of_dates()

    def _complain(self, error: InvalidRequest) -> None:
        event(
            _log,
            logging.ERROR,
            "tls_reload_failed",
            "keeping the previous TLS certificate (valid until "
            f"{day(self._certificate.not_after)}): {error}",
        )

    def _choose(self, handshake: Any, host: str | None, context: ssl.SSLContext) -> None:
        """Called in every handshake, before a certificate is sent."""
        self._look()
        handshake.context = self._current

    def _load(self) -> tuple[ssl.SSLContext, Certificate]:
        context = self._build()
        try:
            certificate = Certificate.of_pem(read_text(self._certificate_file, NAMES))
        except ValueError as error:
            raise InvalidRequest(f"{self._certificate_file} ({NAMES}): {error}") from None
        return context, certificate

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Connections are few and long. Without tickets no client comes back on the strength of a
        # client certificate that is not trusted any more.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        load_pair(context, self._certificate_file, self._key_file, names=NAMES)
        if self._client_ca is not None:
            load_authorities(context, self._client_ca, name="tls_client_ca")
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    # --- what an operator should know

    def _warn_of_modes(self) -> None:
        try:
            mode = self._key_file.stat().st_mode
        except OSError:
            return
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            event(
                _log,
                logging.WARNING,
                "tls_key_readable",
                f"the private key {self._key_file} can be read by other users (mode "
                f"{stat.S_IMODE(mode):o}); run chmod 600 on it",
            )

    def _warn_of_dates(self) -> None:
        now = time.time()
        left = self._certificate.not_after - now
        if now < self._warn_at or (left > SOON_SECONDS and self._certificate.not_before <= now):
            return
        self._warn_at = now + DAY_SECONDS
        until = day(self._certificate.not_after)
        if left <= 0:
            why = f"expired on {until}: clients reject it; renew it"
        elif self._certificate.not_before > now:
            since = day(self._certificate.not_before)
            why = f"is not valid before {since}: clients reject it until then"
        else:
            why = f"expires on {until}, in {left / DAY_SECONDS:.1f} days; renew it in time"
        event(
            _log,
            logging.WARNING,
            "tls_certificate_dates",
            f"the TLS certificate {self._certificate_file} {why}",
            days_left=round(left / DAY_SECONDS, 1),
        )


def day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
