"""A page's Markdown as HTML that is safe to put into a page of ours, with the words searched for marked.

The text of a page is untrusted: whoever made the file wrote it. markdown-it-py makes HTML of it (tables with merged
cells arrive as HTML, so that is let through), and nh3 then keeps nothing but the elements and attributes named here:
no script, style, form, frame, picture, id, class or handler, and no link but to the web or to mail.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from storage.folding import normal
from storage.snippet import Finder

__all__ = ["HEADING_OFFSET", "render_markdown"]

# The page that shows it has an h1 and an h2 of its own; what is a heading in the document comes below them.
HEADING_OFFSET = 2
# A block longer than this is shown as plain text: no rule of Markdown is worth minutes of a server's time.
_MAX_MARKDOWN = 200_000
_MAX_NESTING = 20

_TAGS = {
    "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "s", "del",
    "sub", "sup", "mark", "ul", "ol", "li", "a", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td",
}  # fmt: skip
_ATTRIBUTES: dict[str, set[str]] = {
    "*": set(),
    "a": {"href"},
    "ol": {"start"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
}
_SCHEMES = {"http", "https", "mailto"}
_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    attributes=_ATTRIBUTES,
    clean_content_tags=set(),  # of what is not allowed the text stays: it was printed on the page
    url_schemes=_SCHEMES,
    url_relative="deny",  # a link in a document to a path of this server is none of the document's business
    link_rel="noopener noreferrer nofollow",
    strip_comments=True,
)


def render_markdown(markdown: str, finder: Finder | None = None) -> str:
    """`markdown` as safe HTML; what `finder` finds in its text stands in `<mark>`.

    Headings go down by `HEADING_OFFSET` levels. Pictures become their alternative text. Never raises for any string.
    """
    if len(markdown) > _MAX_MARKDOWN:
        return f"<pre>{html.escape(markdown)}</pre>"
    return _CLEANER.clean(_MARKDOWN.render(markdown, {"finder": finder}))


# --- what is made of the tokens before they are HTML -------------------------------------------------------


def _adapt(state: StateCore) -> None:
    """Headings lower, pictures as words, matches marked; tokens in place."""
    finder: Finder | None = state.env.get("finder")
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + HEADING_OFFSET)}"
        elif token.children:
            token.children = list(_inline(token.children, finder))


def _inline(tokens: Sequence[Token], finder: Finder | None) -> Iterator[Token]:
    for token in tokens:
        if token.type == "image":
            yield _text(token.content or "picture")
        elif token.type == "text" and finder is not None:
            yield from _marked(token.content, finder)
        else:
            yield token


def _marked(text: str, finder: Finder) -> Iterator[Token]:
    composed = normal(text)
    at = 0
    for start, end, _ in sorted(finder.find(composed), key=lambda span: (span[0], -span[1])):
        if start < at:  # inside the one before
            continue
        yield _text(composed[at:start])
        yield _html(f"<mark>{html.escape(composed[start:end])}</mark>")
        at = end
    yield _text(composed[at:])


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _html(content: str) -> Token:
    return Token("html_inline", "", 0, content=content)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": _MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("adapt", _adapt)
    return parser


_MARKDOWN = _parser()
