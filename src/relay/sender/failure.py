"""What libcurl's errors mean: one table from its codes, and from the system's, to Relay's error classes.

Owns the translation, and the cleaning of libcurl's sentences. Invariant: every code has one class. A code that is not
in the table is taken for the peer breaking the protocol: that is retried, counted and ends, whereas trouble of our own
is tried again without limit.
"""

from __future__ import annotations

import errno
import re

import pycurl

from relay.domain.refusal import RefusalReason
from relay.domain.sending import ErrorClass

DETAIL_CHARACTERS = 300

E_TOO_LARGE = 100
E_SSL_CLIENTCERT = 98
E_QUIC_CONNECT_ERROR = 96
E_HTTP3 = 95
E_RECURSIVE_API_CALL = 93
E_HTTP2_STREAM = 92
E_UNRECOVERABLE_POLL = 99
"""Codes without a name in pycurl."""

CLASSES: dict[int, ErrorClass] = {
    # what the peer did with the connection
    pycurl.E_COULDNT_CONNECT: ErrorClass.CONNECT_FAILED,
    pycurl.E_GOT_NOTHING: ErrorClass.RESET,
    pycurl.E_SEND_ERROR: ErrorClass.RESET,
    pycurl.E_RECV_ERROR: ErrorClass.RESET,
    pycurl.E_PARTIAL_FILE: ErrorClass.RESET,
    # TLS: a certificate that does not hold, or no agreement at all
    pycurl.E_PEER_FAILED_VERIFICATION: ErrorClass.TLS_CERTIFICATE,
    pycurl.E_SSL_ISSUER_ERROR: ErrorClass.TLS_CERTIFICATE,
    pycurl.E_SSL_INVALIDCERTSTATUS: ErrorClass.TLS_CERTIFICATE,
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: ErrorClass.TLS_CERTIFICATE,
    pycurl.E_SSL_CONNECT_ERROR: ErrorClass.TLS_FAILED,
    pycurl.E_SSL_CIPHER: ErrorClass.TLS_FAILED,
    pycurl.E_SSL_SHUTDOWN_FAILED: ErrorClass.TLS_FAILED,
    pycurl.E_USE_SSL_FAILED: ErrorClass.TLS_FAILED,
    E_SSL_CLIENTCERT: ErrorClass.TLS_FAILED,
    # what came is not HTTP
    pycurl.E_UNSUPPORTED_PROTOCOL: ErrorClass.PROTOCOL,
    pycurl.E_FTP_WEIRD_SERVER_REPLY: ErrorClass.PROTOCOL,
    pycurl.E_HTTP2: ErrorClass.PROTOCOL,
    E_HTTP2_STREAM: ErrorClass.PROTOCOL,
    E_HTTP3: ErrorClass.PROTOCOL,
    E_QUIC_CONNECT_ERROR: ErrorClass.PROTOCOL,
    E_TOO_LARGE: ErrorClass.PROTOCOL,
    pycurl.E_BAD_CONTENT_ENCODING: ErrorClass.PROTOCOL,
    pycurl.E_FILESIZE_EXCEEDED: ErrorClass.PROTOCOL,
    pycurl.E_HTTP_RETURNED_ERROR: ErrorClass.PROTOCOL,
    pycurl.E_TOO_MANY_REDIRECTS: ErrorClass.PROTOCOL,
    # the url passed the policy and libcurl cannot use it: nothing else may be tried with it
    pycurl.E_URL_MALFORMAT: ErrorClass.REFUSED_URL,
    # time; which of the three it was is told by how far the transfer had come
    pycurl.E_OPERATION_TIMEDOUT: ErrorClass.TOTAL_TIMEOUT,
    # this machine, or a mistake in this room. Names are never left to libcurl, so a failed lookup is one, too
    pycurl.E_COULDNT_RESOLVE_HOST: ErrorClass.LOCAL,
    pycurl.E_COULDNT_RESOLVE_PROXY: ErrorClass.LOCAL,
    pycurl.E_FAILED_INIT: ErrorClass.LOCAL,
    pycurl.E_NOT_BUILT_IN: ErrorClass.LOCAL,
    pycurl.E_WRITE_ERROR: ErrorClass.LOCAL,
    pycurl.E_READ_ERROR: ErrorClass.LOCAL,
    pycurl.E_OUT_OF_MEMORY: ErrorClass.LOCAL,
    pycurl.E_ABORTED_BY_CALLBACK: ErrorClass.LOCAL,
    pycurl.E_BAD_FUNCTION_ARGUMENT: ErrorClass.LOCAL,
    pycurl.E_INTERFACE_FAILED: ErrorClass.LOCAL,
    pycurl.E_UNKNOWN_OPTION: ErrorClass.LOCAL,
    pycurl.E_SSL_ENGINE_NOTFOUND: ErrorClass.LOCAL,
    pycurl.E_SSL_ENGINE_SETFAILED: ErrorClass.LOCAL,
    pycurl.E_SSL_ENGINE_INITFAILED: ErrorClass.LOCAL,
    pycurl.E_SSL_CERTPROBLEM: ErrorClass.LOCAL,
    pycurl.E_SSL_CACERT_BADFILE: ErrorClass.LOCAL,
    pycurl.E_SSL_CRL_BADFILE: ErrorClass.LOCAL,
    pycurl.E_SEND_FAIL_REWIND: ErrorClass.LOCAL,
    pycurl.E_AGAIN: ErrorClass.LOCAL,
    pycurl.E_NO_CONNECTION_AVAILABLE: ErrorClass.LOCAL,
    E_RECURSIVE_API_CALL: ErrorClass.LOCAL,
    E_UNRECOVERABLE_POLL: ErrorClass.LOCAL,
}

