"""Fetching the files of a model into the cache of the Hub, and the errors of `huggingface_hub` as
sentences that say what to do.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base import progress
from litebert.base.errors import LitebertError, ModelError, nearest
from litebert.base.json_reader import read_json
from litebert.base.registry import FAMILIES
from litebert.base.storage import FULL, is_inside, remove, sha256_of
from litebert.hub.names import HubName

log = logging.getLogger("litebert.hub")

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_INDEX = ".index.json"
_CHOICES = tuple(name + ending for name in WEIGHTS for ending in ("", _INDEX))
"""Weights, or the index of their shards, of which the first that a folder has is fetched."""
_OTHER_WEIGHTS = (".safetensors", ".bin", ".onnx", ".h5", ".msgpack", ".gguf", ".pt", ".ckpt")
"""Endings of files of weights, for a message."""
TOKENIZER = (
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
SETTINGS = (
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
ANSWER_SECONDS = 120.0
"""The longest wait for a piece of an answer of the Hub."""


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    digest: str | None
    """The sha256 of the file, or the SHA-1 that git gives it; None where it is not known."""


@dataclass(frozen=True)
class Fetching:
    name: HubName
    tokenizer_only: bool
    error: type[LitebertError]

    def run(self) -> Path:
        """Fetch what the cache lacks, if there is a connection, and return its folder."""
        with silence():
            from huggingface_hub import HfApi, constants  # late: their import takes time

            try:
                info = HfApi(library_name="litebert").model_info(
                    self.name.repository,
                    revision=self.name.revision,
                    files_metadata=True,
                    timeout=constants.HF_HUB_ETAG_TIMEOUT,
                )
                files: dict[str, _File] = {}
                for sibling in info.siblings or ():
                    large, path = sibling.lfs, sibling.rfilename
                    digest = getattr(large, "sha256", None) or sibling.blob_id
                    if is_inside(path, below=True):
                        files[path] = _File(path, sibling.size or 0, digest)
                return self._download(self._select(files), str(info.sha))
            except (LitebertError, MemoryError):
                raise
            except Exception as error:  # each version of the library has errors of another one
                if is_unreachable(error) and (folder := self._find_cached()) is not None:
                    if not constants.HF_HUB_OFFLINE:
                        log.warning(
                            f"{constants.ENDPOINT} cannot be reached ({get_reason(error)}); taking "
                            f"{self.name} from the cache, commit {folder.name[:12]}"
                        )
                    return folder
                raise self.error(_explain(self.name, error)) from None

    def _select(self, files: Mapping[str, _File]) -> list[_File]:
        """List the files to fetch, the weights last, so that who has these has all."""
        heads = [name for name in ("config.json", "recipe.json") if name in files]
        texts = [name for name in SETTINGS if name in files and not self.tokenizer_only]
        words = [
            path for name in TOKENIZER for path in (name, f"tokenizer/{name}") if path in files
        ]
        if not any(path.endswith("tokenizer.json") for path in words):
            words += [path for path in files if "/" not in path and path.endswith(".model")]
        if self.tokenizer_only:
            if not any(not path.endswith(TOKENIZER[:3]) for path in words):
                raise self.error(f"{self.name} has no tokenizer; name a model that has one")
            return [files[path] for path in dict.fromkeys((*heads, *words))]
        if not heads:
            raise self.error(
                f"{self.name} has neither config.json nor recipe.json, so litebert cannot open it; "
                "name a model for transformers, or one that litebert wrote"
            )
        folders = sorted({path.split("/")[0] for path in files if _MODULE.match(path)})
        modules = [f"{name}/config.json" for name in folders if f"{name}/config.json" in files]
        weights = [path for name in folders for path in _choose_weights(files, f"{name}/")]
        main = _choose_weights(files, "")
        if not main:
            others = [path for path in files if path.endswith(_OTHER_WEIGHTS)]
            listed = f", only {', '.join(others[:3])}" if others else ""
            raise self.error(
                f"{self.name} has neither {' nor '.join(WEIGHTS)}{listed}; name a model whose "
                "weights are in one of these files"
            )
        chosen = (*heads, *texts, *words, *modules, *weights, *main)
        return [files[path] for path in dict.fromkeys(chosen)]

    def _download(self, files: list[_File], commit: str) -> Path:
        first, *others = files
        # By its revision, so that the cache knows the commit of a branch without a connection.
        folder = self._fetch(first, commit, revision=self.name.revision or "main")
        if first.path == "config.json":
            self._refuse_settings(folder)
        missing = [file for file in others if _find(self.name, file.path, commit) is None]
        total = sum(file.size for file in missing)
        if missing:
            with progress.task(f"fetching {self.name}", total or None, "bytes") as task:
                for file in missing:  # one after the other, so that Ctrl-C ends the work at once
                    folder = self._fetch(file, commit, task=task)
            log.info(f"fetched {self.name}, {total / 1e6:,.1f} MB, commit {commit[:12]}")
        return folder

    def _fetch(
        self,
        file: _File,
        commit: str,
        *,
        revision: str | None = None,
        task: progress.Task | None = None,
    ) -> Path:
        from huggingface_hub import hf_hub_download

        was_there = _find(self.name, file.path, commit) is not None
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
        if not was_there and file.digest is not None:
            digest = sha256_of(path) if len(file.digest) == 64 else _git_digest(path)
            if digest != file.digest:
                remove(Path(os.path.realpath(path)))
                remove(path)
                raise self.error(
                    f"{file.path} of {self.name} arrived damaged (its checksum is not the one that "
                    "the Hub names) and was deleted; give the same command again"
                )
        return path.parents[file.path.count("/")]

    def _refuse_settings(self, folder: Path) -> None:
        """Refuse a model that needs code of its own, and one that litebert cannot compute."""
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

    def _find_cached(self) -> Path | None:
        names = TOKENIZER[3:] if self.tokenizer_only else _CHOICES
        for name in (*names, *(f"tokenizer/{name}" for name in names)):
            path = _find(self.name, name, self.name.revision or "main")
            if path is not None:
                folder: Path = path.parents[name.count("/")]
                self._refuse_settings(folder)
                return folder
        return None


def _find(name: HubName, path: str, revision: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    cached: object = try_to_load_from_cache(name.repository, path, revision=revision)
    return Path(cached) if isinstance(cached, str) else None


def _git_digest(path: Path) -> str:
    content = path.read_bytes()
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


class _Bar:
    """Takes the place of a progress bar of `huggingface_hub`, and reports its bytes to a task."""

    task: progress.Task | None = None

    def __init__(self, *_: object, **options: Any) -> None:
        self.n, self.total = 0.0, options.get("total")
        self.update(options.get("initial"))

    def update(self, amount: float | None = 1) -> None:
        self.n += amount or 0
        if self.task is not None:
            self.task.advance(amount or 0)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        """Let everything else that a bar can do show nothing, for the task shows what is done."""
        return lambda *_, **__: None


def _choose_weights(files: Mapping[str, object], folder: str) -> list[str]:
    """The weights in a folder; after shards their index, so that who has it has them all."""
    name = next((name for name in _CHOICES if folder + name in files), None)
    if name is None or not name.endswith(_INDEX):
        return [] if name is None else [folder + name]
    stem, _, ending = name.removesuffix(_INDEX).partition(".")
    shard = re.compile(rf"{re.escape(folder + stem)}-\d+-of-\d+\.{ending}")
    return [*sorted(filter(shard.fullmatch, files)), folder + name]


@contextmanager
def silence() -> Iterator[None]:
    """Keep the library from writing to standard error, drawing bars and waiting for ever."""
    try:
        from huggingface_hub import utils
        from huggingface_hub.utils.tqdm import (
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
        )

        session: Any = utils.get_session()  # type: ignore[attr-defined]
    except ValueError as error:
        names = sorted(name for name in os.environ if name.startswith(("HF_", "HUGGINGFACE_")))
        raise ModelError(
            f"huggingface_hub does not start ({error}); correct what the environment has in "
            f"{', '.join(names)}"
        ) from None
    session.timeout = ANSWER_SECONDS  # by itself it waits without end, but for downloads
    logger = logging.getLogger("huggingface_hub")
    level, draws = logger.level, not are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():  # where the environment says how bars are drawn
        warnings.simplefilter("ignore")
        disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if draws:
            enable_progress_bars()


# ------------------------------------------------------------------------------------------ errors


def is_unreachable(error: BaseException) -> bool:
    """Return whether an error means that the Hub cannot be reached now."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # httpx's errors are TransportErrors, those of requests are ConnectionErrors and Timeouts.
    unreachable = {"TransportError", "ConnectionError", "Timeout", "TimeoutError"}
    return isinstance(error, LocalEntryNotFoundError) or not kinds.isdisjoint(unreachable)


