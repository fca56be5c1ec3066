"""Models by name: the folder that `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION` means.

`locate` is called wherever a model or a tokenizer is opened. A path comes back as it is. Of a name,
`huggingface_hub` fetches the files that litebert reads into the Hub's own cache, whose folder comes
back. Nothing else in litebert connects to fetch a model. A process resolves a name once, so that
all of its parts see the same commit.

    ~/.cache/huggingface/hub/models--OWNER--NAME/
      refs/main                 the commit that a branch or a tag named when it was last fetched
      snapshots/COMMIT/         the folder of a commit, which `locate` returns

Safetensors are fetched, and the pickle of PyTorch only where there are none. Files for other
libraries and Python files are not fetched, and a model that needs code of its own is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litebert import progress
from litebert.errors import LitebertError, ModelError, nearest
from litebert.json_reader import read_json
from litebert.registry import FAMILIES
from litebert.storage import FULL, remove, sha256_of

log = logging.getLogger("litebert.hub")

PREFIX = "hf:"
"""How the name of a model on the Hub begins."""

_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Weights, of which the first that a folder has is fetched."""
_OTHER_WEIGHTS = (".safetensors", ".bin", ".onnx", ".h5", ".msgpack", ".gguf", ".pt", ".ckpt")
"""Endings of files of weights, for a message."""
_TOKENIZER = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
"""Files of a tokenizer, the settings first."""
_SETTINGS = (
    "config.json",
    "recipe.json",
    "task.json",
    "reading.json",
    "README.md",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
_MODULE = re.compile(r"\d+_\w+")
"""Folders of the modules that sentence-transformers puts after an encoder."""


@dataclass(frozen=True)
class HubName:
    """The name of a model on the Hub."""

    repository: str
    """OWNER/NAME, or NAME alone of some old models."""
    revision: str | None = None
    """A branch, a tag or a commit; None is the branch main."""

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True)
class Origin:
    """The model on the Hub that a folder of its cache holds."""

    repository: str
    commit: str
    """The full hash."""


@dataclass(frozen=True)
class _File:
    """A file of a model on the Hub, as the Hub describes it."""

    path: str
    size: int = 0
    digest: str | None = None
    """The sha256 of the file, or the SHA-1 that git gives it; None where it is not known."""


_located: dict[tuple[str, bool], Path] = {}
"""The folders of the names that this process has resolved, with weights and without."""
_pinned: dict[str, str] = {}
"""The commits that names mean in this process whatever the Hub says."""
_RECORDED = ("model", "from", "teacher")
"""Fields of a run's record that hold a model; the commit of one of the Hub stands in the field
FIELD_revision.
"""


def is_hub_name(source: object) -> bool:
    """Return whether a text names a model on the Hub."""
    return str(source).startswith(PREFIX)


def parse_name(source: str | Path, error: type[LitebertError] = ModelError) -> HubName:
    """Read `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`.

    Raises:
        error: it is none.
    """
    repository, at, revision = str(source).removeprefix(PREFIX).partition("@")
    if not _REPOSITORY.fullmatch(repository) or (at and not revision):
        raise error(
            f"{source} names no model; write {PREFIX}OWNER/NAME or {PREFIX}OWNER/NAME@REVISION, "
            f"such as {PREFIX}albert/albert-base-v2"
        )
    return HubName(repository, revision or None)


def suggest_name(source: str | Path) -> str:
    """A clause that says how to write a name of the Hub, for a path that leads nowhere; empty where
    it looks like none."""
    path = Path(source)
    looks_like_name = len(path.parts) == 2 and not path.parent.exists()
    if not looks_like_name or not _REPOSITORY.fullmatch(str(source)):
        return ""
    return f", and for the model of that name on the Hugging Face Hub write {PREFIX}{source}"


def locate(
    source: str | Path,
    *,
    tokenizer_only: bool = False,
    error: type[LitebertError] = ModelError,
) -> Path:
    """The folder of a model or a tokenizer; a path comes back as it is.

    Args:
        tokenizer_only: leave out the weights.

    Raises:
        error: the name means no model that this machine can fetch and litebert can read.
    """
    if not is_hub_name(source):
        return Path(source)
    key = str(source), tokenizer_only
    if tokenizer_only and (whole := _located.get((str(source), False))) is not None:
        return whole
    if key not in _located:
        name = parse_name(source, error)
        name = replace(name, revision=_pinned.get(str(source), name.revision))
        _located[key] = _Fetch(name, tokenizer_only, error).run()
    return _located[key]


