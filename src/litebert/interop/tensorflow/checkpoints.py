"""The original TensorFlow 1 checkpoints of BERT, ALBERT and ELECTRA, and ALBERT's folders from
TF-Hub.

Their variables get the names that `transformers` has for them, and are then read as a Hugging Face
folder is. Kernels stand as (in, out) there and are transposed. The optimizer's variables are left
out; one that is not understood is an error, so nothing is lost in silence.

    BERT, ELECTRA                     ALBERT                          ALBERT from TF-Hub
      bert_config.json                  albert_config.json              assets/albert_config.json
      vocab.txt                         30k-clean.model                 assets/30k-clean.model
      bert_model.ckpt.index             model.ckpt-best.index           variables/variables.index
      bert_model.ckpt.data-00000-of-... model.ckpt-best.data-00000-...  variables/variables.data-...

ELECTRA's checkpoints came without a config file, and hold the generator beside the discriminator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ModelError
from litebert.base.json_reader import read_json
from litebert.config.finetuning import HeadName
from litebert.interop.files import to_weights
from litebert.interop.hf.reading import open_foreign, translate
from litebert.interop.loaded import Contents, LoadedModel, choose_tokenizer
from litebert.interop.tensorflow.bundle import Bundle
from litebert.recipes import PUBLISHED, RECIPES
from litebert.tokenizer import Tokenizer

_LEAVES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "output_weights": "weight",
    "output_bias": "bias",
    **{
        f"{kind}_embeddings": f"{kind}_embeddings.weight"
        for kind in ("word", "position", "token_type")
    },
}
"""The ends of the names of variables, and of the parameters that they become."""
_OPTIMIZER = re.compile(
    r"global_step|beta[12]_power|"
    r"(?:.*/)?(?:(?:adam|lamb)_[mv]|(?:Adam|LAMB|AdamWeightDecay)\w*)(?:/.*)?"
)
_NUMBER = re.compile(r"(?<![a-z_])(layer|group)_(\d+)(?=/)")
_SHOWN = 5


def _layers(prefix: str, name: str) -> dict[str, str]:
    """The modules of BERT's layers, whose names differ in what divides them alone."""
    modules = (
        "attention/self/query",
        "attention/self/key",
        "attention/self/value",
        "attention/output/dense",
        "attention/output/LayerNorm",
        "intermediate/dense",
        "output/dense",
        "output/LayerNorm",
    )
    return {
        f"{prefix}/encoder/layer_{{}}/{module}": (
            f"{name}.encoder.layer.{{}}.{module.replace('/', '.')}"
        )
        for module in modules
    }


def _embeddings(name: str) -> dict[str, str]:
    return {
        f"{name}/embeddings": f"{name}.embeddings",
        f"{name}/embeddings/LayerNorm": f"{name}.embeddings.LayerNorm",
    }


_CLASSIFIERS = {"": "classifier", "cls/squad": "qa_outputs"}
_SHARED = "bert/encoder/transformer/group_{}/inner_group_0"
_GROUP = "albert.encoder.albert_layer_groups.{}.albert_layers.0"

NAMES: Mapping[str, Mapping[str, str]] = {
    "albert": {
        "bert/embeddings": "albert.embeddings",
        "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
        "bert/encoder/embedding_hidden_mapping_in": "albert.encoder.embedding_hidden_mapping_in",
        f"{_SHARED}/attention_1/self/query": f"{_GROUP}.attention.query",
        f"{_SHARED}/attention_1/self/key": f"{_GROUP}.attention.key",
        f"{_SHARED}/attention_1/self/value": f"{_GROUP}.attention.value",
        f"{_SHARED}/attention_1/output/dense": f"{_GROUP}.attention.dense",
        f"{_SHARED}/LayerNorm": f"{_GROUP}.attention.LayerNorm",
        f"{_SHARED}/ffn_1/intermediate/dense": f"{_GROUP}.ffn",
        f"{_SHARED}/ffn_1/intermediate/output/dense": f"{_GROUP}.ffn_output",
        f"{_SHARED}/LayerNorm_1": f"{_GROUP}.full_layer_layer_norm",
        "bert/pooler/dense": "albert.pooler",
        "cls/predictions/transform/dense": "predictions.dense",
        "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
        "cls/predictions": "predictions",
        "cls/seq_relationship": "sop_classifier.classifier",
        **_CLASSIFIERS,
    },
    "bert": {
        **_embeddings("bert"),
        **_layers("bert", "bert"),
        "bert/pooler/dense": "bert.pooler.dense",
        "cls/predictions/transform/dense": "cls.predictions.transform.dense",
        "cls/predictions/transform/LayerNorm": "cls.predictions.transform.LayerNorm",
        "cls/predictions": "cls.predictions",
        "cls/seq_relationship": "cls.seq_relationship",
        **_CLASSIFIERS,
    },
    "electra": {
        **_embeddings("electra"),
        **_layers("electra", "electra"),
        **_layers("generator", "generator"),
        "electra/embeddings_project": "electra.embeddings_project",
        "generator/embeddings_project": "generator.embeddings_project",
        "generator_predictions/dense": "generator_predictions.dense",
        "generator_predictions/LayerNorm": "generator_predictions.LayerNorm",
        "generator_predictions": "generator_lm_head",
        "discriminator_predictions/dense": "discriminator_predictions.dense",
        "discriminator_predictions/dense_1": "discriminator_predictions.dense_prediction",
    },
}
"""A module's name there and in `transformers`, by family; `{}` numbers a layer or a group."""


