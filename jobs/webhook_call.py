"""One call of a webhook: a signed POST to a checked address, bounded in time, following no redirect."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping

from jobs.addresses import parse_url, resolve

CALL_SECONDS = 10.0
"""Of one call altogether, however slowly the other side talks."""
SECRET_PREFIX = "whsec_"


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of Standard Webhooks, version 1; ``secret`` may be ``whsec_`` and base64, or any text.

    >>> signature("a secret", "msg_1", 1700000000, b"{}")
    'v1,V0kUGYXplWP57MnjHXigELKZcxm4+MlDimzpvC4jorc='
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def call(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool = False) -> int:
    """POST a JSON body; the status of the answer, whose body is not read.

    Raises:
        BadAddress: the host is not, or no longer, at a public address.
        OSError, http.client.HTTPException: there was no answer.
    """
    target = parse_url(url, allow_private=allow_private)
    addresses = resolve(target.host, target.port, allow_private=allow_private)
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = _connect(addresses, target.port)
    deadline = threading.Timer(CALL_SECONDS, _hang_up, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        if target.secure:
            context = ssl.create_default_context()
            connection.sock = secure = context.wrap_socket(
                connection.sock, server_hostname=target.host, do_handshake_on_connect=False
            )
            secure.do_handshake()
        host = f"[{target.host}]" if ":" in target.host else target.host
        default = target.port == (443 if target.secure else 80)
        named = {"Host": host if default else f"{host}:{target.port}"}
        connection.request("POST", target.path, body, named | dict(headers))
        return connection.getresponse().status
    finally:
        deadline.cancel()
        connection.close()


def _connect(addresses: list[str], port: int) -> socket.socket:
    for address in addresses[:-1]:
        try:
            return socket.create_connection((address, port), CALL_SECONDS / len(addresses))
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), CALL_SECONDS / len(addresses))


def _hang_up(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # below TLS, which may be stuck
