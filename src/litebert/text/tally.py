"""What happened while reading the sources of a corpus: counts of what was read, changed and
skipped.

The same files give the same counts, so `litebert prepare` keeps them in the index of the folder it
writes.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from litebert.text.records import Notes

log = logging.getLogger("litebert")

HIDDEN = "hidden files and folders"
"""The one kind that nobody expects to be read."""


@dataclass
class Tally:
    """Counts of one reading of the sources."""

    files: Counter[str] = field(default_factory=Counter)
    """Files read, by suffix; other sources by name."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What folders hold beside them: files of other kinds by suffix, the rest by the reason why it
    was passed over.
    """
    encodings: Counter[str] = field(default_factory=Counter)
    """Files of text, by encoding."""
    notes: Notes = field(default_factory=Notes)
    """What the readers of rows met."""
    rows: int = 0
    """Of tables."""
    empty_rows: int = 0
    """Rows without text."""
    documents: int = 0
    """Documents with text, before duplicates are dropped."""
    cuts: int = 0
    """Documents that begin where a longer one was cut."""
    replaced_characters: int = 0
    """Halves of surrogate pairs, read as the replacement character."""
    hard_wrapped: list[str] = field(default_factory=list)
    """Files whose lines end in the middle of sentences."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        counters = {
            name: dict(sorted(getattr(self, name).items()))
            for name in ("files", "skipped", "encodings")
        }
        numbers = ("rows", "empty_rows", "documents", "cuts", "replaced_characters")
        return {
            **counters,
            **{name: getattr(self, name) for name in numbers},
            "hard_wrapped_files": len(self.hard_wrapped),
            "notes": self.notes.notes(),
        }

    def report_skipped(self) -> None:
        """Log what the folders hold that is not read."""
        if not self.skipped:
            return
        unexpected = sum(self.skipped.values()) - self.skipped[HIDDEN]
        kinds = any(what == "no suffix" or what.startswith(".") for what in self.skipped)
        remedy = (
            "; a pattern such as 'folder/*.log' reads text files of other kinds" if kinds else ""
        )
        remedy += (
            ", and --markup strip reads web pages"
            if self.skipped[".html"] + self.skipped[".htm"]
            else ""
        )
        read = f"files read: {format_counts(self.files) or 'none'}"
        level = logging.WARNING if unexpected else logging.INFO
        log.log(level, f"{read}; passed over: {format_counts(self.skipped)}{remedy}")


def format_counts(counts: Counter[str] | dict[str, int]) -> str:
    """Counts in words, the largest first."""
    every = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{what} ({count:,})" for what, count in every if count)


def format_count(number: int, what: str) -> str:
    """1 document, 2 documents."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def escape_name(name: str) -> str:
    """The name of a file as text; bytes that are not UTF-8 as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
