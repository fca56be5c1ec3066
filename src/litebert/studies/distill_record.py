"""The record of a distillation: the request, the steps that are whole, and the scores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import RunError
from litebert.json_reader import read_json
from litebert.storage import LOCK, write_json
from litebert.studies.distilling import LAST, DistillRequest

RECORD = "distill.json"


@dataclass
class DistillRecord:
    """The content of distill.json."""

    folder: Path
    request: dict[str, Any]
    done: list[str] = field(default_factory=list)
    """Names of the steps that are whole."""
    refusal: str = ""
    """The reason why there are no 8-bit weights, where these cost too much."""
    results: dict[str, Any] = field(default_factory=dict)
    content: dict[str, str] = field(default_factory=dict)
    """The digests of what the steps read, by its options."""

    def mark(self, name: str) -> None:
        """Note that a step is whole."""
        self.done.append(name)
        self.write()

    def write(self) -> None:
        """Write the file."""
        fields = {"format": 1, "request": self.request, "content": self.content, "done": self.done}
        if self.refusal:
            fields["refusal"] = self.refusal
        write_json(self.folder / RECORD, {**fields, "results": self.results})


def open_record(folder: Path, request: DistillRequest, content: dict[str, str]) -> DistillRecord:
    """Begin a distillation in a folder, or find the one that is there. Its last step, the weights
    in 8 bits, is done again where their limit differs.
    """
    fields = json.loads(json.dumps(asdict(request)))
    if not (folder / RECORD).is_file():
        if any(path.name != LOCK for path in folder.iterdir()):
            raise RunError(
                f"{folder} holds no distillation, and is not empty; give --out a new folder"
            )
        record = DistillRecord(folder, fields, content=content)
        record.write()
        return record
    saved = read_json(folder / RECORD, RunError)
    before = saved.get("request", {})
    for name, value in fields.items():
        if before.get(name) != value and name != "max_drop":
            raise RunError(
                f"{folder} holds a distillation with {_format_option(name, before.get(name))}, not "
                f"with {_format_option(name, value)}; give that, or another --out"
            )
    for option, digest in content.items():
        if saved.get("content", content).get(option) != digest:
            raise RunError(
                f"what {option} names has changed since the distillation in {folder} began; "
                "restore it, or give another --out"
            )
    done = list(saved.get("done", []))
    if before.get("max_drop") != request.max_drop:
        done, saved = [name for name in done if name != LAST], {}
    refusal, results = str(saved.get("refusal", "")), dict(saved.get("results", {}))
    return DistillRecord(folder, fields, done, refusal, results, content)


def _format_option(name: str, value: Any) -> str:
    if name.endswith("_words"):
        return " ".join(value) if value else "the defaults of the task and of finetune"
    text = " ".join(value) if isinstance(value, list) else value
    option = "TEACHER" if name == "teacher" else f"--{name.replace('_', '-')}"
    return f"{option} {text}" if text not in (None, "", []) else f"no {option}"