def index_of(folder: Path) -> Path | None:
    """The index file of the TensorFlow checkpoint in a folder; None where it has none."""
    indexes = sorted(folder.glob("*.index")) or sorted(
        (folder / "variables").glob("variables.index")
    )
    if len(indexes) < 2:
        return indexes[0] if indexes else None
    record = folder / "checkpoint"
    text = record.read_text("utf-8", "replace") if record.is_file() else ""
    named = re.search(r'^model_checkpoint_path:\s*"(?:[^"]*/)?([^"/]+)"', text, re.MULTILINE)
    if named is None or folder / f"{named[1]}.index" not in indexes:
        raise ModelError(
            f"{folder} holds several checkpoints, such as {indexes[0].name} and {indexes[1].name}; "
            "keep the files of one of them in a folder of its own"
        )
    return folder / f"{named[1]}.index"


def read_tensorflow(
    folder: Path, index: Path, head: HeadName | None = None, tokenizer: str | Path | None = None
) -> LoadedModel:
    """Open a TensorFlow 1 checkpoint; `head` is what its classifier is for, where names leave it
    open.
    """
    words = partial(choose_tokenizer, partial(_tokenizer, folder), tokenizer, folder)
    opened = open_foreign(partial(_read_contents, folder, index, head), words)
    if opened.tokenizer is not None:
        return opened
    note = f"{folder} has neither a vocab.txt nor a .model file, so the model has no tokenizer"
    return replace(opened, notes=(*opened.notes, note))


def _read_contents(folder: Path, index: Path, head: HeadName | None) -> Contents:
    bundle = Bundle.open(index)
    family, wanted, left_out = _match_variables(bundle)
    tensors = {}
    for name, (target, turned) in wanted.items():
        array = to_weights([bundle.read(name)], index)[name]
        tensors[target] = np.ascontiguousarray(array.T) if turned and array.ndim == 2 else array
    notes = [f"{left_out} variables of the optimizer in {index} are left out"] if left_out else []
    config_files = [
        path
        for location in _list_folders(folder)
        for path in sorted(location.glob("*config*.json"))
        if path.name != "tokenizer_config.json"
    ]
    config_file = _take_one(folder, "config files", config_files)
    if config_file is not None:
        settings = {**read_json(config_file, ModelError), "model_type": family}
    else:
        settings = _settings_by_sizes(family, tensors, index)
        shape = ", ".join(
            f"{key}={settings[key]}" for key in ("num_hidden_layers", "num_attention_heads")
        )
        notes.append(
            f"{folder} has no config file; it is read with {shape}, as in the published models"
        )
    _complete(family, settings, tensors)
    contents = translate(folder, config_file or index, settings, index, tensors, head)
    return replace(contents, notes=(*notes, *contents.notes))


def _match_variables(bundle: Bundle) -> tuple[str, dict[str, tuple[str, bool]], int]:
    bare = {name: name.removeprefix("module/") for name in bundle.entries}
    weights = [name for name in bare if not _OPTIMIZER.fullmatch(bare[name])]
    if any(name.endswith("/.ATTRIBUTES/VARIABLE_VALUE") for name in weights):
        raise ModelError(
            f"{bundle.index} is a checkpoint of TensorFlow 2, which has other names; take the "
            "model's release for TensorFlow 1"
        )
    shared = any(_NUMBER.sub(r"\1_{}", bare[name]).startswith(_SHARED) for name in weights)
    family = (
        "albert"
        if shared
        else "electra"
        if any(bare[name].startswith("electra/") for name in weights)
        else "bert"
    )
    wanted: dict[str, tuple[str, bool]] = {}
    strange, taken = [], set()
    for name in weights:
        target = _target(NAMES[family], bare[name])
        if target is None or target in taken:
            strange.append(name)
        else:
            wanted[name] = target, name.endswith("kernel")
            taken.add(target)
    if strange:
        more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
        raise ModelError(
            f"{bundle.index} holds variables that no part of {family} has: "
            f"{', '.join(strange[:_SHOWN])}{more}; give a checkpoint of BERT, ALBERT or ELECTRA as "
            "their own code writes it"
        )
    return family, wanted, len(bundle.entries) - len(weights)


