"""Protocols other than Kafka's, recognised by their first bytes."""

from __future__ import annotations

_TLS = "TLS"
_HTTP = "HTTP"

_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"\x15\x03", _TLS),  # an alert: the answer to bytes that are not TLS
    (b"\x16\x03", _TLS),  # a handshake
    (b"\x80\x2e\x01", _TLS),  # the greeting of SSL 2
    (b"HTTP", _HTTP),
    (b"<!DOCTYPE", _HTTP),  # HTTP/0.9, without headers
    (b"<html", _HTTP),
    (b"GET ", _HTTP),
    (b"HEAD", _HTTP),
    (b"POST", _HTTP),
    (b"PUT ", _HTTP),
    (b"DELETE", _HTTP),
    (b"OPTIONS", _HTTP),
    (b"PATCH", _HTTP),
    (b"CONNECT ", _HTTP),
    (b"PRI * HTTP/2", _HTTP),
    (b"SSH-", "SSH"),
    (b"AMQP", "AMQP"),
    (b"E\x00\x00", "PostgreSQL's protocol"),  # an error; its length follows
)
_SHOWN_BYTES = 40
_TEXT = frozenset(range(0x20, 0x7F)) | frozenset(b"\r\n\t")
_MYSQL_NUMBER, _MYSQL_VERSION = 3, 4


def protocol_of(data: bytes) -> str | None:
    """Return the protocol that a connection's first bytes belong to; None if unknown.

    Args:
        data: The bytes received so far, at least four.

    Returns:
        A name for people ("TLS", "HTTP"), or the beginning of received text.
    """
    for sign, name in _SIGNS:
        if data.startswith(sign):
            return name
    if data[_MYSQL_NUMBER : _MYSQL_VERSION + 1] in (b"\x00\x0a", b"\x00\xff"):
        return "MySQL's protocol"
    start = data[:_SHOWN_BYTES]
    if len(start) >= 4 and _TEXT.issuperset(start):
        return f"a protocol of text ({start.decode('ascii')!r})"
    return None
