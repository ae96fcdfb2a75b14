"""A picture at an http(s) address, for servers that allow it: never from a private network, however it is named.

The name is resolved once, every address it has must be public, and the connection goes to one of these very
addresses, so that a second answer of the name server changes nothing. Redirects go through all of it again.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

from daemon.server.failures import Refused

REDIRECTS = 3
CONNECT_S = 10.0
TOTAL_S = 60.0
PORTS = {"http": 80, "https": 443}
_CHUNK = 1 << 16
_REDIRECT = frozenset({301, 302, 303, 307, 308})


def addresses_of(host: str) -> list[str]:
    """The addresses of a name. Raises: OSError."""
    return list(
        dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    )


def is_public(address: str) -> bool:
    """Whether an address is of the public net; of one that carries another inside, that one is judged, too."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inside = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inside is not None and not is_public(str(inside)):
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


@dataclass(frozen=True, slots=True)
class Net:
    """What the net is, for tests to say otherwise."""

    addresses_of: Callable[[str], Sequence[str]] = addresses_of
    is_public: Callable[[str], bool] = is_public
    ports: frozenset[int] = frozenset(PORTS.values())
    clock: Callable[[], float] = time.monotonic


def fetch(url: str, into: BinaryIO, most: int, *, param: str | None = None, net: Net | None = None) -> None:
    """Write what lies at `url` to a file. Blocks: for a thread. Raises: `Refused`."""
    net = net or Net()
    deadline = net.clock() + TOTAL_S
    try:
        for _ in range(REDIRECTS + 1):
            onward = _get(url, into, most, param, net, deadline)
            if onward is None:
                return
            url = urljoin(url, onward)
    except (OSError, http.client.HTTPException) as error:
        raise _failed(f"cannot be fetched ({type(error).__name__})", param) from None
    raise _failed("leads from one address to the next", param)


def _get(url: str, into: BinaryIO, most: int, param: str | None, net: Net, deadline: float) -> str | None:
    """Fetch, or say where to go instead."""
    scheme, host, port, target = _parts(url, param, net)
    connection = _connection(scheme, host, port, _address(host, param, net))
    # Every read may take CONNECT_S; whoever sends a byte each time is cut off all the same.
    end = threading.Timer(max(0.1, deadline - net.clock()), _shut, [connection.sock])
    end.daemon = True
    end.start()
    try:
        connection.request(
            "GET", target, headers={"User-Agent": "ocrd", "Accept": "image/*, application/pdf"}
        )
        response = connection.getresponse()
        if response.status in _REDIRECT and (onward := response.getheader("Location")):
            return onward
        if response.status != 200:
            raise _failed(f"cannot be fetched (status {response.status})", param)
        size = 0
        while data := response.read1(_CHUNK):
            size += len(data)
            if size > most:
                raise Refused(413, "the file at that address is too large", code="too_large", param=param)
            into.write(data)
        if net.clock() >= deadline:
            raise _failed("comes too slowly", param)
        return None
    finally:
        end.cancel()
        connection.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _parts(url: str, param: str | None, net: Net) -> tuple[str, str, int, str]:
    """Scheme, host, port and what to ask for. Raises: `Refused` for what is not plain http(s)."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        raise Refused(400, "not a valid address", code="invalid_url", param=param) from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if (
        parts.scheme not in PORTS
        or not parts.hostname
        or not (url.isascii() and url.isprintable())
        or " " in url
    ):
        raise Refused(400, "not a valid http(s) address", code="invalid_url", param=param)
    if parts.username is not None or port not in net.ports:
        raise Refused(
            403,
            "addresses with a password or an unusual port are not fetched",
            code="remote_refused",
            param=param,
        )
    return parts.scheme, parts.hostname, port, target


def _address(host: str, param: str | None, net: Net) -> str:
    """The address to connect to; one that is not public among them all is reason enough to refuse."""
    try:
        found = net.addresses_of(host)
    except (OSError, UnicodeError):
        raise _failed("is unknown", param) from None
    if not found or not all(net.is_public(address) for address in found):
        raise Refused(403, "that address is not of the public net", code="remote_refused", param=param)
    return found[0]


def _connection(scheme: str, host: str, port: int, address: str) -> http.client.HTTPConnection:
    """A connection that says `host` and goes to `address`."""
    plain = socket.create_connection((address, port), timeout=CONNECT_S)
    connection: http.client.HTTPConnection
    try:
        if scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_S)
            connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
            connection.sock = plain
    except BaseException:
        plain.close()
        raise
    return connection


def _failed(why: str, param: str | None) -> Refused:
    return Refused(400, f"the picture's address {why}", code="invalid_url", param=param)