def locate_origin(source: str | Path | None) -> Origin | None:
    """The model on the Hub behind a name or a folder of the cache; None of any other source."""
    if source is None:
        return None
    if is_hub_name(source):
        source = next((_located[key] for key in _keys(source) if key in _located), Path(source))
    return find_origin(Path(source))


def _keys(source: object) -> Sequence[tuple[str, bool]]:
    return (str(source), False), (str(source), True)


def find_origin(folder: Path) -> Origin | None:
    """Read what a folder of the Hub's cache holds from its path; None of any other folder."""
    snapshots = folder.absolute().parent
    repository = snapshots.parent.name
    if (
        snapshots.name != "snapshots"
        or not repository.startswith("models--")
        or not _COMMIT.fullmatch(folder.name)
    ):
        return None
    return Origin(repository.removeprefix("models--").replace("--", "/", 1), folder.name)


def record_revision(source: str | Path | None, field: str) -> dict[str, str]:
    """The field FIELD_revision of a run's record, which holds the commit of the model in FIELD;
    none of a model that is not of the Hub."""
    origin = locate_origin(source)
    return {} if origin is None else {f"{field}_revision": origin.commit}


def pin_to_record(file: Path) -> None:
    """Let the names in a run's record mean the commits that the run began with, so that the same
    command continues it though a branch has moved on.

    Args:
        file: the JSON file of the run, which need not be there; of several seeds, it is that of
            the first.
    """
    if not file.is_file():
        file = file.parent / "seed-0" / file.name
    with suppress(LitebertError, OSError):  # who continues the run says what is wrong with it
        record = read_json(file, LitebertError) if file.is_file() else {}
        for field in _RECORDED:
            commit = record.get(f"{field}_revision")
            if is_hub_name(record.get(field)) and isinstance(commit, str):
                _pinned[record[field]] = commit


def format_source(source: str | Path) -> str:
    """Write the text by which a run records a model: its name, or the whole path of its folder."""
    return str(source) if is_hub_name(source) else str(Path(source).resolve())


# ----------------------------------------------------------------------------------------- fetching


