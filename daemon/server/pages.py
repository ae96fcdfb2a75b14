"""The pages for a person: search, reader, status, library; failures and the question for the token as pages.

Search, status and library are empty frames that a script of ours fills from the library API; the reader comes with its
text, so that a page can be read, printed and linked to without any script. No page has a script or style of its own
in it: the Content-Security-Policy allows none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from daemon.server import library_api_documents, library_api_pages, reader_view
from daemon.server.database import Reading
from daemon.server.library_api_parameters import DocumentId, PageId, PageNumber, Words

if TYPE_CHECKING:
    from daemon.server import shapes
    from daemon.server.failures import Refused
    from storage.records import Box

# Not in the OpenAPI document: it describes what programs ask.
router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

FromPage = Annotated[int, Query(ge=1, le=10**9)]

_EVERYWHERE = ((("/",), "To the search field"), (("?",), "This list"))
_LIST = (
    (("j", "k", "↓", "↑"), "Next and previous entry"),
    (("Enter",), "Open it"),
    (("Esc",), "Back to the field"),
)
_SHORTCUTS = {
    "search": _LIST,
    "library": _LIST,
    "reader": (
        (("→", "←"), "Next and previous page"),
        (("j", "k"), "Next and previous block"),
        (("Enter",), "Show the block on the picture"),
        (("n", "N"), "Next and previous match"),
        (("c",), "Copy the page's Markdown"),
        (("Esc",), "Let go of the block; back to the search"),
    ),
}  # fmt: skip
_WORD = re.compile(r"[a-z]+([\s,;:]|$)")
_HEADINGS = {
    400: "That cannot be answered",
    403: "Not from there",
    404: "There is no such page",
    409: "Not now",
    421: "Not under this name",
    422: "That cannot be answered",
    429: "Too much at once",
    503: "Not now",
}


def sentence(text: str) -> str:
    """The text with a capital (unless it begins with a name) and a full stop."""
    text = text.strip()
    if not text:
        return ""
    begun = text[0].upper() + text[1:] if _WORD.match(text) else text
    return begun + ("" if text[-1] in ".!?…" else ".")


def with_code(text: str) -> Markup:
    """The text with what stands between backticks as code."""
    pieces = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(one) if at % 2 else one for at, one in enumerate(pieces)
    )


def _place(box: Box) -> Markup:
    values = reader_view.place(box).items()
    return Markup(" ").join(Markup('{}="{}"').format(name, f"{value:.2f}") for name, value in values)


def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["sentence"] = sentence
    env.filters["with_code"] = with_code
    env.globals["place"] = _place
    return env


_TEMPLATES = _environment()


def _page(name: str, page: str = "", **values: Any) -> str:
    """The HTML of a template; `page` is the entry of the navigation that is current."""
    shortcuts = _SHORTCUTS.get(name, ()) + _EVERYWHERE
    return _TEMPLATES.get_template(f"{name}.html").render(
        page=page, wide=name == "reader", shortcuts=shortcuts, **values
    )


# --- what is asked for -------------------------------------------------------------------------------------


@router.get("/")
def search(q: Words = "") -> HTMLResponse:
    """The search."""
    return HTMLResponse(_page("search", "search", q=q))


@router.get("/library")
def documents() -> HTMLResponse:
    """The documents."""
    return HTMLResponse(_page("library", "library"))


@router.get("/status")
def status() -> HTMLResponse:
    """What happens now."""
    return HTMLResponse(_page("status", "status"))


@router.get("/pages/{page_id}")
def read_page(request: Request, conn: Reading, page_id: PageId, q: Words = "") -> HTMLResponse:
    """A page that was read. Raises: `Refused` 404."""
    return HTMLResponse(_reader(request, library_api_pages.get_page(conn, page_id, q), q))


@router.get("/documents/{document_id}/pages/{number}")
def page_of_document(
    request: Request, conn: Reading, document_id: DocumentId, number: PageNumber, q: Words = ""
) -> HTMLResponse:
    """A page of a document, read or not. Raises: `Refused` 404."""
    return HTMLResponse(_reader(request, library_api_pages.get_page_of(conn, document_id, number, q), q))


@router.get("/documents/{document_id}")
def document(conn: Reading, document_id: DocumentId, page: FromPage = 1, q: Words = "") -> Response:
    """The way to a page of a document; where none is known yet, why. Raises: `Refused` 404."""
    known = library_api_documents.get_document(conn, document_id)
    if known.first_page is None:
        return HTMLResponse(_page("document", document=known))
    number = min(page, known.pages or 1)
    return RedirectResponse(reader_view.address(document_id, number, None, q), status_code=302)


def _reader(request: Request, page: shapes.Page, words: str) -> str:
    def address(link: shapes.PageLink | None) -> str | None:
        if link is None:
            return None
        return reader_view.address(page.document.id, link.number, link.page_id, words)

    return _page(
        "reader",
        page_data=page,
        q=words,
        back=reader_view.search_address(words) if words else "/library",
        previous=address(page.previous),
        next=address(page.next),
        blocks=reader_view.blocks(page, words),
        how=page.provenance and reader_view.how(page.provenance),
        match_count=sum(len(match.boxes) for match in page.matches),
        engines=reader_view.engines(request.app.state.settings),
    )


# --- what goes wrong ---------------------------------------------------------------------------------------


def error_page(request: Request, told: Refused) -> Response:
    """A failure as a page for a person; a missing token as the question for it."""
    if told.status == 401:
        kept = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        is_wrong = "token" in request.query_params
        html = _page("login", path=request.url.path, kept=kept, is_wrong=is_wrong)
    else:
        heading = _HEADINGS.get(told.status, "Something went wrong")
        html = _page("message", heading=heading, message=told.message, remedy=told.remedy)
    return HTMLResponse(html, told.status, told.headers)
