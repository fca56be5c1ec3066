"""Opening and writing model folders: a run, litebert's own layout, and Hugging Face's. A
fine-tuning run holds its result as a litebert model folder, `model/`. Checkpoints of TensorFlow 1
are opened and never written.

    run folder              litebert model folder        Hugging Face folder
      recipe.json             recipe.json                  config.json
      tokenizer/              tokenizer/                    tokenizer.json ...
      checkpoints/step-N/     model.safetensors            model.safetensors | pytorch_model.bin
        model.safetensors     task.json (fine-tuned)
                              reading.json (see below)
                              README.md                    README.md

reading.json stands beside a pretrained model whose classifiers read something else than [CLS], as
config.json said of the folder that it came from.

The kind of a folder is recognized, so no option names it. Nothing is made up silently: a head whose
weights are not in the folder is named in `LoadedModel.untrained` and in the notes, and stays out of
what is written from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from litebert import hub
from litebert.base import progress
from litebert.base.errors import ModelError, nearest
from litebert.base.json_reader import read_json
from litebert.config import Config, Pooling
from litebert.config.finetuning import HeadName
from litebert.config.serialization import to_json
from litebert.interop import files
from litebert.interop.cards import CARD, make_card, read_card
from litebert.interop.hf.reading import open_foreign, read_contents
from litebert.interop.loaded import (
    LoadedModel,
    Unread,
    another_tokenizer,
    choose_tokenizer,
    fresh_dense,
    note_untrained,
    require_fit,
)
from litebert.interop.names import FIT, WEIGHTS, holds_weights
from litebert.interop.onnx.exports import is_exported, read_exported
from litebert.interop.records import read_own_tokenizer, read_recipe, read_task, read_tokenizer
from litebert.interop.sentence_modules import carry_modules, encoder_folder, modules_note
from litebert.interop.tfidf import TFIDF, read_tfidf
from litebert.kernels.network import Stored
from litebert.kernels.packing import Dtype
from litebert.tokenizer import Tokenizer

_FINGERPRINT = "tokenizer_fingerprint"
"""The key of the tokenizer that weights know: in run.json, finetune.json or, of a model folder, in
the header of the weights.
"""
_READING = "reading.json"


@progress.task("loading the model")
def read_folder(
    path: str | Path,
    head: HeadName | None = None,
    *,
    lazy: bool = False,
    tokenizer: str | Path | None = None,
) -> LoadedModel:
    """Open a run folder, a litebert model folder, a Hugging Face folder or an original TensorFlow
    checkpoint; or a model of the Hub by its name, such as `hf:albert/albert-base-v2`.

    Args:
        head: of the latter two, what the classifier is for, where a config.json does not name the
            class.
        lazy: of a litebert folder with a task.json, read the weights only when `LoadedModel.model`
            is asked for.
        tokenizer: for a folder that has no tokenizer or one that cannot be read: a folder, *.model,
            vocab.txt or tokenizer.json.
    """
    loaded = _read_folder(hub.locate(path), head, tokenizer, lazy)
    if tokenizer is not None:
        require_fit(loaded, tokenizer)
    return loaded if lazy else replace(loaded, network=loaded.model)


def _read_folder(
    folder: Path, head: HeadName | None, tokenizer: str | Path | None, lazy: bool
) -> LoadedModel:
    if not folder.exists():
        from litebert.recipes import HUB_NAMES

        raise hub.refuse_missing(folder, HUB_NAMES.values())
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file; give the folder that contains it")
    for record, work, again in (
        ("finetune.json", "fine-tuning", "run its command again to continue it"),
        (FIT, "fit", "run its command again"),
    ):
        if (folder / record).is_file():
            if not (folder / "model").is_dir():
                raise ModelError(f"the {work} in {folder} is not finished; {again}")
            folder = folder / "model"
    if (folder / TFIDF).is_file():
        return read_tfidf(folder)
    if lazy and is_exported(folder):
        return read_exported(folder, tokenizer)
    if (folder / "recipe.json").is_file():
        return replace(_open_own(folder, tokenizer), card=read_card(folder))
    if not holds_weights(folder):
        from litebert.interop.tensorflow.checkpoints import index_of, read_tensorflow

        if (index := index_of(folder)) is not None:
            return read_tensorflow(folder, index, head, tokenizer)
    inner = folder if (folder / "config.json").is_file() else encoder_folder(folder)
    if inner != folder or (folder / "config.json").is_file():
        words = partial(choose_tokenizer, partial(read_tokenizer, inner), tokenizer, inner)
        opened = open_foreign(partial(read_contents, inner, head), words)
        notes = opened.notes if inner == folder else tuple(modules_note(folder))
        return replace(opened, path=folder, card=read_card(folder), notes=notes)
    if seeds := sorted(folder.glob("seed-*/finetune.json")):
        raise ModelError(
            f"{folder} holds several seeds; name one of them, such as {seeds[0].parent}"
        )
    raise ModelError(
        f"{folder} has no recipe.json (a run or a litebert model), no config.json (Hugging "
        "Face) and no .index file (TensorFlow); give the folder that has one"
    )


def save_litebert(
    loaded: LoadedModel,
    folder: str | Path,
    head: HeadName | None = None,
    beside: Callable[[Path], None] = lambda _: None,
) -> tuple[str, ...]:
    """Write a litebert model folder, all of it or nothing: all that the model has, whatever `head`,
    and a model card.

    Args:
        beside: writes what else belongs there into the folder, while it has another name.
    """
    with files.new_folder(Path(folder)) as partial:
        return write_litebert(loaded, partial, beside=beside)


def write_litebert(
    loaded: LoadedModel,
    folder: Path,
    dtype: Dtype | None = None,
    beside: Callable[[Path], None] = lambda _: None,
) -> tuple[str, ...]:
    """Write the files of a litebert model folder; with a `dtype`, of an export, whose weights are
    packed for answers."""
    skipped = tuple(f"objectives.{name}." for name in loaded.untrained)
    state = {
        name: array for name, array in loaded.read_weights().items() if not name.startswith(skipped)
    }
    facts = {} if loaded.tokenizer is None else {_FINGERPRINT: loaded.tokenizer.fingerprint}
    if dtype is None:
        files.write_arrays(folder / WEIGHTS, state, facts)
    else:
        files.write_packed(folder / WEIGHTS, state, dtype, facts)
    (folder / "recipe.json").write_text(to_json(loaded.config), encoding="utf-8")
    if loaded.task_record:
        files.write_settings(folder / "task.json", loaded.task_record)
    elif loaded.pooling != "cls":
        pooling = json.dumps({"pooling": loaded.pooling})
        (folder / _READING).write_text(f"{pooling}\n", encoding="utf-8")
    if loaded.tokenizer is not None:
        loaded.tokenizer.save(folder / "tokenizer")
    (folder / CARD).write_text(make_card(loaded), encoding="utf-8")
    beside(folder)
    return carry_modules(loaded, folder)


def config_of(path: str | Path) -> Config:
    """The config of a model folder, without its weights where it says so itself."""
    recipe = hub.locate(path) / "recipe.json"
    return read_recipe(recipe) if recipe.is_file() else read_folder(path).config


def _open_own(folder: Path, substitute: str | Path | None) -> LoadedModel:
    config = read_recipe(folder / "recipe.json")
    if (folder / "task.json").is_file():
        file = folder / WEIGHTS  # which an engine of one's own may do without
        task, packed = read_task(folder / "task.json"), files.packed_type(file)
        network = partial(_open, "open_tuned", folder, config, task)
        return LoadedModel(
            Unread(network, partial(_read, folder), file, task, packed),
            config,
            _own_tokenizer(folder, file, substitute),
            folder,
            labels=tuple(map(str, task.get("labels", []))),
            task=task,
            dense=task.get("dense") or fresh_dense(config),
            pooling=task.get("pooling", "cls"),
        )
    is_run = (folder / "run.json").is_file() or (folder / "checkpoints").is_dir()
    file = files.newest_weights(folder) if is_run else files.weights_file(folder)
    names = files.list_names(file)
    untrained = tuple(
        name
        for name, objective in config.build_objectives().items()
        if sum(objective.parameters().values())
        and not any(key.startswith(f"objectives.{name}.") for key in names)
    )
    network = partial(_open, "open_own", folder, config, file, untrained)
    return LoadedModel(
        Unread(network, partial(files.read_stored, file), file, dtype=files.packed_type(file)),
        config,
        _own_tokenizer(folder, file, substitute),
        folder,
        untrained=untrained,
        notes=tuple(note_untrained(untrained, config, folder)),
        dense=fresh_dense(config),
        pooling=_pooling(folder / _READING),
    )


def _open(kind: str, *arguments: Any) -> Any:
    from litebert.interop import networks  # which needs torch

    return getattr(networks, kind)(*arguments)


def _read(folder: Path) -> Stored:
    return files.read_stored(files.weights_file(folder))


def _pooling(path: Path) -> Pooling:
    pooling = read_json(path, ModelError).get("pooling", "cls") if path.is_file() else "cls"
    if pooling not in get_args(Pooling):
        raise ModelError(
            f"{path} has pooling {pooling!r}; {nearest(str(pooling), get_args(Pooling))}"
        )
    return cast(Pooling, pooling)


def _own_tokenizer(folder: Path, weights: Path, substitute: str | Path | None) -> Tokenizer | None:
    """The tokenizer of a model folder, which must be the one that its weights were trained with."""
    run = next(
        (file for file in (folder / "run.json", folder.parent / "finetune.json") if file.is_file()),
        None,
    )

    def read_fingerprint() -> object:  # None where the model was written without a tokenizer
        record = files.read_metadata(weights) if run is None else read_json(run, ModelError)
        return record.get(_FINGERPRINT)

    if (
        substitute is not None and (trained := read_fingerprint()) is not None
    ):  # it decides, whatever lies in the folder
        tokenizer = Tokenizer.load(substitute)
        if trained != tokenizer.fingerprint:
            raise another_tokenizer(substitute, folder)
        return tokenizer
    words = choose_tokenizer(lambda: read_own_tokenizer(folder), substitute, folder)
    if words is not None and (trained := read_fingerprint()) not in (None, words.fingerprint):
        raise ModelError(
            f"{folder / 'tokenizer'} is another tokenizer ({words.fingerprint[:12]}) than "
            "the one of the training, "
            f"which {run or weights} records ({str(trained)[:12]}); restore the original"
        )
    return words
