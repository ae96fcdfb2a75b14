"""The pages in a real browser, over a daemon that really watches, reads and serves."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.daemon.conftest import pdf_of
from tests.e2e.conftest import Visit, letter
from tests.e2e.watching import Watching

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

PHONE = {
    "viewport": {"width": 360, "height": 740},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}
DARK = {"color_scheme": "dark"}
BIG = {"viewport": {"width": 1600, "height": 1400}, "device_scale_factor": 2}
INK = 150  # grey below it is ink, above it paper

# Hands a file to the page as a person who drops it does.
DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type }));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true }));
  }
}"""


def drop(page: Page, name: str, data: bytes, kind: str = "application/pdf") -> None:
    page.evaluate(DROP, [name, kind, base64.b64encode(data).decode()])


def row(page: Page, name: str) -> Any:
    return page.locator(".document", has_text=name)


def prose(page: Page, text: str) -> Any:
    return page.locator(".prose").get_by_text(text)


# --- files come in -----------------------------------------------------------------------------------------


def test_a_dropped_file_appears_and_is_read_before_your_eyes(visit: Visit, read: Watching) -> None:
    page = visit.go("/library")
    page.evaluate("window.same = true")
    drop(page, "dropped.pdf", letter())
    row(page, "dropped.pdf").wait_for()
    page.locator(".document[data-state=done]", has_text="dropped.pdf").wait_for()
    assert "1 page" in row(page, "dropped.pdf").inner_text()
    assert page.evaluate("window.same"), "the page was loaded again"
    assert list((read.home / "uploads").glob("**/dropped.pdf"))


def test_where_files_may_be_dropped_is_shown_while_they_are_dragged(visit: Visit, read: Watching) -> None:
    page = visit.go("/")
    over = page.locator(".drop")
    event = "(kind) => { const carried = new DataTransfer(); carried.items.add(new File(['x'], 'x.pdf'));"
    event += " document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true })); }"
    page.evaluate(event, "dragenter")
    over.wait_for(state="visible")
    page.evaluate(event, "dragleave")
    over.wait_for(state="hidden")


def test_a_file_is_opened_before_it_is_read_and_its_text_comes(visit: Visit, read: Watching) -> None:
    page = visit.go("/library")
    row(page, "paper.pdf").wait_for()
    drop(page, "early.pdf", letter() + b"\n" * 99)
    row(page, "early.pdf").locator("a").click()
    prose(page, "Thank you for your letter").wait_for()


def test_a_file_copied_into_the_folder_appears_by_itself(visit: Visit, read: Watching) -> None:
    page = visit.go("/library")
    row(page, "paper.pdf").wait_for()
    text = "A note about lighthouses\nwas copied into the folder\nwhile somebody looked on"
    (read.folder / "lighthouse.pdf").write_bytes(pdf_of([text]))
    page.locator(".document[data-state=done]", has_text="lighthouse.pdf").wait_for()
    page.locator(".document[data-state=done] a", has_text="lighthouse.pdf").click()
    page.get_by_text("A note about lighthouses").first.wait_for()


def test_the_status_follows_what_is_read(visit: Visit, read: Watching) -> None:
    page = visit.go("/status")
    page.locator(".figures:not([aria-busy])").wait_for()
    before = page.locator("[data-figure=pages]").inner_text()
    for number in range(2, 6):
        drop(page, f"box {number}.pdf", letter() + b"\n" * number)
    page.locator("[data-reading] .row", has_text="box").first.wait_for()
    page.locator("[data-state]", has_text="Reading").wait_for()
    page.locator("[data-state]", has_text="Up to date").wait_for()
    page.locator("[data-reading] .row").first.wait_for(state="detached")
    assert page.locator("[data-figure=pages]").inner_text() != before
    assert page.locator("[data-chart=pages] .bar-shape").count() >= 1


# --- search and reader -------------------------------------------------------------------------------------


