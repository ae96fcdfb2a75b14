"""Markdown that reads back as the plain text it was made of."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pipeline import markdown
from storage.records import Block, Category

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TEXTS = st.text(
    st.one_of(
        st.sampled_from("#-+*_>`~|\\<>[]()!&;:=.1aZ \t"), st.characters(exclude_categories=("Cs", "Cc"))
    ),
    min_size=1,
    max_size=40,
)


def words(text: str) -> list[str]:
    return text.split()


def plain(source: str) -> str:
    """The text a reader of the rendered Markdown sees."""
    out = []
    for token in PARSER.parse(source):
        for child in token.children or []:
            assert child.type in {"text", "softbreak", "hardbreak", "text_special"}, child
            out.append(child.content or "\n")
        assert token.type != "html_block"
        if token.type in {"inline", "fence", "code_block"}:
            out.append("" if token.children else token.content)
            out.append("\n")
    return "".join(out)


def block(category: Category, text: str, written: str) -> Block:
    return Block(category, (0, 0, 1, 1), text, written)


@given(TEXTS)
@example("# no heading")
@example("1. no list")
@example("- no list")
@example("+")
@example("> no quote")
@example("*no emphasis*")
@example("_no emphasis_ but snake_case")
@example("<b>no tag</b> <!-- no comment -->")
@example("[no](link) ![no](image) <http://no.link>")
@example("[no]: definition")
@example("`no code` ``")
@example("~~no~~ ~no~")
@example("&amp; &#35;")
@example("===")
@example("---")
@example("***")
@example("| no | table |")
@example("ends with a backslash \\")
def test_a_paragraph_reads_back_as_its_text(text: str):
    assert words(plain(markdown.paragraph([text]))) == words(text)


@given(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4))
def test_kept_lines_read_back(texts: list[str]):
    assert words(plain(markdown.paragraph(texts))) == words("\n".join(texts))


@given(TEXTS.filter(str.strip), st.integers(1, 6))
@example("C #", 1)
@example("###", 2)
def test_a_heading_reads_back(text: str, level: int):
    source = markdown.heading(text, level)
    assert words(plain(source)) == words(text)
    assert PARSER.parse(source)[0].tag == f"h{level}"


@given(TEXTS.filter(str.strip), st.sampled_from(["•", "-", "1.", "12)", "a)", "(iv)"]))
def test_a_list_item_reads_back(text: str, marker: str):
    source = markdown.list_item(marker, text, 0)
    shown = words(text) if marker in ("•", "-", "1.", "12)") else [*words(marker), *words(text)]
    assert words(plain(source)) == shown
    assert PARSER.parse(source)[0].type in {"bullet_list_open", "ordered_list_open"}


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=2, max_size=4))
@example([["a|b", "`c|d`"], ["\\", "\\|"]])
def test_a_table_reads_back(rows: list[list[str]]):
    tokens = PARSER.parse(markdown.table(rows))
    shown = [words(plain_inline(token)) for token in tokens if token.type == "inline"]
    assert shown == [words(cell) for row in rows for cell in row]


def plain_inline(token) -> str:
    return "".join(child.content for child in token.children)


@given(st.text("`~ab \n", max_size=30).map(lambda text: text.strip("\n") or "x"))
def test_code_reads_back_to_the_letter(text: str):
    fence = PARSER.parse(markdown.code(text))[0]
    assert (fence.type, fence.content) == ("fence", text + "\n")


def test_blocks_are_parted_by_blank_lines_and_furniture_is_left_out():
    blocks = [
        block(Category.PAGE_HEADER, "head", "head"),
        block(Category.TITLE, "T", "# T"),
        block(Category.LIST_ITEM, "• a", "- a"),
        block(Category.LIST_ITEM, "• b", "- b"),
        block(Category.PICTURE, "", ""),
        block(Category.TABLE, "a\tb\nc\td", "| a | b |\n|---|---|\n| c | d |"),
        block(Category.PAGE_NUMBER, "7", "7"),
    ]
    assert markdown.render_markdown(blocks) == "# T\n\n- a\n- b\n\n| a | b |\n|---|---|\n| c | d |"
    assert markdown.render_text(blocks) == "T\n\n• a\n• b\n\na\tb\nc\td"
    assert markdown.render_text([]) == markdown.render_markdown([]) == ""


@pytest.mark.parametrize("text", ["a * b", "snake_case", "a - b", "5 > 4", "R&D", "x < y", "it costs ~5"])
def test_harmless_characters_stay_as_they_are(text: str):
    assert markdown.escape(text).replace("\\*", "*") == text
