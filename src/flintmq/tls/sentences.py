"""What went wrong in a TLS handshake, in a sentence that says what to do."""

from __future__ import annotations

import ssl

NOT_YET, EXPIRED = 9, 10
UNKNOWN = frozenset({2, 18, 19, 20, 21})
"""Verification results of OpenSSL: nobody we trust has signed it."""
WRONG_NAME = frozenset({62, 64})

_TOLD = {
    "CERTIFICATE_REQUIRED": "the broker asks for a client certificate; "
    "give one with tls_cert and tls_key",
    "UNKNOWN_CA": "the broker does not trust who signed our client certificate; "
    "use one that its tls_client_ca has signed",
    "CERTIFICATE_EXPIRED": "the broker says that our client certificate has expired; renew it",
    "BAD_CERTIFICATE": "the broker refuses our client certificate; "
    "use one that its tls_client_ca has signed",
    "UNSUPPORTED_CERTIFICATE": "the broker refuses our client certificate: "
    "it is not meant for clients",
    "DECRYPT_ERROR": "the broker refuses our client certificate: its signature does not hold",
    "PROTOCOL_VERSION": "the broker speaks no version of TLS that this client allows (1.2 and up)",
    "HANDSHAKE_FAILURE": "the broker refused the TLS handshake; "
    "it may ask for a client certificate: give one with tls_cert and tls_key",
}
"""By how the reason of an alert ends that came from the broker."""


def why_refused(error: ssl.SSLError, host: str) -> str | None:
    """Why a client cannot have a secure connection, and what helps; None where it may be a
    passing fault of the network."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == EXPIRED:
            return "the broker's certificate has expired; renew it there (and check our clock)"
        if code == NOT_YET:
            return "the broker's certificate is not valid yet; check both clocks"
        if code in WRONG_NAME:
            return (
                f"the broker's certificate is not for {host!r}; "
                "connect by a name that is in it, or have one made for this name"
            )
        if code in UNKNOWN:
            return (
                "the broker's certificate is signed by nobody we trust; "
                "give the certificate of who signed it with tls_ca"
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
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it brought no client certificate",
        "UNSUPPORTED_PROTOCOL": "it speaks no TLS 1.2 or newer",
        "NO_SHARED_CIPHER": "it knows no cipher that we allow",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust our certificate",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not know who signed our certificate",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
        "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    }
    return known.get(reason, reason.lower().replace("_", " "))