def test_a_word_is_searched_as_it_is_typed_and_its_page_opened_and_left_again(
    visit: Visit, read: Watching
) -> None:
    page = visit.go("/")
    page.keyboard.type("handwriting", delay=15)
    hit = page.locator(".hit", has_text="letter-scan.pdf").first
    hit.wait_for()
    assert hit.locator("mark").first.inner_text() == "handwriting"
    assert page.url.endswith("/?q=handwriting")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/pages/\d+\?q=handwriting"))
    page.locator(".sheet:not(.is-loading) img").wait_for()
    assert page.locator(".prose mark").all_inner_texts() == ["handwriting"]
    assert page.locator("rect.match").count() == 1
    page.go_back()
    page.locator(".hit").first.wait_for()
    assert page.locator("#q").input_value() == "handwriting"


@pytest.mark.parametrize("visit", [BIG], indirect=True)
@pytest.mark.parametrize(
    ("name", "words", "matches"),
    [
        ("letter-scan.pdf", '"water damage"', 1),
        ("letter-scan.pdf", "acknowledgement", 1),
        ("paper.pdf", "archive", 3),
    ],
)
def test_the_box_of_a_match_lies_over_its_ink(
    visit: Visit, read: Watching, name: str, words: str, matches: int
) -> None:
    page = visit.go("/?" + f"q={words}".replace('"', "%22").replace(" ", "+"))
    page.locator(".hit-title", has_text=name).first.click()
    picture = page.locator(".sheet:not(.is-loading) img")
    picture.wait_for()
    places = page.evaluate(PLACES)
    assert len(places) >= matches
    page.evaluate("document.querySelector('.boxes').style.visibility = 'hidden'")
    shot = Image.open(io.BytesIO(picture.screenshot())).convert("L")
    for place in places:
        left, top, width, height = (share * size for share, size in zip(place, shot.size * 2, strict=True))
        inside = ink(shot, left, top, width, height)
        gap = 0.22 * height  # less than what lies between two words, or two lines
        before = ink(shot, left - gap, top, gap * 0.8, height)
        after = ink(shot, left + width + gap * 0.2, top, gap * 0.8, height)
        beside = ink(shot, left + width * 0.02, top + height + gap * 0.4, width * 0.96, gap * 0.4)
        print(name, words, f"inside {inside:.3f}, before {before:.3f}, after {after:.3f}, below {beside:.3f}")
        assert inside > 0.06
        assert max(before, after) < inside / 6
        assert beside < inside / 2


# Boxes of the matches as shares of the picture's width and height, all measured at one moment.
PLACES = """() => {
  const sheet = document.querySelector(".sheet img").getBoundingClientRect();
  return [...document.querySelectorAll("rect.match")].map((match) => {
    const { left, top, width, height } = match.getBoundingClientRect();
    return [(left - sheet.left) / sheet.width, (top - sheet.top) / sheet.height, width / sheet.width, height / sheet.height];
  });
}"""  # noqa: E501


def ink(shot: Image.Image, left: float, top: float, width: float, height: float) -> float:
    """Share of dark pixels in a rectangle of the shot."""
    part = shot.crop((round(left), round(top), round(left + width), round(top + height)))
    histogram = part.histogram()
    return sum(histogram[:INK]) / max(1, part.width * part.height)


def test_a_block_and_its_box_find_each_other(visit: Visit, read: Watching) -> None:
    page = visit.go("/?q=ledgers")
    page.locator(".hit-title", has_text="letter-scan.pdf").first.click()
    page.locator(".sheet:not(.is-loading) img").wait_for()
    block = page.locator(".block", has_text="We should be glad")
    number = block.get_attribute("data-block")
    block.click()
    chosen = page.locator("rect.box.is-chosen")
    assert chosen.get_attribute("data-block") == number
    page.keyboard.press("Escape")
    assert chosen.count() == 0
    page.locator(f"rect.box[data-block='{number}']").click()
    assert page.locator(".block.is-chosen").get_attribute("data-block") == number
    page.keyboard.press("j")
    assert page.locator(".block.is-chosen").get_attribute("data-block") == str(int(number or 0) + 1)
    page.locator(f"rect.box[data-block='{number}']").hover()
    assert page.locator(".block.is-hovered").get_attribute("data-block") == number


