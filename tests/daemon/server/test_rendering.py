"""What a page's text may become in a browser: whatever it says, nothing that acts."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.server.rendering import HEADING_OFFSET, render_markdown
from storage.query import parse
from storage.snippet import Finder

ALLOWED = {
    "p": set(), "br": set(), "hr": set(), "blockquote": set(), "pre": set(), "code": set(), "em": set(),
    "strong": set(), "s": set(), "del": set(), "sub": set(), "sup": set(), "mark": set(), "ul": set(), "li": set(),
    "h1": set(), "h2": set(), "h3": set(), "h4": set(), "h5": set(), "h6": set(),
    "ol": {"start"}, "a": {"href", "rel"}, "table": set(), "caption": set(), "thead": set(), "tbody": set(),
    "tfoot": set(), "tr": set(), "td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan", "scope"},
}  # fmt: skip

NASTY = [
    "<script>alert(1)</script>",
    "<ScRiPt src=https://evil.example/x.js></sCrIpT>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<svg><use href='data:image/svg+xml,<svg id=x xmlns=http://www.w3.org/2000/svg><script>alert(1)</script></svg>#x'>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<template><script>alert(1)</script></template>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)><embed src=javascript:alert(1)>",
    "<base href=//evil.example/><meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<link rel=stylesheet href=//evil.example/x.css><style>@import '//evil.example/y.css';</style>",
    "<form action=/api/retry-failed method=post><button>click</button><input name=x autofocus onfocus=alert(1)></form>",
    "<a href=javascript:alert(1)>x</a> <a href='java\tscript:alert(1)'>x</a> <a href='&#106;avascript:alert(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a><a href=vbscript:msgbox(1)>x</a>",
    "[x](javascript:alert(1)) [x](JaVaScRiPt:alert(1)) [x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x]( java&#x0A;script:alert(1)) ![x](javascript:alert(1)) <javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    "[x](https://a.example/\"onmouseover=alert(1)//) [y](https://a.example 'a\" onmouseover=\"alert(1)')",
    "<p style='background:url(javascript:alert(1));position:fixed;inset:0' onclick=alert(1) id=content class=reader>x",
    "<details open ontoggle=alert(1)><summary>x</summary></details>",
    "<video><source onerror=alert(1)></video><audio src onerror=alert(1)>",
    "<body onload=alert(1)><html onclick=alert(1)><marquee onstart=alert(1)>",
    "`<script>alert(1)</script>`\n\n    <script>alert(1)</script>\n\n```html\n<script>alert(1)</script>\n```",
    "| <script>alert(1)</script> | <img src=x onerror=alert(1)> |\n|---|---|\n| [x](javascript:x) | <b onclick=x> |",
    "<table><tr><td colspan=2 onmouseover=alert(1) background=javascript:alert(1)>x</td></tr></table>",
    "<!--><script>alert(1)</script>--> <!-- --!><img src=x onerror=alert(1)> -->",
    "<![CDATA[<script>alert(1)</script>]]> <?php alert(1) ?> <!DOCTYPE html><script>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<<script>alert(1);//<</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62;",
    "</div></section></main><script>alert(1)</script>",
    "</textarea></title></style></noscript><script>alert(1)</script>",
    "<a href='/api/documents/1/file' target=_top>x</a> [y](/status) [z](//evil.example/x) [w](?token=x)",
    "<input type=image src=x onerror=alert(1)> <isindex type=image src=1 onerror=alert(1)>",
    "<x-custom onclick=alert(1)>x</x-custom> <slot name=x></slot>",
    "<mark onclick=alert(1)>alert</mark> <sup id=x>1</sup>",
    "\u202e<script>alert(1)</script>\u202c \ud7ff\x00<script\x00>alert(1)</script>",
    "# <img src=x onerror=alert(1)>\n## [x](javascript:alert(1))",
    "- <svg/onload=alert(1)>\n1. <a xlink:href=javascript:alert(1)>x</a>",
    "$$ \\href{javascript:alert(1)}{x} <script>alert(1)</script> $$",
]  # fmt: skip


class Elements(HTMLParser):
    """Every start tag with its attributes, as a browser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl!r}")


def check_harmless(html: str) -> Elements:
    """Fails unless `html` has nothing but the elements, attributes and kinds of link that are allowed."""
    elements = Elements(html)
    for tag, attributes in elements.found:
        assert tag in ALLOWED, html
        assert set(attributes) <= ALLOWED[tag], html
        href = attributes.get("href")
        assert href is None or href.startswith(("https://", "http://", "mailto:")), html
    return elements


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("words", ["", "script alert onerror"])
def test_nothing_in_a_page_acts(text: str, words: str) -> None:
    finder = Finder(parse(words).terms) if words else None
    check_harmless(render_markdown(text, finder))
    check_harmless(render_markdown(f"before {text} after", finder))
    check_harmless(render_markdown(f"| a | {text} |\n|---|---|\n| b | {text} |", finder))


