"""Faults of the English that people read: long sentences, banned words, and pronouns in the place
of a noun. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_WORDS = 30
VERB_BEFORE = r"(?<!\bis )(?<!\bare )(?<!\bbe )(?<!\bwas )(?<!\bwere )(?<!\bstay )(?<!\bstays )"
BANNED = {
    "piece (say: token, part)": r"\bpieces?\b",
    "product (say: matrix multiplication)": r"\bproducts?\b",
    "from nothing (say: from scratch)": r"\bfrom nothing\b",
    "guess (say: prediction, chance)": r"\bguess(?:es|ed|ing)?\b",
    "beside (say: next to, compared with)": r"\bbesides?\b",
    "at hand": r"\bat hand\b",
    "in turns (say: interleaved)": r"\bin turns\b",
    "plateau (say: stuck at the unigram loss)": r"\bplateaus?\b",
    "leave (say: exit early)": r"\b(?:leaves?|left|leaving) (?:early|after|the network)\b",
    "hear of (say: attend to)": r"\bhears? of\b",
    "that of (repeat the noun)": r"\b(?:that|those) of\b",
    "the same (repeat the noun)": VERB_BEFORE + r"\bthe same(?=[.,;:)|]|$| (?:for|in|of|with|on|"
    r"and|or|as|to|from|at|by)\b)",
    "British spelling": r"\b\w*(?:[mf]alis(?:e|ing|ation)|quantis|labell|modell|behaviour|colour|"
    r"favour|neighbour|centre\b|licence|analyse\b|optimis(?:e|er|ing)|initialis|"
    r"orthogonalis|factoris|summaris|recognis)\w*",
}
"""What is banned, with what to say instead, and its pattern."""
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")


def list_faults(markdown: str) -> list[str]:
    """Say what is wrong with a text in Markdown, a line for each fault."""
    faults = []
    for block in list_blocks(markdown):
        text = strip_code(block)
        faults += [
            f"{len(sentence.split())} words: {sentence}"
            for sentence in split_sentences(text)
            if len(sentence.split()) > MOST_WORDS
        ]
        faults += [
            f"{name}: ...{text[max(0, match.start() - 40) : match.end() + 30]}..."
            for name, pattern in BANNED.items()
            for match in re.finditer(pattern, text, re.I)
        ]
    return faults


def list_blocks(markdown: str) -> Iterator[str]:
    """The paragraphs, items, headings and cells of a text, each on one line, without its blocks of
    code.
    """
    lines: list[str] = []
    in_item = after_blank = False
    for line in [*FENCED.sub("", markdown).splitlines(), ""]:
        text = line.strip()
        starts = not text or text.startswith(("|", "#")) or ITEM.match(line)
        if starts and lines:
            yield " ".join(lines)
            lines = []
        if ITEM.match(line):
            in_item = True
        elif text and not line.startswith(" "):
            in_item = False
        is_code = line.startswith("    ") and not in_item and (after_blank or not lines)
        after_blank = not text
        if text.startswith("|"):
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", text.strip("|")))
        elif text and not is_code:
            lines.append(text)


def strip_code(block: str) -> str:
    """The text without marks of Markdown, each piece of code as one word, and each link as its
    text.
    """
    block = re.sub(r"``?[^`]+``?", "CODE", block)
    block = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)
    return re.sub(r"\*\*|^#+ |^[-*] ", "", block)


def split_sentences(text: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[.?!:])[)\"]*\s+", text) if sentence]