def test_pages_are_turned_by_key_and_by_number(visit: Visit, read: Watching) -> None:
    page = visit.go("/library")
    row(page, "paper.pdf").locator("a").first.click()
    prose(page, "Three kinds of page").wait_for()
    page.locator(".sheet:not(.is-loading) img").wait_for()  # then the scripts are there, too
    page.keyboard.press("ArrowRight")
    prose(page, "What goes wrong").wait_for()
    page.locator(".sheet:not(.is-loading) img").wait_for()
    assert page.locator("#number").input_value() == "2"
    page.keyboard.press("ArrowLeft")
    prose(page, "Three kinds of page").wait_for()
    page.locator("#number").fill("2")
    page.keyboard.press("Enter")
    prose(page, "What goes wrong").wait_for()
    page.go_back()
    prose(page, "Three kinds of page").wait_for()


def test_the_markdown_of_a_page_is_copied_and_sidecars_are_downloaded(visit: Visit, read: Watching) -> None:
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.go("/?q=ledgers")
    page.locator(".hit-title", has_text="letter-scan.pdf").first.click()
    page.locator("[data-copy]").click()
    page.locator(".note", has_text="Markdown copied").wait_for()
    assert "## ST BRANNOCK HARBOUR TRUST" in page.evaluate("navigator.clipboard.readText()")
    page.locator(".menu summary").click()
    with page.expect_download() as coming:
        page.get_by_text("Markdown, all pages").click()
    assert "ST BRANNOCK" in coming.value.path().read_text()


def test_a_document_is_read_again_otherwise(visit: Visit, read: Watching) -> None:
    page = visit.go("/?q=loose+receipts")
    page.locator(".hit-title", has_text="letter-scan.pdf").first.click()
    page.locator(".sheet:not(.is-loading) img").wait_for()
    before = page.locator(".reader").get_attribute("data-read-at")
    page.locator("[data-reread]").click()
    page.locator("#dpi").select_option("150")
    page.get_by_role("button", name="Read again").click()
    page.locator(f".reader[data-state=done]:not([data-read-at='{before}'])").wait_for()
    page.locator(".provenance summary").click()
    assert "at 150 dpi" in page.locator(".provenance").inner_text()


# --- what failed -------------------------------------------------------------------------------------------


def test_a_failure_shows_its_remedy_and_is_tried_again(visit: Visit, read: Watching) -> None:
    page = visit.go("/status")
    failed = page.locator("[data-failures] .row", has_text="broken.pdf")
    failed.wait_for()
    assert "ave it again" in failed.inner_text()
    with page.expect_response(re.compile(r"/api/documents/\d+/retry")) as asked:
        failed.get_by_role("button").click()
    assert asked.value.ok
    page.locator(".note", has_text="Queued again").wait_for()
    failed.wait_for()  # it is as broken as it was


def test_a_locked_file_is_opened_with_its_password_and_read(visit: Visit, read: Watching) -> None:
    page = visit.go("/status")
    failed = page.locator("[data-failures] .row", has_text="locked.pdf")
    failed.get_by_role("button").click()
    page.locator("dialog[open] #password").fill("test_user")
    page.keyboard.press("Enter")
    failed.wait_for(state="detached")
    visit.go("/library?name=locked")
    page.locator(".document[data-state=done]", has_text="locked.pdf").wait_for()


def test_what_cannot_be_taken_says_so(visit: Visit, read: Watching) -> None:
    page = visit.go("/library")
    page.route(
        "**/api/documents",
        lambda route: route.abort() if route.request.method == "POST" else route.continue_(),
    )
    drop(page, "lost.pdf", b"%PDF-1.4")
    page.locator(".note.is-bad", has_text="The server does not answer").wait_for()


@pytest.mark.parametrize("path", ["/?q=harbour", "/library", "/status"])
def test_a_server_in_trouble_is_told_with_a_way_to_try_again(visit: Visit, read: Watching, path: str) -> None:
    body = '{"error": {"message": "the database is damaged", "type": "server_error", "param": null, "code": "damaged",'
    body += ' "remedy": "run `ocrd verify`"}}'
    broken = {"status": 503, "content_type": "application/json", "body": body}
    visit.page.route(
        re.compile("/api/(search|documents|status|failures)"), lambda route: route.fulfill(**broken)
    )
    page = visit.go(path)
    page.locator(".trouble", has_text="The database is damaged").first.wait_for()
    page.unroute_all()
    page.locator(".trouble button").first.click()
    page.locator(".hit, .document, .figures:not([aria-busy])").first.wait_for()