def get_reason(error: BaseException) -> str:
    """Return the first line of what an error says, or of the error behind it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split("\n\n")[0].split())
    return text or type(error).__name__


def _explain(name: HubName, error: Exception) -> str:
    from huggingface_hub import constants, errors

    reason, cache, hub = get_reason(error), constants.HF_HUB_CACHE, constants.ENDPOINT
    page = f"{hub}/{name.repository}"
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
    if is_unreachable(error):
        copy = f"copy a folder of it (hf download {name.repository} --local-dir FOLDER) and give it"
        if constants.HF_HUB_OFFLINE:
            return (
                f"{name} is not in {cache}, and HF_HUB_OFFLINE forbids to fetch it; unset that, or "
                f"{copy}"
            )
        return (
            f"{name} is not wholly in {cache}, and {hub} cannot be reached ({reason}); give the "
            f"same command again with a connection, or {copy}"
        )
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return (
                f"the Hub refuses this machine's token for {name}; log in again with "
                "`hf auth login`, or set HF_TOKEN to a token that may do this"
            )
        return f"the Hub answers with status {status} for {name} ({reason}); try again"
    if isinstance(error, OSError) and error.errno is not None:
        free = "free some space there" if error.errno in FULL else "make it writable"
        return (
            f"{name} cannot be kept in {cache} ({error.strerror}); {free}, or set HF_HOME to "
            "another folder"
        )
    return f"{name} cannot be fetched ({reason}); give the same command again"
