"""Which addresses a webhook may call: public ones, so that nobody reaches inner networks through us."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL = 2048
HOST_NAME = re.compile(r"(?=.{1,254}$)([a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?")
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses behind a translator are in the last four bytes."""
UNICAST = ipaddress.ip_network("2000::/3")
TUNNELS = (ipaddress.ip_network("2001::/32"), ipaddress.ip_network("2002::/16"))
"""Teredo and 6to4 lead to IPv4 addresses that nobody here checks."""


class BadAddress(ValueError):
    """The address of a webhook cannot be called, or must not be."""


@dataclass(frozen=True)
class Target:
    """A checked URL in parts; ``path`` has the query with it."""

    secure: bool
    host: str
    port: int
    path: str


def is_public(address: Address) -> bool:
    """Whether the address is somewhere in the internet.

    >>> is_public(ipaddress.ip_address("::ffff:127.0.0.1")), is_public(ipaddress.ip_address("9.9.9.9"))
    (False, True)
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in NAT64:
            return is_public(ipaddress.IPv4Address(address.packed[-4:]))
        if address not in UNICAST or any(address in tunnel for tunnel in TUNNELS):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def parse_url(url: str, *, allow_private: bool = False) -> Target:
    """The parts of a URL, as far as it can be checked without looking anything up.

    Raises:
        BadAddress: it is no http(s) URL, or names an address that is not public.
    """
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise BadAddress(f"must be at most {MAX_URL} printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress("is not a URL") from None
    if parts.scheme not in ("http", "https"):
        raise BadAddress("must begin with https:// or http://")
    if "@" in parts.netloc or parts.fragment:
        raise BadAddress("must have neither a user nor a fragment")
    if not host or port == 0 or not (HOST_NAME.fullmatch(host) or ":" in host):
        raise BadAddress("must name a host")
    if not allow_private:
        _refuse_private(host)
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, host, port or (443 if secure else 80), path)


def _refuse_private(host: str) -> None:
    name = host.rstrip(".")
    if name == "localhost" or name.endswith((".localhost", ".local", ".internal")):
        raise BadAddress("must be a public address")
    literal = _literal(name)
    if literal is not None and not is_public(literal):
        raise BadAddress("must be a public address")


def _literal(host: str) -> Address | None:
    """The address that a host name spells, in any spelling that resolvers take for one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def resolve(host: str, port: int, *, allow_private: bool = False) -> list[str]:
    """Numeric addresses of a host. Connect to these, not to the name: it may mean another one a moment later.

    Raises:
        BadAddress: one of them is not public.
        OSError: the name is not known.
    """
    found = [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    addresses = [str(address) for address in dict.fromkeys(found)]
    if not allow_private:
        for address in addresses:
            if not is_public(ipaddress.ip_address(address.partition("%")[0])):
                raise BadAddress(f"{host} is at an address that is not public")
    return addresses
