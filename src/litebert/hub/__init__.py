"""Models by name: the folder that `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION` means.

`locate` is called wherever a model or a tokenizer is opened. A path comes back as it is. Of a name,
`huggingface_hub` fetches what litebert reads into its own cache. A process resolves a name once, so
that all of its parts see the same commit.

    ~/.cache/huggingface/hub/models--OWNER--NAME/
      refs/main                 the commit that a branch or a tag named when it was last fetched
      snapshots/COMMIT/         the folder of a commit, which `locate` returns

The pickle of PyTorch is fetched only where there are no safetensors, and Python files never.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from litebert.base.errors import LitebertError, ModelError
from litebert.base.json_reader import read_json
from litebert.hub.fetching import Fetching
from litebert.hub.names import PREFIX as PREFIX
from litebert.hub.names import HubName as HubName
from litebert.hub.names import find_origin as find_origin
from litebert.hub.names import is_commit
from litebert.hub.names import is_hub_name as is_hub_name
from litebert.hub.names import parse_name as parse_name
from litebert.hub.names import refuse_missing as refuse_missing
from litebert.hub.pushing import push_folder as push_folder

_located: dict[tuple[str, bool], Path] = {}
"""The folders of the names that this process has resolved, with weights and without."""
_pinned: dict[str, str] = {}
"""The commits that names mean in this process whatever the Hub says."""
_RECORDED = ("model", "from", "table_from", "teacher")
"""Fields of a run's record that hold a model, whose commit stands in the field FIELD_revision."""


def locate(
    source: str | Path,
    *,
    tokenizer_only: bool = False,
    error: type[LitebertError] = ModelError,
) -> Path:
    """Return the folder of a model or a tokenizer (`tokenizer_only`: without the weights); a path
    comes back as it is, and whole if the folder's name looks like one of the Hub (`./hf:x`).
    """
    if not is_hub_name(source):
        path = Path(source)  # which drops the ./ that tells a folder from a name
        return path.absolute() if is_hub_name(path) else path
    key = str(source), tokenizer_only
    if tokenizer_only and (whole := _located.get((str(source), False))) is not None:
        return whole
    if key not in _located:
        name = parse_name(source, error)
        name = replace(name, revision=_pinned.get(str(source), name.revision))
        _located[key] = Fetching(name, tokenizer_only, error).run()
    return _located[key]


def record_revision(source: str | Path | None, field: str) -> dict[str, str]:
    """The field FIELD_revision of a run's record, with the commit of the Hub's model in FIELD: a
    name, or a folder of the cache. Nothing of another source.
    """
    if source is None:
        return {}
    keys = (str(source), False), (str(source), True)
    folder = next((_located[key] for key in keys if key in _located), Path(source))
    return {} if find_origin(folder) is None else {f"{field}_revision": folder.name}


def pin_to_record(file: Path) -> None:
    """Let the names in a run's record mean the commits that the run began with, so that the same
    command continues it though a branch has moved on. `file` (of several seeds, the first one's)
    need not be there.
    """
    if not file.is_file():
        file = file.parent / "seed-0" / file.name
    with suppress(LitebertError, OSError):  # who continues the run says what is wrong with it
        record = read_json(file, LitebertError) if file.is_file() else {}
        for field in _RECORDED:
            named, recorded = record.get(field), record.get(f"{field}_revision")
            names = named if isinstance(named, list) else [named]  # several teachers
            commits = recorded if isinstance(recorded, list) else [recorded]
            for name, commit in zip(names, commits, strict=False):
                if not (is_hub_name(name) and is_commit(commit)):
                    continue
                _pinned[str(name)] = commit
                for key in ((str(name), False), (str(name), True)):  # what it meant before
                    if key in _located and _located[key].name != commit:
                        del _located[key]


def format_source(source: str | Path) -> str:
    """Write the text by which a run records a model: its name, or the whole path of its folder."""
    return str(source) if is_hub_name(source) else str(Path(source).resolve())
