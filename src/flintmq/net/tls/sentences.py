"""What went wrong in a TLS handshake, in a sentence that says what to do."""

from __future__ import annotations

import ssl

NOT_YET, EXPIRED = 9, 10
UNKNOWN = frozenset({2, 18, 19, 20, 21})
"""Verification results of OpenSSL: not signed by a trusted CA."""
WRONG_NAME = frozenset({62, 64})

_TOLD = {
    "CERTIFICATE_REQUIRED": (
        "the broker requires a client certificate; pass one with tls_cert and tls_key"
    ),
    "UNKNOWN_CA": (
        "the broker does not trust the CA of our client certificate; use one signed by its "
        "tls_client_ca"
    ),
    "CERTIFICATE_EXPIRED": "the broker says that our client certificate has expired; renew it",
    "BAD_CERTIFICATE": (
        "the broker rejected our client certificate; use one signed by its tls_client_ca"
    ),
    "UNSUPPORTED_CERTIFICATE": (
        "the broker rejected our client certificate: it is not meant for clients"
    ),
    "DECRYPT_ERROR": "the broker rejected our client certificate: its signature is invalid",
    "PROTOCOL_VERSION": (
        "the broker supports no TLS version that this client allows (1.2 and newer)"
    ),
    "HANDSHAKE_FAILURE": (
        "the broker rejected the TLS handshake; it may require a client certificate: pass one "
        "with tls_cert and tls_key"
    ),
}
"""Alerts from the broker, by the end of their reason."""


def why_refused(error: ssl.SSLError, host: str) -> str | None:
    """Why a client cannot have a secure connection, and what helps; None where it may be a
    passing fault of the network."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == EXPIRED:
            return (
                "the broker's certificate has expired; renew it there (and check the local clock)"
            )
        if code == NOT_YET:
            return "the broker's certificate is not valid yet; check both clocks"
        if code in WRONG_NAME:
            return (
                f"the broker's certificate is not valid for {host!r}; connect by a name in "
                "the certificate, or create one for this name"
            )
        if code in UNKNOWN:
            return (
                "the broker's certificate is not signed by a trusted CA; pass the CA file "
                "with tls_ca"
            )
        return f"the broker's certificate cannot be trusted: {error.verify_message}"
    reason = error.reason or ""
    if "ALERT" in reason:
        for ending, sentence in _TOLD.items():
            if reason.endswith(ending):
                return sentence
    if reason in ("UNSUPPORTED_PROTOCOL", "WRONG_SSL_VERSION"):
        return _TOLD["PROTOCOL_VERSION"]
    return None


def in_short(error: ssl.SSLError) -> str:
    """The same as a server sees it, for a line in its log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted: {error.verify_message}"
    reason = error.reason or str(error)
    known = {
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no client certificate",
        "UNSUPPORTED_PROTOCOL": "it does not support TLS 1.2 or newer",
        "NO_SHARED_CIPHER": "it supports no cipher that we allow",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust our certificate",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not know the CA of our certificate",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
        "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    }
    return known.get(reason, reason.lower().replace("_", " "))