@dataclass(frozen=True)
class _Fetch:
    """A model or a tokenizer to open by its name."""

    name: HubName
    tokenizer_only: bool
    error: type[LitebertError]

    def run(self) -> Path:
        """Fetch what the cache lacks, and return the folder; without a connection, find it in the
        cache.

        Raises:
            error: it cannot be had, with a sentence that says what to do.
        """
        from huggingface_hub import HfApi, constants  # late: their import takes time

        with _silence():
            try:
                info = HfApi(library_name="litebert").model_info(
                    self.name.repository,
                    revision=self.name.revision,
                    files_metadata=True,
                    timeout=constants.HF_HUB_ETAG_TIMEOUT,
                )
                files = {file.path: file for file in map(_describe, info.siblings or ())}
                return self._download(files, str(info.sha))
            except (LitebertError, MemoryError):
                raise
            except Exception as error:  # each version of the library has errors of another one
                if _is_unreachable(error) and (folder := self._find_cached()) is not None:
                    if not constants.HF_HUB_OFFLINE:
                        log.warning(
                            f"{constants.ENDPOINT} cannot be reached ({_reason(error)}); taking "
                            f"{self.name} from the cache, commit {folder.name[:12]}"
                        )
                    return folder
                raise self.error(explain(self.name, error)) from None

    def _download(self, files: Mapping[str, _File], commit: str) -> Path:
        """Fetch the files of a commit that are not in the cache yet."""
        first, *others = self._select(files)
        # By its revision, so that the cache knows the commit of a branch without a connection.
        folder = self._fetch(first, commit, revision=self.name.revision or "main")
        if first.path == "config.json":
            self._refuse_settings(folder)
        missing = [file for file in others if not self._is_cached(file, commit)]
        total = sum(file.size for file in missing)
        if missing:
            with progress.task(f"fetching {self.name}", total or None, "bytes") as task:
                for file in missing:  # one after the other, so that Ctrl-C ends the work at once
                    folder = self._fetch(file, commit, task=task)
            log.info(f"fetched {self.name}, {total / 1e6:,.1f} MB, commit {commit[:12]}")
        return folder

    def _select(self, files: Mapping[str, _File]) -> list[_File]:
        """List the files to fetch: the settings first, the weights last, so that who has the
        weights has all.

        Raises:
            error: there is nothing that litebert can open.
        """
        heads = [name for name in ("config.json", "recipe.json") if name in files]
        texts = [name for name in _SETTINGS if name in files and not self.tokenizer_only]
        words = [
            path for name in _TOKENIZER for path in (name, f"tokenizer/{name}") if path in files
        ]
        if not any(path.endswith("tokenizer.json") for path in words):
            words += [path for path in files if "/" not in path and path.endswith(".model")]
        if self.tokenizer_only:
            if not any(not path.endswith(_TOKENIZER[:3]) for path in words):
                raise self.error(f"{self.name} has no tokenizer; name a model that has one")
            return [files[path] for path in dict.fromkeys((*heads, *words))]
        if not heads:
            raise self.error(
                f"{self.name} has neither config.json nor recipe.json, so litebert cannot open it; "
                "name a model for transformers, or one that litebert wrote"
            )
        folders = sorted({path.split("/")[0] for path in files if _MODULE.match(path)})
        modules = [f"{name}/config.json" for name in folders if f"{name}/config.json" in files]
        weights = [_choose_weights(files, f"{name}/") for name in folders]
        main = _choose_weights(files, "")
        if main is None:
            others = [path for path in files if path.endswith(_OTHER_WEIGHTS)]
            listed = f", only {', '.join(others[:3])}" if others else ""
            raise self.error(
                f"{self.name} has neither {' nor '.join(_WEIGHTS)}{listed}; name a model whose "
                "weights are in one of these files"
            )
        chosen = (*heads, *texts, *words, *modules, *filter(None, weights), main)
        return [files[path] for path in dict.fromkeys(chosen)]

    def _refuse_settings(self, folder: Path) -> None:
        """Refuse a model that needs code of its own, and one that litebert cannot compute.

        Raises:
            error: it is one.
        """
        file = folder / "config.json"
        if not file.is_file():
            return
        settings = read_json(file, self.error)
        if settings.get("auto_map"):
            raise self.error(
                f"{self.name} needs Python code of its own (auto_map in its config.json), which "
                "transformers runs with trust_remote_code and litebert never does; name a model "
                "without such code"
            )
        kind = str(settings.get("model_type"))
        is_litebert = self.tokenizer_only or (folder / "recipe.json").is_file()
        if not is_litebert and kind not in FAMILIES:
            raise self.error(
                f"{self.name} has model_type '{kind}', which litebert cannot open; "
                f"{nearest(kind, FAMILIES)}"
            )

    def _fetch(
        self,
        file: _File,
        commit: str,
        *,
        revision: str | None = None,
        task: progress.Task | None = None,
    ) -> Path:
        """Fetch a file and compare it with what the Hub says of it; returns the folder.

        Raises:
            error: its content is not what the Hub says.
        """
        from huggingface_hub import hf_hub_download

        was_there = self._is_cached(file, commit)
        options: dict[str, Any] = {}
        if "tqdm_class" in inspect.signature(hf_hub_download).parameters:
            options["tqdm_class"] = type("Bar", (_Bar,), {"task": task})
        path = Path(
            hf_hub_download(
                self.name.repository,
                file.path,
                revision=revision or commit,
                library_name="litebert",
                **options,
            )
        )
        if not was_there and file.digest is not None and _digest(path, file) != file.digest:
            remove(Path(os.path.realpath(path)))
            remove(path)
            raise self.error(
                f"{file.path} of {self.name} arrived damaged (its checksum is not the one that "
                "the Hub names) and was deleted; give the same command again"
            )
        return Path(*path.parts[: len(path.parts) - len(Path(file.path).parts)])

    def _is_cached(self, file: _File, commit: str) -> bool:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(self.name.repository, file.path, revision=commit)
        return isinstance(cached, str)

    def _find_cached(self) -> Path | None:
        """The folder of the name in the cache, if all of it is there.

        Raises:
            error: the model is one that litebert refuses.
        """
        from huggingface_hub import try_to_load_from_cache

        names = _TOKENIZER[3:] if self.tokenizer_only else _WEIGHTS
        for name in (*names, *(f"tokenizer/{name}" for name in names)):
            path = try_to_load_from_cache(
                self.name.repository, name, revision=self.name.revision or "main"
            )
            if isinstance(path, str):
                folder = Path(*Path(path).parts[: len(Path(path).parts) - name.count("/") - 1])
                self._refuse_settings(folder)
                return folder
        return None