# --- what documents say ------------------------------------------------------------------------------------

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_nothing_that_a_document_says_or_is_called_runs(visit: Visit, read: Watching) -> None:
    name = "evil '><img src=x onerror=alert(3)>.pdf"
    text = f"An honest lantern line first\n{EVIL}\n[click](javascript:alert(4)) and a lantern\n<svg onload=alert(5)>"
    safe = text.replace("(", r"\(").replace(")", r"\)")  # in a PDF's strings
    (read.folder / name).write_bytes(pdf_of([safe]))
    (read.folder / f"broken {name}").write_bytes(b"%PDF-1.7 no more")
    page = visit.go("/library")
    for shown, state in ((name, "done"), (f"broken {name}", "failed")):
        page.locator(f".document[data-state={state}]", has_text=shown).first.wait_for()
    visit.check()
    visit.go("/?q=lantern+onerror")
    hit = page.locator(".hit-title", has_text=name)
    hit.wait_for()
    visit.check()
    hit.click()
    page.locator(".sheet:not(.is-loading) img").wait_for()
    assert EVIL in page.locator(".prose").inner_text()
    assert page.locator(".prose a[href^=javascript]").count() == 0
    page.locator("[data-reread]").click()
    page.keyboard.press("Escape")
    visit.check()
    visit.go("/status")
    page.locator("[data-failures] .row", has_text="onerror").first.wait_for()


def test_the_policy_stops_what_would_run_inline(visit: Visit, read: Watching) -> None:
    """That nothing was stopped on other pages means something only if something can be."""
    page = visit.go("/")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'alert(9)'}))"
    )
    page.evaluate("document.body.setAttribute('onclick', 'alert(10)')")
    page.wait_for_function("window.stopped.length >= 2")
    assert page.evaluate("window.ran") == []
    page.evaluate("window.stopped = []")
    visit.errors.clear()


# --- keyboard, themes, sizes -------------------------------------------------------------------------------


def test_the_search_needs_no_mouse(visit: Visit, read: Watching) -> None:
    page = visit.go("/status")
    page.keyboard.press("/")
    page.wait_for_url(re.compile(r"/$"))
    page.locator("#q:focus").wait_for()
    page.keyboard.type("the page")
    page.locator(".hit").first.wait_for()
    page.keyboard.press("Escape")
    assert page.locator("#q").input_value() == ""
    page.keyboard.type("the page")
    page.locator(".hit").nth(1).wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    titles = page.locator(".hit-title")
    assert titles.nth(1).evaluate("(node) => node === document.activeElement")
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert page.locator("#q").evaluate("(node) => node === document.activeElement")
    page.keyboard.press("Escape")
    page.locator("#q").blur()
    page.keyboard.press("?")
    page.locator("dialog.help[open]").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog.help[open]").wait_for(state="hidden")


def test_filters_are_in_the_address_and_work(visit: Visit, read: Watching) -> None:
    page = visit.go("/?q=the&engine=tesseract")
    page.locator(".hit").first.wait_for()
    assert page.locator("#engine").input_value() == "tesseract"
    assert page.locator(".hit", has_text="paper.pdf").count() == 0
    page.locator("#engine").select_option("text-layer")
    page.locator(".hit", has_text="paper.pdf").first.wait_for()
    assert "engine=text-layer" in page.url
    page.locator(".hit-title").first.click()
    page.locator(".sheet:not(.is-loading) img").wait_for()
    page.keyboard.press("Escape")
    page.locator(".hit").first.wait_for()
    assert page.locator("#engine").input_value() == "text-layer"
    page.locator("#folder").focus()
    page.locator(f"#folders option[value='{read.folder}']").wait_for(state="attached")
    page.locator("#folder").fill(str(read.folder / "Letters"))
    page.locator(".blank", has_text="No page has").wait_for()
    page.get_by_role("button", name="Search without filters").click()
    page.locator(".hit").first.wait_for()
    page.go_back()
    page.locator(".blank", has_text="No page has").wait_for()