def _target(names: Mapping[str, str], name: str) -> str | None:
    number = match[2] if (match := _NUMBER.search(name)) else ""
    module, _, leaf = _NUMBER.sub(r"\1_{}", name).rpartition("/")
    if module not in names or leaf not in _LEAVES:
        return None
    return f"{names[module].format(number)}.{_LEAVES[leaf]}"


def _list_folders(folder: Path) -> tuple[Path, Path]:
    return folder, folder / "assets"


def _take_one(folder: Path, kind: str, files: list[Path]) -> Path | None:
    if len(files) > 1:
        raise ModelError(
            f"{folder} holds several {kind}, such as {files[0].name} and {files[1].name}; "
            "keep the one that the checkpoint was trained with"
        )
    return files[0] if files else None


def _settings_by_sizes(
    family: str, tensors: Mapping[str, NDArray[np.float32]], index: Path
) -> dict[str, Any]:
    """Compose the config file of a published model from the sizes of its weights. Heads are 64 wide
    in BERT and ELECTRA; ALBERT's weights show neither heads nor layers, so its recipes do.
    """
    backbone = f"{family}."
    sizes = {
        name.removeprefix(backbone): tensor.shape
        for name, tensor in tensors.items()
        if name.startswith(backbone)
    }
    layers = {match[1] for name in sizes if (match := re.match(r"encoder\.layer\.(\d+)\.", name))}
    first = (
        "encoder.albert_layer_groups.0.albert_layers.0" if family == "albert" else "encoder.layer.0"
    )
    inner = "ffn" if family == "albert" else "intermediate.dense"
    try:
        vocab_size, width = sizes["embeddings.word_embeddings.weight"]
        intermediate, hidden = sizes[f"{first}.{inner}.weight"]
        settings = {
            "model_type": family,
            "vocab_size": vocab_size,
            "embedding_size": width,
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": len(layers),
            "num_attention_heads": max(1, hidden // 64),
            "hidden_act": "gelu",
            "max_position_embeddings": sizes["embeddings.position_embeddings.weight"][0],
            "type_vocab_size": sizes["embeddings.token_type_embeddings.weight"][0],
        }
    except (KeyError, ValueError, IndexError):
        raise ModelError(
            f"{index} lacks a table of embeddings or the first layer; copy the checkpoint again"
        ) from None
    if family == "albert":
        published = [RECIPES[name]().encoder for name in PUBLISHED if name.startswith("albert-")]
        shape = {
            (config.hidden_size, config.intermediate_size): config for config in published
        }.get((hidden, intermediate))
        if shape is None:
            raise ModelError(
                f"{index} has no albert_config.json next to it and no published size; put the "
                "config there that it was trained with"
            )
        settings |= {"num_hidden_layers": shape.layers, "num_attention_heads": shape.heads}
    return settings


def _complete(
    family: str, settings: dict[str, Any], tensors: dict[str, NDArray[np.float32]]
) -> None:
    """Say what their code does whatever the config file says, in the words of `transformers`."""
    if family == "albert":
        if settings.get("hidden_act") == "gelu":  # their one gelu is the approximation by tanh
            settings["hidden_act"] = "gelu_new"
        project = "albert.encoder.embedding_hidden_mapping_in"
        if (
            settings.get("embedding_size") == settings.get("hidden_size")
            and f"{project}.weight" not in tensors
        ):
            table = tensors.get("albert.embeddings.word_embeddings.weight")
            if (
                table is not None and table.ndim == 2
            ):  # without a map, which transformers always has
                tensors[f"{project}.weight"] = np.eye(table.shape[1], dtype=np.float32)
                tensors[f"{project}.bias"] = np.zeros(table.shape[1], np.float32)
    elif (
        family == "electra" and "embedding_size" not in settings
    ):  # an option of their command, not of the config
        table = tensors.get("electra.embeddings.word_embeddings.weight")
        settings["embedding_size"] = table.shape[-1] if table is not None and table.ndim else None


def _tokenizer(folder: Path) -> Tokenizer | None:
    files = [
        path
        for location in _list_folders(folder)
        for path in (*sorted(location.glob("*.model")), location / "vocab.txt")
    ]
    file = _take_one(folder, "vocabularies", [path for path in files if path.is_file()])
    return None if file is None else Tokenizer.load(file)
