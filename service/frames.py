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


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    encoded = orjson.dumps(header)
    return PREFIX.pack(len(encoded), len(body)) + encoded + body


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next message.

    Raises:
        EOFError: the other side is gone (``asyncio.IncompleteReadError`` is one).
    """
    header_length, body_length = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    header = orjson.loads(await reader.readexactly(header_length))
    return header, await reader.readexactly(body_length) if body_length else b""


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