class _Bar:
    """Takes the place of a progress bar of `huggingface_hub`, and reports its bytes to a task."""

    task: progress.Task | None = None

    def __init__(self, *_: object, **options: Any) -> None:
        self.n, self.total = 0.0, options.get("total")
        self.update(options.get("initial"))

    def update(self, amount: float | None = 1) -> None:
        """More bytes are written."""
        self.n += amount or 0
        if self.task is not None:
            self.task.advance(amount or 0)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update_transfer(self, amount: float | None = 1) -> None:
        """More bytes have come, which `update` counts when they are written."""

    def set_postfix_str(self, *_: object, **__: object) -> None:
        """Show nothing, for the task shows what is done."""

    set_transfer_postfix_str = set_description = refresh = close = set_postfix_str


def _choose_weights(files: Mapping[str, object], folder: str) -> str | None:
    return next((folder + name for name in _WEIGHTS if folder + name in files), None)


def _describe(sibling: Any) -> _File:
    """Read what the Hub says of a file."""
    large = getattr(sibling, "lfs", None)
    digest = getattr(large, "sha256", None) or getattr(sibling, "blob_id", None)
    return _File(sibling.rfilename, sibling.size or 0, digest)


def _digest(path: Path, file: _File) -> str:
    """Compute the sum of a file of the kind that the Hub names: sha256 of a large one, else
    git's."""
    if len(file.digest or "") == 64:
        return sha256_of(path)
    content = path.read_bytes()
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the library from writing to standard error; errors become sentences here."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---------------------------------------------------------------------------------------- refusals


def _is_unreachable(error: BaseException) -> bool:
    """Return whether an error means that the Hub cannot be reached now."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # httpx's errors are TransportErrors, those of requests are ConnectionErrors and Timeouts.
    unreachable = {"TransportError", "ConnectionError", "Timeout", "TimeoutError"}
    return isinstance(error, LocalEntryNotFoundError) or not kinds.isdisjoint(unreachable)


def _reason(error: BaseException) -> str:
    """The first line of what an error says, or of the error behind it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split("\n\n")[0].split())
    return text or type(error).__name__


def explain(name: HubName, error: Exception) -> str:
    """Say in one sentence why a model cannot be fetched or written, and what to do."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{name.repository}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its terms at {page}, then log in with `hf auth login` or set "
            "HF_TOKEN"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"the Hub has no model {name} that this machine may see; check its name, and for a "
            "private model log in with `hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"{name} has no revision '{name.revision}'; name a branch, a tag or a commit of {page}"
        )
    if _is_unreachable(error):
        return _explain_unreachable(name, error)
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return (
                f"the Hub refuses this machine's token for {name}; log in again with "
                "`hf auth login`, or set HF_TOKEN to a token that may do this"
            )
        return f"the Hub answers with status {status} for {name} ({_reason(error)}); try again"
    if isinstance(error, OSError) and error.errno is not None:
        free = "free some space there" if error.errno in FULL else "make it writable"
        return (
            f"{name} cannot be kept in {constants.HF_HUB_CACHE} ({error.strerror}); {free}, or set "
            "HF_HOME to another folder"
        )
    return f"{name} cannot be fetched ({_reason(error)}); give the same command again"


def _explain_unreachable(name: HubName, error: Exception) -> str:
    from huggingface_hub import constants

    copy = f"or copy a folder of it (hf download {name.repository} --local-dir FOLDER) and give it"
    if constants.HF_HUB_OFFLINE:
        return (
            f"{name} is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it; "
            f"unset that, {copy}"
        )
    return (
        f"{name} is not in {constants.HF_HUB_CACHE}, and {constants.ENDPOINT} cannot be reached "
        f"({_reason(error)}); give the same command again with a connection, {copy}"
    )
