"""Who is let in: names, origins, tokens; and what every answer says to a browser."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from daemon.server import security
from daemon.server.app import create_app
from storage.errors import AccessError, SettingsError
from tests.daemon.server.running import settings_in

TOKEN = "correct-horse-battery-staple"
READ, WRITE = "/v1/models", "/v1/chat/completions"


@pytest.fixture(scope="module")
def open_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(settings_in(tmp_path_factory.mktemp("home")), hosts=("scans.home.arpa",))

    def broken() -> None:
        raise RuntimeError("secret detail")

    app.add_api_route("/api/broken", broken)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def closed_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(settings_in(tmp_path_factory.mktemp("home")), token=TOKEN)
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


@pytest.fixture
def stranger(closed_app: TestClient) -> TestClient:
    closed_app.cookies.clear()
    return closed_app


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8470", "LOCALHOST", "localhost.", "127.0.0.1:1", "[::1]:80", "192.168.1.7",
     "scans.home.arpa"],
)  # fmt: skip
def test_names_it_has_and_addresses_are_served(open_app: TestClient, host: str) -> None:
    assert open_app.get(READ, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example:8470", "localhost@evil.example", "127.0.0.1.nip.io",
     "a b", ""],
)  # fmt: skip
def test_a_name_rebound_to_us_is_not_served(open_app: TestClient, host: str) -> None:
    answer = open_app.get(READ, headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["error"]["code"] == "bad_host"


@given(st.text(max_size=40))
def test_any_host_header_is_a_name_or_none(text: str) -> None:
    name = security.host_name(text)
    assert name is None or (name and "@" not in name and "/" not in name)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:99", "http://localhost.evil.example"]
)
def test_a_write_from_another_sites_page_is_refused(open_app: TestClient, origin: str) -> None:
    answer = open_app.post(WRITE, json={}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "cross_origin"


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://localhost"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}],
)
def test_writes_of_our_own_pages_and_of_programs_pass(open_app: TestClient, headers: dict[str, str]) -> None:
    assert open_app.post(WRITE, json={"messages": []}, headers=headers).json()["error"]["code"] == "no_image"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_other_pages_embed_is_refused_and_links_are_not(open_app: TestClient, site: str) -> None:
    fetched = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert open_app.get(READ, headers=fetched).status_code == 403
    assert open_app.post(WRITE, json={}, headers=fetched).status_code == 403
    assert open_app.get(READ, headers={**fetched, "Sec-Fetch-Mode": "navigate"}).status_code == 200


@pytest.mark.parametrize(
    "path", [READ, "/", "/static/none.js", "/no/such/page", "/api/broken", "/openapi.json"]
)
def test_every_answer_has_the_headers(open_app: TestClient, path: str) -> None:
    headers = open_app.get(path, headers={"Origin": "http://evil.example"}).headers
    policy = dict(part.partition(" ")[::2] for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control-")]
    assert headers["Cache-Control"]


def test_a_preflight_of_another_site_is_given_nothing(open_app: TestClient) -> None:
    answer = open_app.options(
        WRITE, headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert not answer.is_success
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_an_unexpected_failure_tells_no_details(open_app: TestClient) -> None:
    answer = open_app.get("/api/broken")
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "secret detail" not in answer.text


@pytest.mark.parametrize("path", [READ, "/", "/static/none.js", "/openapi.json", "/metrics", "/no/such/page"])
def test_nothing_is_served_without_the_token(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 401


@pytest.mark.parametrize(
    "given", ["Bearer wrong", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"]
)
def test_a_wrong_token_opens_nothing(stranger: TestClient, given: str) -> None:
    answer = stranger.get(READ, headers={"Authorization": given.encode("latin-1")})  # type: ignore[dict-item]  # bytes are sent as they are
    assert answer.status_code == 401
    assert "Bearer" in answer.headers["WWW-Authenticate"]


def test_the_token_opens_it(stranger: TestClient) -> None:
    assert stranger.get(READ, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_browser_exchanges_the_token_for_a_cookie(stranger: TestClient) -> None:
    answer = stranger.get(f"{READ}?q=two+words&token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["Location"] == f"{READ}?q=two+words"
    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert TOKEN not in cookie
    assert stranger.get(READ).status_code == 200


def test_a_wrong_token_in_an_address_opens_nothing(stranger: TestClient) -> None:
    assert stranger.get(f"{READ}?token=wrong").status_code == 401
    assert not stranger.cookies


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/%2Fevil.example/"])
def test_the_exchange_leads_to_no_other_host(stranger: TestClient, path: str) -> None:
    answer = stranger.get(f"http://localhost{path}?token={TOKEN}")
    location = answer.headers["Location"]
    assert location.startswith("/")
    assert not location.startswith("//")


def test_a_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    token, is_new = security.stored_token(tmp_path)
    assert is_new
    assert len(token) >= 32
    assert stat.S_IMODE((tmp_path / security.TOKEN_NAME).stat().st_mode) == 0o600
    assert security.stored_token(tmp_path) == (token, False)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    with pytest.raises(AccessError):
        security.read_token(path)


@pytest.mark.parametrize(
    "text", ["", "short", "with a space in the middle", "žluťoučký-kůň-úpěl-ďábelské-ódy"]
)
def test_what_makes_no_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SettingsError):
        security.read_token(path)


@pytest.mark.parametrize(
    ("host", "ours"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.8.8.8", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.7", False), ("example.org", False)],
)  # fmt: skip
def test_only_this_machine_needs_no_token(host: str, ours: bool) -> None:
    assert security.is_loopback(host) is ours
