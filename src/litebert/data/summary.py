"""What `litebert prepare` reports at the end: what was read, what became of it, and how precise a
score on it can be.

The errors are one standard error, in points, of an accuracy of one half, which is the largest: 50 /
sqrt(n). For masked tokens n is 15 % of the held-out tokens; for pairs of sentences it is the
held-out documents with two sentences or more, one pair each, because the pairs of one document
resemble each other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.data.shards import ShardInfo
from litebert.text.tally import Tally, format_count, format_counts
from litebert.tokenizer.coverage import describe_poor_coverage

log = logging.getLogger("litebert")

MASKED = 0.15
"""Share of tokens that evaluation masks."""


def summary(
    tally: Tally, shards: Sequence[ShardInfo], words: int, unknown_pieces: int, pairs: int
) -> dict[str, Any]:
    """The account of a whole set, as its index keeps it; `pairs` counts held-out documents of two
    sentences or more.
    """
    pieces = sum(shard.tokens for shard in shards)
    held = [shard for shard in shards if shard.split == "heldout"]
    tokens = sum(shard.tokens for shard in held)
    return {
        **tally.to_dict(),
        "words": words,
        "pieces": pieces,
        "unknown_pieces": unknown_pieces,
        "unknown_share": unknown_pieces / pieces,
        "pieces_per_word": pieces / max(words, 1),
        "heldout": {
            "documents": sum(shard.documents for shard in held),
            "tokens": tokens,
            "documents_of_pairs": pairs,
            "masked_accuracy_error": _error(round(MASKED * tokens)),
            "pair_accuracy_error": _error(pairs),
        },
    }


def _error(count: int) -> float | None:
    """Points, of an accuracy of one half over `count` independent answers."""
    return 50 / math.sqrt(count) if count else None


def warn(index: Mapping[str, Any]) -> None:
    """Log what a person should know before training on the set."""
    known = index["summary"]
    if index["settings"]["heldout"] and not known["heldout"]["tokens"]:
        remedy = "give more documents, or shorter ones (--split sets where one ends)"
        log.warning(
            "nothing is held out, because only one document has text, and training needs "
            f"it; {remedy}"
        )
    if fault := describe_poor_coverage(known["unknown_share"]):
        log.warning(f"{fault}; train one on it with litebert tokenizer train")


def rows(index: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, how much) for a table."""
    counts, known = index["documents"], index["summary"]
    held = known["heldout"]
    shown = [
        ("files read", format_counts(known["files"])),
        ("passed over", format_counts(known["skipped"]) or "nothing"),
        ("encodings", format_counts(known["encodings"])),
        ("files with hard-wrapped lines", f"{known['hard_wrapped_files']:,}"),
        ("rows of tables", f"{known['rows']:,}"),
        ("rows without text", f"{known['empty_rows']:,}"),
        ("documents read", f"{known['documents']:,}"),
        ("long documents cut", format_count(known["cuts"], "time")),
        ("characters replaced", f"{known['replaced_characters']:,}"),
        ("exact duplicates dropped", f"{counts['duplicates']:,}"),
        ("documents without a piece", f"{counts['empty']:,}"),
        ("documents kept", f"{counts['kept'] - counts['empty']:,}"),
        ("tokens per word", f"{known['pieces_per_word']:.2f}"),
        ("unknown tokens", f"{known['unknown_pieces']:,} ({known['unknown_share']:.2%})"),
    ]
    optional = {"encodings", "files with hard-wrapped lines", "rows of tables", "rows without text"}
    optional |= {"long documents cut", "characters replaced"}
    shown = [
        (what, value)
        for what, value in shown
        if what not in optional or value not in ("", "0", "0 times")
    ]
    shown += [("note", note) for note in known["notes"]]
    for what, key, over in (
        (
            "error of masked-token accuracy",
            "masked_accuracy_error",
            format_count(round(MASKED * held["tokens"]), "masked token"),
        ),
        (
            "error of sentence-pair accuracy",
            "pair_accuracy_error",
            format_count(held["documents_of_pairs"], "document"),
        ),
    ):
        error = held[key]
        shown.append(
            (
                what,
                "unknown: no such text is held out"
                if error is None
                else f"± {error:.1f} points ({over})",
            )
        )
    return shown
