"""Addresses elsewhere: never a private one, whatever it calls itself or redirects to."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from daemon.server import fetching, urls
from daemon.server.failures import Refused
from daemon.server.fetching import Net


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.5.4", "192.168.0.1", "169.254.169.254", "100.64.0.1",
     "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0",
     "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
     "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::"],
)  # fmt: skip
def test_private_addresses_are_not_public(address: str) -> None:
    assert not fetching.is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111"])
def test_public_addresses_are(address: str) -> None:
    assert fetching.is_public(address)


def fetch(url: str, net: Net | None = None, most: int = 1000) -> bytes:
    into = io.BytesIO()
    fetching.fetch(url, into, most, net=net)
    return into.getvalue()


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://[::1]/", "http://localhost/", "http://2130706433/", "http://0x7f.1/", "http://127.1/",
     "http://169.254.169.254/latest/meta-data/", "http://[::ffff:127.0.0.1]/", "https://10.0.0.1/"],
)  # fmt: skip
def test_no_spelling_of_this_machine_is_fetched(url: str) -> None:
    with pytest.raises(Refused) as refused:
        fetch(url)
    assert refused.value.status in (400, 403)


@pytest.mark.parametrize(
    "url",
    ["http://me:secret@example.org/", "http://example.org:22/", "http://example.org:6379/", "gopher://example.org/",
     "http:///x", "http://example.org/\r\nX: y", "http://example.org/a b", "http://[bad", "http://example.org:99999/"],
)  # fmt: skip
def test_odd_addresses_are_not_asked(url: str) -> None:
    def resolve(host: str) -> list[str]:
        raise AssertionError("it was looked up")

    with pytest.raises(Refused):
        fetch(url, Net(addresses_of=resolve))


def test_one_private_address_among_several_is_enough() -> None:
    with pytest.raises(Refused) as refused:
        fetch("http://example.org/", Net(addresses_of=lambda host: ["1.1.1.1", "10.0.0.1"]))
    assert refused.value.code == "remote_refused"


def test_nothing_is_fetched_unless_allowed() -> None:
    with pytest.raises(Refused) as refused:
        urls.copy("http://example.org/a.png", io.BytesIO(), urls.Reach(), private=urls.Path("/h"))
    assert refused.value.code == "remote_refused"


@pytest.fixture
def elsewhere() -> Iterator[tuple[Net, list[str]]]:
    """A web server that passes for `example.org` at a public address; and what it was asked, with which Host."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Host']}{self.path}")
            target = {"/away": "http://inside.example/", "/round": "/round", "/onward": "/picture"}.get(
                self.path
            )
            self.send_response(302 if target else 404 if self.path == "/none" else 200)
            if target:
                self.send_header("Location", target)
            self.end_headers()
            self.wfile.write(b"x" * 5000 if self.path == "/large" else b"picture")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    port = server.server_port

    names = {"example.org": ["127.0.0.1"], "inside.example": ["10.0.0.1"]}
    yield Net(names.__getitem__, lambda address: address == "127.0.0.1", frozenset({port, 80})), asked
    server.shutdown()
    server.server_close()


def base_of(net: Net) -> str:
    return f"http://example.org:{next(iter(net.ports - {80}))}"


def test_a_picture_is_fetched_from_the_address_that_was_judged(
    elsewhere: tuple[Net, list[str]],
) -> None:
    net = elsewhere[0]
    assert fetch(f"{base_of(net)}/picture?a=1", net) == b"picture"
    assert fetch(f"{base_of(net)}/onward", net) == b"picture"
    assert all(asked.startswith("example.org:") for asked in elsewhere[1])


@pytest.mark.parametrize("path", ["/away", "/round", "/none", "/large"])
def test_redirects_inward_and_floods_are_refused(elsewhere: tuple[Net, list[str]], path: str) -> None:
    net = elsewhere[0]
    with pytest.raises(Refused):
        fetch(base_of(net) + path, net)
    assert not [asked for asked in elsewhere[1] if asked.startswith("inside")]


def test_a_name_nobody_knows_is_a_bad_address() -> None:
    def unknown(host: str) -> list[str]:
        raise OSError

    with pytest.raises(Refused) as refused:
        fetch("http://example.org/", Net(addresses_of=unknown))
    assert refused.value.status == 400
