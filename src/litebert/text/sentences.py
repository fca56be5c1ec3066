"""Texts split into sentences, and into lines of a bounded length."""

from __future__ import annotations

import re
from collections.abc import Iterator

from litebert.base.errors import DataError, suggest
from litebert.text.lines import split_text

MAX_SENTENCE = 10_000
"""Characters of the longest sentence. Tokenizers slow down on text without an end."""

_WINDOW = 2 * MAX_SENTENCE
"""Characters of a line that are looked at together: sentencex is quadratic in unclosed quotes."""

LINE_CHARACTERS = 4000
"""Characters of the longest line that a tokenizer learns from."""

# ISO 639-1. sentencex accepts any code, and applies English rules to one that it does not support.
_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz
    ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln
    lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi
    pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti
    tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()  # noqa: SIM905 - one line per code would be ten times as long
)


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Return the sentences of a text, stripped. A line end always ends a sentence. `language` is an
    ISO 639 code (en, de, ja, ...), or "line" where each line is one sentence already.
    """
    if language == "line":
        sentences = text.split("\n")
    else:
        check_language(language)
        sentences = [sentence for line in text.split("\n") for sentence in _segment(line, language)]
    if len(text) > MAX_SENTENCE:
        sentences = [part for sentence in sentences for part in split_text(sentence, MAX_SENTENCE)]
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _segment(line: str, language: str) -> Iterator[str]:
    import sentencex  # late: a program that only answers does not need it

    start = 0
    while len(line) - start > _WINDOW:
        sentences = list(sentencex.segment(language, line[start : start + _WINDOW]))
        if len(sentences[-1]) <= _WINDOW // 2:
            sentences.pop()  # it may go on behind the window, so the next one begins with it
        yield from sentences
        start += sum(map(len, sentences))
    yield from sentencex.segment(language, line[start:])


def check_language(language: str) -> None:
    """Refuse what is neither "line" nor an ISO 639 code, with or without region or variant."""
    code = re.fullmatch(r"([a-z]{2,3})(-[A-Za-z0-9]+)*", language)
    if language != "line" and (code is None or (len(code[1]) == 2 and code[1] not in _LANGUAGES)):
        meant = f" ({hint})" if (hint := suggest(language, _LANGUAGES)) else ""
        use = f"use one like en, de, ja{meant}, or line where each line is one sentence"
        raise DataError(f"language '{language}' is not an ISO 639 code; {use}")


def split_lines(text: str, size: int = LINE_CHARACTERS) -> Iterator[str]:
    """Yield the lines of a text that are not blank, cut at a space where longer than `size`."""
    for line in text.splitlines():
        start = 0
        while len(line) - start > size:
            end = line.rfind(" ", start + 1, start + size)
            end = end if end > 0 else start + size
            yield line[start:end]
            start = end
        if rest := line[start:].strip():
            yield rest
