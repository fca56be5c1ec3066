"""The text of web pages and of Markdown, without their markup, scripts, styles and code blocks.

A line is a paragraph, a heading, an item of a list or a cell of a table. A blank line stands before
a heading, so that a section becomes a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from litebert.base.errors import DataError, MissingExtraError

_DROPPED = ["script", "style", "noscript", "template", "head", "svg", "iframe", "pre", "textarea"]
_HEADINGS = "h1, h2, h3, h4, h5, h6"
_BLOCKS = (
    "address, article, aside, blockquote, br, caption, center, dd, details, dialog, div, dl, dt, "
    "fieldset, figcaption, figure, footer, form, header, hr, legend, li, main, nav, ol, option, p, "
    "section, select, summary, table, tbody, td, tfoot, th, thead, tr, ul"
)
_LINE, _SECTION = "\x1e", "\x1d"
"""Marks that no page holds: the ASCII separators of records and of groups."""


def strip_markup(text: str, suffix: str, name: str) -> Iterator[str]:
    """Yield the lines of text in a web page or, where the suffix says so, in Markdown."""
    try:
        yield from (_strip_markdown if suffix == ".md" else _strip_html)(text)
    except RecursionError:
        raise DataError(
            f"{name} is nested too deeply; leave it out, or read it with --markup keep"
        ) from None


def _strip_html(text: str) -> Iterator[str]:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise MissingExtraError("selectolax", "markup") from error
    page = LexborHTMLParser(text.replace(_LINE, " ").replace(_SECTION, " "))
    page.strip_tags(_DROPPED)
    for selector, mark in ((_BLOCKS, _LINE), (_HEADINGS, _SECTION)):
        for node in page.css(selector):
            node.insert_before(mark)
            node.insert_after(_LINE)
    whole = page.root.text() if page.root is not None else ""
    for section in whole.split(_SECTION):
        yield ""
        yield from filter(None, (" ".join(line.split()) for line in section.split(_LINE)))


def _strip_markdown(text: str) -> Iterator[str]:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingExtraError("markdown-it-py", "markup") from error
    # The default limit of nesting would drop deeper text silently.
    parser = MarkdownIt("commonmark", {"maxNesting": 1_000_000}).enable("table")
    for token in parser.parse(text):
        if token.type == "heading_open":
            yield ""
        elif token.type == "inline":
            lines = _join_inline(token.children or ()).split("\n")
            yield from filter(None, (" ".join(line.split()) for line in lines))
        elif token.type == "html_block":
            yield from _strip_html(token.content)


def _join_inline(tokens: Any) -> str:
    parts = []
    for token in tokens:
        if token.type in ("text", "code_inline"):
            parts.append(token.content)
        elif token.type == "image":
            parts.append(_join_inline(token.children or ()))
        elif token.type in ("softbreak", "hardbreak"):
            parts.append(" " if token.type == "softbreak" else "\n")
    return "".join(parts)