@given(
    st.lists(st.sampled_from([*NASTY, "\n\n", "<", ">", '"', "`", "|", "](", "- ", "# "]), max_size=6).map(
        "".join
    )
)
@settings(max_examples=60)
def test_no_mixture_of_nasty_things_acts(text: str) -> None:
    check_harmless(render_markdown(text, Finder(parse("alert").terms)))


@given(st.text(max_size=300))
@settings(max_examples=60)
def test_any_text_is_rendered_without_harm(text: str) -> None:
    check_harmless(render_markdown(text))


def test_what_documents_have_is_kept() -> None:
    html = render_markdown(
        "# Title\n\nA *word*, a **strong** one, `code`, ~~gone~~.\n\n1. one\n2. two\n\n> said\n\n"
        "| a | b |\n|---|---|\n| 1 | x<sup>2</sup> |\n\n[site](https://example.org/a?b=c)"
    )
    tags = {tag for tag, _ in check_harmless(html).found}
    assert {"em", "strong", "code", "s", "ol", "li", "blockquote", "table", "th", "td", "sup", "a"} <= tags
    assert '<a href="https://example.org/a?b=c" rel="noopener noreferrer nofollow">site</a>' in html


def test_a_table_with_merged_cells_keeps_them() -> None:
    html = render_markdown(
        '<table>\n<tr><th colspan="2">Sum &amp; total</th></tr>\n<tr><td>1</td><td>2</td></tr>\n</table>'
    )
    assert '<th colspan="2">Sum &amp; total</th>' in html
    assert html.count("<td>") == 2


@pytest.mark.parametrize(("level", "shown"), [(1, 1 + HEADING_OFFSET), (2, 2 + HEADING_OFFSET), (6, 6)])
def test_headings_go_below_those_of_the_page_that_shows_them(level: int, shown: int) -> None:
    assert render_markdown(f"{'#' * level} Harbour") == f"<h{shown}>Harbour</h{shown}>\n"


def test_a_list_goes_on_with_its_number() -> None:
    assert '<ol start="7">' in render_markdown("7. seventh")


def test_of_what_is_not_shown_as_markup_the_words_stay() -> None:
    html = render_markdown("<script>the words</script> <style>and</style> <u onclick=x>these</u>")
    assert Elements(html).text.split() == ["the", "words", "and", "these"]


def test_a_picture_becomes_its_words() -> None:
    assert render_markdown("![the harbour](https://evil.example/track.png)") == "<p>the harbour</p>\n"


def test_a_link_into_this_server_is_no_link() -> None:
    assert "href" not in render_markdown("[x](/api/documents/1/file) [y](../status) [z](#a)")


@pytest.mark.parametrize(
    ("words", "markdown", "marked"),
    [
        ("harbour", "The Harbour and the harbours", ["Harbour"]),
        ("harb*", "The Harbour and the harbours", ["Harb", "harb"]),
        ('"water damage"', "no water, some **water damage** there", ["water damage"]),
        ("cafe", "Café", ["Café"]),
        ("b", "a < b & c", ["b"]),
        ("script", "| \\<script> | `script` script |\n|---|---|", ["script", "script"]),
        ("東京", "東京都に行く", ["東京"]),
    ],
)
def test_matches_are_marked(words: str, markdown: str, marked: list[str]) -> None:
    html = render_markdown(markdown, Finder(parse(words).terms))
    check_harmless(html)
    assert [piece.split("</mark>")[0] for piece in html.split("<mark>")[1:]] == marked


def test_marking_changes_no_letter() -> None:
    text = "One *harbour* & two <b>harbours</b>; harbour-master `harbour`\n\n- harbour"
    plain = Elements(render_markdown(text)).text
    assert Elements(render_markdown(text, Finder(parse("harbour* master").terms))).text == plain


def test_two_words_at_one_place_are_marked_once() -> None:
    html = render_markdown("water damage", Finder(parse('"water damage" water').terms))
    assert html == "<p><mark>water damage</mark></p>\n"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "*a " * 20_000,
        "> " * 5_000 + "x",
        "<" * 50_000,
        "![" * 9_000,
        "`" * 9_999 + "a",
        "<a " * 9_000,
    ],
    ids=["brackets", "stars", "quotes", "angles", "pictures", "ticks", "tags"],
)
def test_long_nonsense_takes_no_minutes(text: str) -> None:
    started = time.process_time()
    check_harmless(render_markdown(text))
    assert time.process_time() - started < 5.0


def test_an_endless_page_is_shown_as_plain_text() -> None:
    html = render_markdown("<script>alert(1)</script> " * 10_000)
    assert html.startswith("<pre>&lt;script&gt;")
    check_harmless(html)