CONNECT_CLASSES: dict[int, ErrorClass] = {
    # the system was not even asked to connect: there was no descriptor for the socket
    0: ErrorClass.LOCAL,
    errno.ECONNREFUSED: ErrorClass.CONNECT_REFUSED,
    errno.ETIMEDOUT: ErrorClass.CONNECT_TIMEOUT,
    # no descriptors, memory, buffers or free ports, or a packet filter of this machine
    errno.EMFILE: ErrorClass.LOCAL,
    errno.ENFILE: ErrorClass.LOCAL,
    errno.ENOMEM: ErrorClass.LOCAL,
    errno.ENOBUFS: ErrorClass.LOCAL,
    errno.EADDRNOTAVAIL: ErrorClass.LOCAL,
    errno.EACCES: ErrorClass.LOCAL,
    errno.EPERM: ErrorClass.LOCAL,
}
"""What the system's error says about a connection that could not be made."""

OF_THE_CONNECTION = frozenset(
    {pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR, pycurl.E_GOT_NOTHING, pycurl.E_FTP_WEIRD_SERVER_REPLY}
)
"""Codes that on a kept connection tell of the connection: it died, or something strayed in before the answer."""

URL_REASONS = frozenset(
    {
        RefusalReason.MALFORMED,
        RefusalReason.TOO_LONG,
        RefusalReason.SCHEME,
        RefusalReason.USERINFO,
        RefusalReason.FRAGMENT,
        RefusalReason.HOST,
        RefusalReason.PORT,
        RefusalReason.CREDENTIAL,
    }
)
"""Refusals of a url's own form; all others are of the address behind it."""

_TLS_LIBRARY = "SSL"
_PINNED_AS = re.compile(r" via \S+")


def error_class(code: int, system_error: int, text: str) -> ErrorClass:
    """The class of libcurl's `code` (not 0), given the system's last error of that transfer (0: none) and its text."""
    if code == pycurl.E_COULDNT_CONNECT:
        return CONNECT_CLASSES.get(system_error, ErrorClass.CONNECT_FAILED)
    if code == pycurl.E_RECV_ERROR and not system_error and _TLS_LIBRARY not in text:
        # Nothing failed below HTTP: libcurl uses this code, too, for chunks that it cannot read and for giant heads.
        return ErrorClass.PROTOCOL
    return CLASSES.get(code, ErrorClass.PROTOCOL)


def refused_class(reason: RefusalReason) -> ErrorClass:
    """Whether a refusal is of the url or of the address."""
    return ErrorClass.REFUSED_URL if reason in URL_REASONS else ErrorClass.REFUSED_ADDRESS


def sentence(text: str) -> str:
    """libcurl's text, which holds no url, without the name under which the address was pinned."""
    return _PINNED_AS.sub("", text)[:DETAIL_CHARACTERS]
