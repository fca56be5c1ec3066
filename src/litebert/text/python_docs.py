"""The built-in corpus `python-docs`: documentation that every Python installation with litebert
has.

It holds the language reference of `pydoc_data`, the docstrings of the standard library, and those
of the packages that litebert needs, without repeated text and what is not prose: doctests, tables,
formulas, parameter headings, code and licenses. A docstring is any triple-quoted literal, because
finding those is seven times as fast as parsing. No module is imported.
"""

from __future__ import annotations

import importlib.metadata
import re
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

MAX_CHARACTERS = 40_000_000
"""Characters of the corpus, so that it takes about the same time on every machine."""

_SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "testing", "idle_test", "site-packages", "__pycache__", "_vendor", "vendored")
)
_MIN_DOCUMENT = 200
_MAX_LITERAL = 100_000
"""Characters of the longest docstring. A longer literal is data."""

_LITERAL = re.compile(r"""("{3}|'{3})(.*?)(?<!\\)\1""", re.DOTALL)
_DROPPED_LINE = re.compile(
    r"""\s*(?: [-=~^"'#*+.`_|<>\s]{3,} | [|+].* | \.\.\s.*
    | :\w+: | [A-Z][\w ]{0,24}: | @\w+.* )\s*$""",
    re.VERBOSE,
)
_CODE_LINE = re.compile(
    r"\s*(?:>>>|\.\.\. |\$ |% |In \[|import |from \w+ import|def |class |return |#|//)"
)
# "name : type" of numpydoc is no sentence. Its indented description stays.
_TYPED_NAME = re.compile(r"\s*[*\w, .]+ : .*$")
# The same in Google and Sphinx style, and list marks: the rest of the line is the text.
_LABEL = re.compile(
    r"""\s*(?: :\w+[^:\n]*:\s+ | \*{0,2}\w+\s*\([^)]*\):\s+ | \*{0,2}[a-z_]\w*:\s+
    | [-*+•]\s+ | \(?\d{1,2}[.)]\s+ )
    (?=\S)""",
    re.VERBOSE,
)
_MARKUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\s*\[\w+\]_"), ""),
    (re.compile(r":[\w:+.-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),
    (re.compile(r"``([^`]*)``"), r"\1"),
    (re.compile(r"`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`_{0,2}"), r"\1"),
    (re.compile(r"\*\*([^*\s][^*]*)\*\*"), r"\1"),
    (re.compile(r"\*([^*\s][^*]*)\*"), r"\1"),
    (re.compile(r"\s+"), " "),
)
_LICENSE = re.compile(
    r"copyright|licen[cs]e|all rights reserved|warrant|redistribut", re.IGNORECASE
)
_NOT_PROSE = re.compile(r"[^\w\s.,;:'()!?-]|_")


def read_python_docs(
    name: str = "python-docs", reading: object = None
) -> Iterator[tuple[str, str]]:
    """Yield (text, origin) of each document: a docstring of `_MIN_DOCUMENT` characters or more, or
    the shorter ones of a module together. The paragraphs of a text are its lines.
    """
    seen: set[int] = set()
    total = 0
    for origin, texts in _list_modules():
        short: list[str] = []
        documents = []
        for text in texts:
            lines = []
            for paragraph in extract_prose(text):
                # Generated docstrings repeat whole paragraphs in hundreds of functions.
                key = hash(paragraph)
                if key not in seen:
                    seen.add(key)
                    lines.append(paragraph)
            if sum(map(len, lines)) >= _MIN_DOCUMENT:
                documents.append("\n".join(lines))
            else:
                short += lines
        if sum(map(len, short)) >= _MIN_DOCUMENT:
            documents.append("\n".join(short))
        for document in documents:
            yield document, origin
            total += len(document)
            if total >= MAX_CHARACTERS:
                return


def find_package(origin: str) -> str:
    """Return the package of a document by its origin; `python` for the standard library."""
    parts = Path(origin).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return parts[parts.index(folder) + 1].removesuffix(".py")
    return "python"


def extract_prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring that read as sentences, on one line, without markup."""
    # Code follows a paragraph that ends in `::`, and is indented deeper.
    code_indent = -1
    for block in re.split(r"\n[ \t]*\n", text.expandtabs()):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        indent = len(lines[0]) - len(lines[0].lstrip())
        if 0 <= code_indent < indent:
            continue
        code_indent = indent if lines[-1].rstrip().endswith("::") else -1
        if any(_CODE_LINE.match(line) for line in lines):
            continue
        paragraph: list[str] = []
        for line in lines:
            if _DROPPED_LINE.match(line) or _TYPED_NAME.match(line):
                yield from _filter_sentences(paragraph)
                paragraph = []
            elif label := _LABEL.match(line):
                yield from _filter_sentences(paragraph)
                paragraph = [line[label.end() :]]
            else:
                paragraph.append(line)
        yield from _filter_sentences(paragraph)


def _filter_sentences(lines: list[str]) -> Iterator[str]:
    text = " ".join(lines)
    if len(text) < 30:
        return
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    text = text.strip().replace("::", ":")
    strange = len(_NOT_PROSE.findall(text))
    if (
        text.count(" ") >= 5
        and strange <= 0.04 * len(text)
        and text[0].isalnum()
        and not _LICENSE.search(text)
    ):
        yield text


def _list_modules() -> Iterator[tuple[str, Iterator[str]]]:
    topics: dict[str, str] = {}
    with suppress(ImportError):  # some distributions ship Python without it
        topics = import_module("pydoc_data.topics").topics
    for topic in sorted(topics):
        yield f"pydoc_data.topics['{topic}']", iter([topics[topic]])
    stdlib = Path(sysconfig.get_path("stdlib"))
    for path in sorted(stdlib.rglob("*.py")):
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(stdlib).parts):
            yield str(path), _read_literals(path)
    # The installed packages that litebert requires, directly or not, without extras.
    distributions: dict[str, importlib.metadata.Distribution] = {}
    waiting = ["litebert"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in distributions:
            continue
        try:
            distributions[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on another platform or Python only
        for requirement in distributions[name].requires or ():
            match = re.match(r"[\w.-]+", requirement)
            if match and not re.search(r"\bextra\s*==", requirement):
                waiting.append(match[0])
    for distribution in [
        distributions[name] for name in sorted(distributions) if name != "litebert"
    ]:
        files = [path for path in distribution.files or () if path.suffix == ".py"]
        for entry in sorted(files, key=str):
            if _SKIPPED_FOLDERS.isdisjoint(entry.parts):
                path = Path(str(entry.locate()))
                yield str(path), _read_literals(path)


def _read_literals(path: Path) -> Iterator[str]:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # deleted, or one of the few modules in another encoding
        return
    for match in _LITERAL.finditer(source):
        if len(match[2]) <= _MAX_LITERAL:
            yield match[2]
