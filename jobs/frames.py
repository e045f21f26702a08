"""Messages between the API and its solver processes: a JSON header and raw bytes, never pickles."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import orjson

Frame = tuple[dict[str, Any], bytes]
PREFIX = struct.Struct("<IQ")
"""Length of the header, length of the body."""
PIECE = 256 * 1024
"""Of a message, handled without a pause."""


def pack(header: dict[str, Any], body: bytes = b"", length: int | None = None) -> bytes:
    """A message; ``length`` is that of the whole body where ``body`` is only its beginning."""
    encoded = orjson.dumps(header)
    return PREFIX.pack(len(encoded), len(body) if length is None else length) + encoded + body


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next message.

    Raises:
        EOFError: the other side is gone (``asyncio.IncompleteReadError`` is one).
    """
    header_length, body_length = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    header = orjson.loads(await reader.readexactly(header_length))
    body = bytearray()
    while len(body) < body_length:
        body += await reader.readexactly(min(PIECE, body_length - len(body)))
    return header, bytes(body)


async def write_frame(writer: asyncio.StreamWriter, header: dict[str, Any], body: bytes) -> None:
    """Send a message piece by piece, so that a large one does not hold up the event loop.

    Raises:
        ConnectionError: the other side is gone.
    """
    first, rest = body[:PIECE], memoryview(body)[PIECE:]
    writer.write(pack(header, first, len(body)))
    await writer.drain()
    for start in range(0, len(rest), PIECE):
        writer.write(rest[start : start + PIECE])
        await writer.drain()


def receive_frame(channel: socket.socket) -> Frame:
    """The same, blocking."""
    header_length, body_length = PREFIX.unpack(_receive(channel, PREFIX.size))
    header = orjson.loads(_receive(channel, header_length))
    return header, bytes(_receive(channel, body_length))


def _receive(channel: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    received = 0
    while received < length:
        count = channel.recv_into(view[received:])
        if count == 0:
            raise EOFError
        received += count
    return data
