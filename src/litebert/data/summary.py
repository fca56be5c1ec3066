"""The report of `litebert prepare`: what was read and dropped, and how precise a score can be.

The errors are one standard error, in points, of an accuracy of one half, which is the largest: 50 /
sqrt(n). For masked tokens, n is 15% of the held-out tokens. For pairs of sentences, n is the
number of held-out documents with two sentences or more. Each document counts as one pair, because
the pairs of one document resemble each other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.data.shards import ShardInfo
from litebert.text.filters import describe_rule
from litebert.text.tally import Tally, format_count, format_counts
from litebert.tokenizer.coverage import describe_poor_coverage

log = logging.getLogger("litebert")

MASKED = 0.15
"""Share of tokens that evaluation masks."""
DROPPED = ("filters", "languages", "near_duplicates", "contamination")
"""Entries of the index on what was dropped or found, where it was asked for."""


def summarize(
    tally: Tally, shards: Sequence[ShardInfo], words: int, unknown_tokens: int, pairs: int
) -> dict[str, Any]:
    """Return the counts of a complete set; `pairs`: held-out documents of two sentences or more."""
    tokens = sum(shard.tokens for shard in shards)
    heldout = [shard for shard in shards if shard.split == "heldout"]
    heldout_tokens = sum(shard.tokens for shard in heldout)
    return {
        **tally.to_dict(),
        "words": words,
        "pieces": tokens,
        "unknown_pieces": unknown_tokens,
        "unknown_share": unknown_tokens / tokens,
        "pieces_per_word": tokens / max(words, 1),
        "heldout": {
            "documents": sum(shard.documents for shard in heldout),
            "tokens": heldout_tokens,
            "documents_of_pairs": pairs,
            "masked_accuracy_error": _compute_error(round(MASKED * heldout_tokens)),
            "pair_accuracy_error": _compute_error(pairs),
        },
    }


def _compute_error(count: int) -> float | None:
    return 50 / math.sqrt(count) if count else None


def warn(index: Mapping[str, Any]) -> None:
    counts = index["summary"]
    if index["settings"]["heldout"] and not counts["heldout"]["tokens"]:
        remedy = "give more documents, or shorter ones (--split sets where one ends)"
        log.warning(
            "nothing is held out, because only one document has text, and training needs "
            f"it; {remedy}"
        )
    if fault := describe_poor_coverage(counts["unknown_share"]):
        log.warning(f"{fault}; train one on it with litebert tokenizer train")


def _format_share(count: int, whole: int) -> str:
    return f"{count:,} ({count / max(1, whole):.1%})"


def _quote(examples: Sequence[str]) -> list[tuple[str, str]]:
    return [("", f'"{example}"') for example in examples]


def list_rows(index: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, value) pairs for a table. A folder of an older version has fewer."""
    counts, summary = index["documents"], index["summary"]
    heldout = summary["heldout"]
    rows = [
        ("files read", format_counts(summary["files"])),
        ("skipped", format_counts(summary["skipped"]) or "nothing"),
        ("encodings", format_counts(summary["encodings"])),
        ("files with hard-wrapped lines", f"{summary['hard_wrapped_files']:,}"),
        ("rows of tables", f"{summary['rows']:,}"),
        ("rows without text", f"{summary['empty_rows']:,}"),
        ("documents read", f"{summary['documents']:,}"),
        ("long documents cut", format_count(summary["cuts"], "time")),
        ("characters replaced", f"{summary['replaced_characters']:,}"),
        ("exact duplicates dropped", f"{counts['duplicates']:,}"),
    ]
    if (filters := index.get("filters")) is not None:
        dropped = sum(count["documents"] for count in filters.values() if "words" in count)
        rows.append(("dropped by filters", _format_share(dropped, summary["documents"])))
        for name, count in filters.items():
            if not count["documents"]:
                continue
            share = _format_share(count["documents"], summary["documents"])
            if "lines" in count:
                where = format_count(count["documents"], "document")
                share = f"{format_count(count['lines'], 'line')} of {where}"
            rows.append((f"  {name}", f"{share}: {describe_rule(name)}"))
            rows += _quote(count["examples"])
    if (languages := index.get("languages")) is not None:
        read = sum(count["documents"] for count in languages.values())
        dropped = sum(count["documents"] for count in languages.values() if not count["stays"])
        rows.append(("dropped by language", _format_share(dropped, read)))
        for code, count in languages.items():
            stays = "" if count["stays"] else " dropped"
            rows.append((f"  {code}{stays}", _format_share(count["documents"], read)))
            rows += _quote(count["examples"])
    if (near := index.get("near_duplicates")) is not None:
        share = _format_share(near["documents"], near["documents"] + counts["kept"])
        rows.append(("near-duplicates dropped", share))
        for example in near["examples"]:
            text = f'"{example["dropped"]}" is like "{example["kept"]}"'
            rows.append((f"dropped at {example['similarity']:.0%}", text))
    rows += [
        ("documents without a token", f"{counts['empty']:,}"),
        ("documents kept", f"{counts['kept'] - counts['empty']:,}"),
    ]
    if (contamination := index.get("contamination")) is not None:
        rows.append(("documents that hold such texts", f"{contamination['documents']:,}"))
        for name, found in contamination["files"].items():
            left_out = found["left_out"]
            checked = max(1, found["texts"] - found["short"] - left_out)
            short = f", {found['short']:,} too short to look for" if found["short"] else ""
            short += f", {left_out:,} beyond the limit and not looked for" if left_out else ""
            share = (
                f"{found['found']:,} of {found['texts']:,} texts ({found['found'] / checked:.1%})"
            )
            rows.append((f"  found of {name}", f"{share}{short}"))
            rows += _quote(found["examples"])
    rows += [
        ("tokens per word", f"{summary['pieces_per_word']:.2f}"),
        ("unknown tokens", f"{summary['unknown_pieces']:,} ({summary['unknown_share']:.2%})"),
    ]
    optional = {"encodings", "files with hard-wrapped lines", "rows of tables", "rows without text"}
    optional |= {"long documents cut", "characters replaced"}
    rows = [row for row in rows if row[0] not in optional or row[1] not in ("", "0", "0 times")]
    rows += [("note", note) for note in summary["notes"]]
    masked = format_count(round(MASKED * heldout["tokens"]), "masked token")
    pairs = format_count(heldout["documents_of_pairs"], "document")
    for name, error, basis in (
        ("error of masked-token accuracy", heldout["masked_accuracy_error"], masked),
        ("error of sentence-pair accuracy", heldout["pair_accuracy_error"], pairs),
    ):
        shown = "unknown: no such text is held out"
        rows.append((name, shown if error is None else f"± {error:.1f} points ({basis})"))
    return rows
