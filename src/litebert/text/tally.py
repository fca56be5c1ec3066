"""Counts of what was read, changed and skipped in the sources of a corpus. The same files give the
same counts, so the index of shards keeps them.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from litebert.remote.names import shorten
from litebert.text.records import Notes

log = logging.getLogger("litebert")

HIDDEN = "hidden files and folders"
"""The only entry of `Tally.skipped` that nobody expects to be read."""
COUNTERS = ("files", "skipped", "encodings", "notes")
NUMBERS = ("rows", "empty_rows", "documents", "cuts", "replaced_characters")


@dataclass
class Tally:
    files: Counter[str] = field(default_factory=Counter)
    """Files read, by suffix; other sources by name."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Other files in the folders: by suffix, or by the reason why they were skipped."""
    encodings: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)
    rows: int = 0
    empty_rows: int = 0
    documents: int = 0
    """Documents with text, before duplicates are dropped."""
    cuts: int = 0
    """Documents that begin where a longer one was cut."""
    replaced_characters: int = 0
    """Unpaired surrogates, read as the replacement character."""
    hard_wrapped: list[str] = field(default_factory=list)
    """Files whose lines end in the middle of sentences."""

    def to_dict(self) -> dict[str, Any]:
        counts = {name: dict(sorted(getattr(self, name).items())) for name in COUNTERS[:3]}
        numbers = {name: getattr(self, name) for name in NUMBERS}
        wrapped = {"hard_wrapped_files": len(self.hard_wrapped)}
        return {**counts, **numbers, **wrapped, "notes": self.notes.notes()}

    def add(self, end: Tally, start: Tally | None = None) -> None:
        """Add the counts of `end`, less those of `start`, an earlier state of the same reading."""
        start = start or Tally()
        for name in COUNTERS:
            counts: Counter[str] = getattr(self, name)
            before = getattr(start, name)
            for key, count in getattr(end, name).items():
                if count > before[key]:
                    counts[key] += count - before[key]
        for name in NUMBERS:
            change = getattr(end, name) - getattr(start, name)
            setattr(self, name, getattr(self, name) + change)
        self.hard_wrapped += end.hard_wrapped[len(start.hard_wrapped) :]

    def to_state(self) -> dict[str, Any]:
        counts = {name: dict(getattr(self, name)) for name in COUNTERS}
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {**counts, **numbers, "hard_wrapped": self.hard_wrapped}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tally:
        tally = cls()
        for name in COUNTERS:
            getattr(tally, name).update(state[name])
        for name in NUMBERS:
            setattr(tally, name, int(state[name]))
        tally.hard_wrapped = list(state["hard_wrapped"])
        return tally

    def log_skips(self) -> None:
        if not self.skipped:
            return
        unexpected = sum(self.skipped.values()) - self.skipped[HIDDEN]
        remedy = ""
        if any(entry == "no suffix" or entry.startswith(".") for entry in self.skipped):
            remedy = "; a pattern such as 'folder/*.log' reads text files of other kinds"
        if self.skipped[".html"] + self.skipped[".htm"]:
            remedy += ", and --markup strip reads web pages"
        read = f"files read: {format_counts(self.files) or 'none'}"
        level = logging.WARNING if unexpected else logging.INFO
        log.log(level, f"{read}; skipped: {format_counts(self.skipped)}{remedy}")


def format_counts(counts: Counter[str] | dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{name} ({count:,})" for name, count in ordered if count)


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: 1 document, 2 documents."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def escape_name(name: str) -> str:
    return shorten(name).encode("utf-8", "backslashreplace").decode()
