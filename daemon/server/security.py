"""Who may ask: the Host header, where a write comes from, the token; and the headers every answer carries.

A name in Host must be ours, else a page elsewhere could have its own name point here (DNS rebinding) and read what it
likes; an address in Host cannot be rebound. Nothing here allows another origin to read an answer (no CORS headers).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
from collections.abc import Iterable, Sequence
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse

from daemon.server import failures
from daemon.server.bodies import Stalled
from daemon.server.failures import Refused
from storage.errors import AccessError, SettingsError, from_os_error
from storage.staging import write_file

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

TOKEN_NAME = "server.token"
SHORTEST_TOKEN = 16
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost"})
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
PRIVATE = "no-store"  # the library is nobody else's: no cache keeps it unless a route says otherwise
OURS = "no-cache"  # scripts and styles, the same for everybody: kept, but asked about each time
# What the page that asks for the token is made of.
WITHOUT_TOKEN = frozenset(f"/static/{name}" for name in ("base.css", "login.css", "theme.js", "icon.svg"))


class Guard:
    """Middleware: refuses who may not ask, and adds the headers to whatever is answered."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Sequence[str] = ()) -> None:
        self.app = app
        self.token = token
        self.hosts = LOOPBACK_NAMES | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of somebody who may ask."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", OURS if scope["path"].startswith("/static/") else PRIVATE)
            await send(message)

        request = Request(scope)
        try:
            check_host(request, self.hosts)
            check_origin(request)
            if self.token is not None and scope["path"] not in WITHOUT_TOKEN:
                if (logged_in := log_in(request, self.token)) is not None:
                    await logged_in(scope, receive, send_guarded)
                    return
                check_token(request, self.token)
        except Refused as told:
            await failures.answer(request, told)(scope, receive, send_guarded)
            return
        try:
            await self.app(scope, receive, send_guarded)
        except Stalled:
            log.info("a client took no more of its answer: let go")
        except Exception as error:  # here, so that this answer too has the headers
            failure = failures.refusal(error)
            if not begun:
                await failures.answer(request, failure)(scope, receive, send_guarded)


def check_host(request: Request, names: Iterable[str]) -> None:
    """Raises: `Refused` unless Host is an address or one of `names`."""
    given = request.headers.getlist("host")
    if len(given) != 1:
        raise Refused(400, "exactly one Host header is needed", code="bad_host")
    name = host_name(given[0])
    if name is None or not (is_address(name) or name in names):
        raise Refused(
            421,
            "this server is not known by that name",
            code="bad_host",
            remedy="use its address, or start it with --allow-host NAME",
        )


def host_name(netloc: str) -> str | None:
    """The name or address of `name:port`, `[::1]:port`; None for anything else."""
    try:
        parts = urlsplit(f"//{netloc}")
        _ = parts.port  # raises for what is no number
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return (parts.hostname or "").rstrip(".") or None


def is_address(name: str) -> bool:
    """Whether this is an IP address and no name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches what listens on `host`."""
    return host in LOOPBACK_NAMES or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_origin(request: Request) -> None:
    """Raises: `Refused` for a write from another site's page, and for its reading anything but a page by link."""
    fetched_by = request.headers.get("sec-fetch-site")
    if request.method in SAFE_METHODS:
        # What another page embeds or fetches it cannot read, but it could time it.
        if fetched_by in ("cross-site", "same-site") and request.headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "not for pages of other sites", code="cross_origin")
        return
    origins = request.headers.getlist("origin")
    if origins:
        host = request.headers["host"].lower()
        if any(urlsplit(origin.lower()).netloc != host for origin in origins):
            raise Refused(403, "not for pages of other sites", code="cross_origin")
    elif fetched_by not in (None, "same-origin", "none"):
        raise Refused(403, "not for pages of other sites", code="cross_origin")


def check_token(request: Request, token: str) -> None:
    """Raises: `Refused` unless the request shows the token, or the cookie it was exchanged for."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and _same(given.strip(), token):
        return
    if _same(_cookie(request, token), cookie_value(token)):
        return
    raise Refused(
        401,
        "a token is needed",
        code="token",
        remedy="send `Authorization: Bearer TOKEN`, or open the page once with ?token=TOKEN",
        headers={"WWW-Authenticate": 'Bearer realm="ocrd"'},
    )


def log_in(request: Request, token: str) -> RedirectResponse | None:
    """For a browser that opens a page with ?token=…: the same page without, and a cookie that stands for the token."""
    if request.method != "GET" or "token" not in request.query_params:
        return None
    if not _same(request.query_params["token"], token):
        raise Refused(401, "that is not the token", code="token")
    rest = urlencode([pair for pair in parse_qsl(request.url.query) if pair[0] != "token"])
    # A path that begins with two slashes would name another host.
    path = "/" + request.url.path.lstrip("/")
    response = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
    response.set_cookie(
        cookie_name(token),
        cookie_value(token),
        max_age=365 * 86_400,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


def cookie_name(token: str) -> str:
    """A name of its own for each token: cookies of one host are shared by all its ports."""
    return f"ocrd_{_digest('name', token)[:8]}"


def cookie_value(token: str) -> str:
    """What stands for the token in a browser; the token cannot be told from it."""
    return _digest("cookie", token)


def _digest(purpose: str, token: str) -> str:
    return hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _cookie(request: Request, token: str) -> str:
    try:
        jar = SimpleCookie(request.headers.get("cookie", ""))
    except CookieError:
        return ""
    morsel = jar.get(cookie_name(token))
    return morsel.value if morsel is not None else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def stored_token(home: Path) -> tuple[str, bool]:
    """The token of a home, made at the first call; and whether it was made now (then it is to be shown once).

    Raises: as `read_token`; storage errors.
    """
    path = home / TOKEN_NAME
    if path.exists():
        return read_token(path), False
    token = secrets.token_urlsafe(32)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, token.encode() + b"\n")
    except OSError as error:
        raise from_os_error(error, file=path) from error
    return token, True


def read_token(path: Path) -> str:
    """The token in a file. Raises: `AccessError` where others may read it, `SettingsError` for a short one."""
    try:
        if path.stat().st_mode & 0o077:
            raise AccessError("the token can be read by others", file=path, remedy=f"run: chmod 600 '{path}'")
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise from_os_error(error, file=path) from error
    if len(token) < SHORTEST_TOKEN or not token.isascii() or " " in token:
        raise SettingsError(
            f"no token: {SHORTEST_TOKEN} or more ASCII characters are needed",
            file=path,
            remedy="remove the file: a new token is made",
        )
    return token