def test_a_date_narrows_the_search(visit: Visit, read: Watching) -> None:
    page = visit.go("/?q=the&since=1")
    page.locator(".hit").first.wait_for()
    page.locator("#since").select_option("dates")
    page.locator("#until").fill("2001-01-31")
    page.locator(".blank", has_text="No page has").wait_for()
    assert "until=2001-01-31" in page.url
    page.reload()
    page.locator(".blank", has_text="No page has").wait_for()
    assert page.locator("#until").input_value() == "2001-01-31"
    page.locator("#until").fill("2099-01-31")
    page.locator(".hit").first.wait_for()


def test_results_come_page_by_page(visit: Visit, read: Watching) -> None:
    def ask_for_one(route: Any) -> None:
        route.continue_(url=route.request.url.replace("limit=20", "limit=1").replace("offset=20", "offset=1"))

    visit.page.route("**/api/search*", ask_for_one)
    page = visit.go("/?q=the")
    title = page.locator(".hit-title")
    first = title.first.get_attribute("href")
    page.get_by_role("link", name="Next").click()
    page.wait_for_url(re.compile("page=2"))
    page.wait_for_function(
        "(old) => document.querySelector('.hit-title')?.getAttribute('href') !== old", arg=first
    )
    page.go_back()
    page.wait_for_function(
        "(old) => document.querySelector('.hit-title')?.getAttribute('href') === old", arg=first
    )


def test_documents_come_page_by_page_sorted_and_filtered(visit: Visit, read: Watching) -> None:
    visit.page.route(
        "**/api/documents?*",
        lambda route: route.continue_(url=route.request.url.replace("limit=50", "limit=2")),
    )
    page = visit.go("/library?sort=name-asc")
    names = page.locator(".document-name a")
    names.nth(1).wait_for()
    assert names.count() == 2
    page.get_by_role("button", name="Show more").click()
    names.nth(3).wait_for()
    shown = [name.lower() for name in names.all_inner_texts()]
    assert shown == sorted(shown)
    page.locator(".states button", has_text="Failed").click()
    page.wait_for_url(re.compile("state=failed"))
    page.locator(".document[data-state=failed]").first.wait_for()
    page.wait_for_function("document.querySelectorAll('.document:not([data-state=failed])').length === 0")
    page.go_back()
    names.nth(1).wait_for()
    page.locator("#name").fill("no such name")
    page.locator(".blank", has_text="No document fits").wait_for()


def test_the_theme_follows_the_system_until_it_is_chosen(visit: Visit, read: Watching) -> None:
    page = visit.go("/")
    shade = "() => getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(shade)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(shade)
    assert light != dark
    page.locator("[data-theme-toggle]").click()
    assert page.evaluate(shade) == light
    visit.go("/library")
    assert page.evaluate(shade) == light


PATHS = ("/", "/?q=the", "/library", "/status", "/documents/1")
CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((value, at) => value * a + below[at] * (1 - a));
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const chain = [];
    for (let one = node; one; one = one.parentElement) chain.unshift(parse(getComputedStyle(one).backgroundColor));
    return chain.reduce((below, shade) => over(shade, below), [255, 255, 255]);
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".hidden-text, svg, [aria-disabled=true], .sheet")) continue;
    const below = behind(node);
    const [a, b] = [light(over(parse(getComputedStyle(node).color), below)), light(below)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${node.className} ${node.textContent.trim().slice(0, 30)} ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return poor;
}"""  # noqa: E501


@pytest.mark.parametrize("visit", [{"color_scheme": "light"}, DARK], indirect=True, ids=["light", "dark"])
def test_all_text_stands_out_from_what_lies_behind_it(visit: Visit, read: Watching) -> None:
    for path in PATHS:
        page = visit.go(path)
        page.locator(".hit, .document, .figures:not([aria-busy]), .block, .starting").first.wait_for()
        page.wait_for_timeout(300)  # colours are faded in
        assert page.evaluate(CONTRAST) == [], path


@pytest.mark.parametrize("visit", [PHONE], indirect=True)
def test_nothing_is_wider_than_a_phone(visit: Visit, read: Watching) -> None:
    for path in PATHS:
        page = visit.go(path)
        page.locator(".hit, .document, .figures:not([aria-busy]), .block, .starting").first.wait_for()
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), path
    page.locator("[data-show=picture]").tap()
    page.locator(".sheet:not(.is-loading) img").wait_for()
    assert page.locator(".pane-text").is_hidden()
