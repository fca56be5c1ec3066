"""Turn EncoderConfig into Hugging Face's config.json and back, and say which family can hold it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from litebert.base.errors import ConfigError, ModelError, nearest
from litebert.base.json_reader import read_json
from litebert.base.registry import FAMILIES
from litebert.config import Activation, EncoderConfig, Pooling
from litebert.config.encoder import LARGEST_SIZES
from litebert.config.finetuning import HeadName
from litebert.interop.hf.families import BERT, MODERNBERT, Family
from litebert.interop.hf.weights import groups_agree, slots
from litebert.interop.loaded import outputs_of
from litebert.tokenizer import Tokenizer


def whole(
    settings: Mapping[str, Any], key: str, source: str, least: int = 1, default: int | None = None
) -> int:
    """A whole number of at least `least`; required unless it has a default."""
    value = settings.get(key, default)
    if key not in settings and value is None:
        raise ModelError(f"{source} has no '{key}'; add it, as the weights were made with it")
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelError(
            f"{source} has {key}={value!r}; it must be a whole number of at least {least}"
        )
    return value


def number(settings: Mapping[str, Any], key: str, source: str, default: float) -> float:
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelError(f"{source} has {key}={value!r}; it must be a number")
    return float(value)


def read_longest(folder: Path, positions: int) -> int:
    """The length that `truncation=True` cuts to; by default all that there is room for."""
    file = folder / "tokenizer_config.json"
    longest = read_json(file, ModelError).get("model_max_length") if file.is_file() else None
    # Theirs say 1e30 where they do not know.
    return (
        int(min(longest, positions))
        if isinstance(longest, (int, float)) and longest >= 1
        else positions
    )


T = TypeVar("T")

_ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    # Other spellings of the same functions, read and never written.
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}
"""Values of hidden_act and litebert's activations, of which the first spelling is written."""

_SIZES = (
    "vocab_size",
    "hidden_size",
    "layers",
    "heads",
    "intermediate_size",
    "max_positions",
    "segment_types",
)
"""Fields of EncoderConfig with required whole-number keys; `embedding_size` with a map E -> H."""

STATIC = "model2vec"
"""The model_type of a static model."""
_NUMBERS = ("hidden_dropout", "attention_dropout", "norm_eps", "init_std")
"""Fields of EncoderConfig with keys that may be absent."""


def family_of(settings: Mapping[str, Any], source: str) -> Family:
    if settings.get("model_type") is None:
        raise ModelError(f"{source} has no 'model_type'; add it: {' or '.join(FAMILIES)}")
    name = str(settings["model_type"])
    if name == STATIC:
        raise ModelError(
            f"{source} is of a static model, a table of token vectors without a network; in "
            "Python litebert.load_static(FOLDER).encode(TEXTS) gives its vectors"
        )
    if name not in FAMILIES:
        raise ModelError(
            f"{source} has model_type '{name}', which cannot be read; {nearest(name, FAMILIES)}"
        )
    family: Family = FAMILIES[name]
    return family


def choose_family(
    config: EncoderConfig, has: Collection[str], dense: str | None = None
) -> tuple[Family, list[str]]:
    """The family that can hold a model, and notes on what has to be written differently. The model
    `has` parts of the tables beside the encoder, and the activation `dense` in its task head.
    """
    families: list[Family] = list(FAMILIES.values())
    able = (
        family
        for family in reversed(families)
        if not _unlike(family, config, has) and family.fits(config, has, dense)
    )
    family = next(able, None)
    if family is None:
        classic, modern = (_unlike(family, config, has) for family in (BERT, MODERNBERT))
        raise ModelError(
            f"Hugging Face has no class that computes this encoder: {BERT.class_of('backbone')} "
            f"and its relatives have no {', '.join(classic)}, and "
            f"{MODERNBERT.class_of('backbone')} has no {', '.join(modern)}; keep the model as a "
            "litebert folder, or change all fields of one list"
        )
    if dense not in (None, "tanh", family.dense):
        raise ModelError(
            f"Hugging Face has no class whose classifier computes dense={dense} on this encoder; "
            "keep the model as a litebert folder, or fine-tune one with dense=tanh"
        )
    if config.projects and not family.always_projects and not folds(config):
        if config.embedding_size == config.hidden_size:
            raise ModelError(
                f"{family.class_of('backbone')} has no map from embeddings to hidden states where "
                "E = H; train with encoder.always_project=False, or keep the model as a litebert "
                "folder"
            )
        if "projection" not in family.parts:
            raise ModelError(
                f"Hugging Face has no class with encoder.position_offset={config.position_offset} "
                f"and encoder.embedding_size {config.embedding_size} below encoder.hidden_size "
                f"{config.hidden_size}; keep the model as a litebert folder, or train with equal "
                "sizes or offset 0"
            )
    return family, _differences(family, config)


def _unlike(family: Family, config: EncoderConfig, has: Collection[str]) -> list[str]:
    without_meaning = set()
    if not config.projects:
        without_meaning.add("embedding_norm")  # before and after a map that is not there
    if "mlm" not in has:
        without_meaning.add("untied")
    if not {*has} & {"mlm", "classifier", "span"}:
        without_meaning.add("prediction")
    first = (
        ["encoder.global_every=0"]
        if family.windows and config.window and config.global_every == 0
        else []
    )
    return first + [
        f"encoder.{field}={getattr(config, field)}"
        for field, value in family.computes.items()
        if getattr(config, field) != value and field not in without_meaning
    ]


def folds(config: EncoderConfig) -> bool:
    """True where only a map E -> H follows the table, so that their product is one V x H table."""
    return config.projects and config.embedding_norm == "after"


def _differences(family: Family, config: EncoderConfig) -> list[str]:
    notes = []
    name = family.class_of("backbone")
    if config.segment_types == 0 and "segment_types" in family.keys:
        notes.append(f"the one row of token types is zero: the model has none, and {name} adds one")
    if family.always_projects and not config.projects:
        notes.append(
            "the map from embeddings to hidden states is written as an identity matrix: E = H "
            f"needs none, and {name} always has one"
        )
    if folds(config):
        notes.append(
            f"the table of embeddings and its map are written as their product, one table of width "
            f"{config.hidden_size}: {name} has no map"
        )
    copied = f"written {config.layers} times, one copy per layer: {name}"
    if not family.grouped:
        if config.sharing != "none" and config.layers > 1:
            notes.append(f"the blocks that layers share are {copied} shares none")
    elif config.sharing in ("attention", "feedforward"):
        other = "feed-forward" if config.sharing == "attention" else "attention"
        notes.append(
            f"the shared {config.sharing} block is {copied} cannot share it while every "
            f"layer has its own {other} block"
        )
    elif config.sharing == "groups" and not groups_agree(config.layers, config.groups):
        notes.append(
            f"the {config.groups} groups are written as {config.layers} layers with copied "
            f"weights: {name} would round {config.layers} layers to other groups"
        )
    return notes


def encoder_config(
    family: Family, settings: Mapping[str, Any], parts: Collection[str], source: str
) -> EncoderConfig:
    """Read the encoder's config from a config.json of a folder that holds `parts` of the family's
    table. Keys that do not change the computation are not looked at.
    """
    fixed = dict(family.fixed)
    for part in parts:
        fixed.update(family.fixed_by_part.get(part, {}))
    for key, value in fixed.items():
        if settings.get(key, value) != value:
            raise ModelError(
                f"{source} has {key}={settings[key]!r}; only {value!r} can be computed"
            )
    values: dict[str, Any] = {**family.computes}
    for field, key in _sizes(family).items():
        values[field] = whole(settings, key, source)
        if values[field] > LARGEST_SIZES[field]:  # before anything is counted up to it
            raise ModelError(
                f"{source} has {key}={values[field]}; it must be at most {LARGEST_SIZES[field]}"
            )
    values.setdefault("embedding_size", values["hidden_size"])
    if family.offset_positions:
        (_, pad_id) = family.token_ids["pad_token_id"]
        values["position_offset"] = (
            whole(settings, "pad_token_id", source, least=0, default=pad_id) + 1
        )
        values["max_positions"] -= values["position_offset"]
    for field in _NUMBERS:
        values[field] = number(settings, family.keys[field], source, family.absent[field])
    if family.grouped:
        layers, groups = values["layers"], whole(settings, "num_hidden_groups", source, default=1)
        if 1 < groups < layers and not groups_agree(layers, groups):
            raise ModelError(
                f"{source} has num_hidden_groups={groups} for num_hidden_layers={layers}, which "
                "transformers rounds to groups of uneven place; only i * groups // layers can be "
                "computed"
            )
        values["sharing"] = "all" if groups == 1 else "none" if groups == layers else "groups"
        if values["sharing"] == "groups":
            values["groups"] = groups
    else:
        values["sharing"] = "none"
    if family.windows:
        base = _base(settings, _GLOBAL, source)
        every = _every(settings, values["layers"], source)
        values["rotary_base"] = base
        if every > 1 and values["layers"] > 1:  # else nothing is local
            values["window"] = whole(settings, "local_attention", source, 2, _WINDOW)
            values["global_every"] = every
            values["window_rotary_base"] = _base(settings, _LOCAL, source)
    if family.biases:
        keys = family.biases if parts else family.biases[:-1]
        biases = {key: settings.get(key, False) for key in keys}
        for key, value in biases.items():
            if not isinstance(value, bool):
                raise ModelError(f"{source} has {key}={value!r}; it must be true or false")
        if len({*biases.values()}) > 1:
            listed = ", ".join(f"{key}={value}" for key, value in biases.items())
            raise ModelError(
                f"{source} has {listed}; only all of them True or all of them False can be computed"
            )
        values["bias"] = any(biases.values())
    values["untied"] = unties(family, settings, parts)
    values["activation"] = _activation(family, settings, parts, source)
    try:
        return EncoderConfig(
            always_project=family.always_projects
            and values["embedding_size"] == values["hidden_size"],
            pooler="pooler" in parts,
            init="normal",
            **values,
        )
    except ConfigError as error:
        raise ModelError(f"{source}: {error}") from None


def unties(family: Family, settings: Mapping[str, Any], parts: Collection[str]) -> bool:
    """True where a config.json gives a head before the vocabulary, if that exists, a table of its
    own. Classes that must be tied here read the same key; where weights are read, a table that
    differs is then refused.
    """
    able = any(names.untied for part in parts for names in family.parts[part])
    return able and settings.get("tie_word_embeddings", True) is False


def _sizes(family: Family) -> dict[str, str]:
    sizes = {field: family.keys[field] for field in _SIZES if field in family.keys}
    return {**sizes, "embedding_size": "embedding_size"} if "projection" in family.parts else sizes


def pooling_of(family: Family, settings: Mapping[str, Any], source: str) -> Pooling:
    """Read what classifiers of texts read."""
    named = settings.get(family.pooling, "cls") if family.pooling else "cls"
    return _look_up({name: name for name in get_args(Pooling)}, family.pooling, named, source)


def _activation(
    family: Family, settings: Mapping[str, Any], parts: Collection[str], source: str
) -> Activation:
    key = family.keys["activation"]
    activation = _look_up(_ACTIVATIONS, key, settings.get(key, family.absent["activation"]), source)
    if activation != "gelu" and (bound := {*family.gelu_parts} & {*parts}):
        raise ModelError(
            f"{source} has {key}={settings[key]!r}, but the head of {family.class_of(bound.pop())} "
            f"computes gelu whatever {key} says; only {key}='gelu' can be computed"
        )
    for other, field in family.repeats.items():
        named = settings.get(other, family.absent[field])
        if (
            field == "activation"
            and parts
            and _look_up(_ACTIVATIONS, other, named, source) != activation
        ):
            raise ModelError(
                f"{source} has {other}={named!r} and {key}={settings.get(key, 'gelu')!r}; only one "
                "activation for both can be computed"
            )
    return activation


def _look_up(table: Mapping[str, T], key: str, name: object, source: str) -> T:
    if str(name) not in table:
        raise ModelError(f"{source} has {key}={name!r}; {nearest(str(name), table)}")
    return table[str(name)]


def problem_of(settings: Mapping[str, Any], head: HeadName, source: str) -> dict[str, str]:
    """`problem` as a task.json has it, from a known problem_type of a config.json, if any."""
    named, types = settings.get("problem_type"), _problem_types(head)
    if not types or named is None:
        return {}
    return {"problem": _look_up(types, "problem_type", named, source)}


def _problem_types(head: HeadName) -> dict[str, str]:
    # Reversed: what is built on another output does not take its place.
    named = reversed(outputs_of(head).items())
    return {output.problem_type: name for name, output in named if output.problem_type}


def padding_id(config: EncoderConfig, tokenizer: Tokenizer | None) -> int:
    """The pad_token_id of a config.json whose positions begin after it."""
    return config.position_offset - 1 if tokenizer is None else tokenizer.pad_id


def settings_of(
    family: Family,
    config: EncoderConfig,
    head: HeadName,
    tokenizer: Tokenizer | None,
    labels: Sequence[str],
    dropout: float,
    problem: str | None = None,
    pooling: Pooling = "cls",
) -> dict[str, Any]:
    """The config.json of a model: `labels` are written where the head has classes; `problem` is the
    name of its output, and `pooling` what a classifier of texts reads.
    """
    activation = next(name for name, local in _ACTIVATIONS.items() if local == config.activation)
    settings: dict[str, Any] = {
        "architectures": [family.class_of(head)],
        "model_type": family.model_type,
        "dtype": "float32",
        "tie_word_embeddings": not unties(
            family, {"tie_word_embeddings": not config.untied}, family.heads[head]
        ),
        family.keys["activation"]: activation,
        family.classifier_dropout: dropout,
    }
    for part in family.heads[head]:
        settings.update(family.fixed_by_part.get(part, {}))
    settings.update({key: getattr(config, field) for field, key in _sizes(family).items()})
    if "segment_types" in family.keys:
        settings[family.keys["segment_types"]] = max(1, config.segment_types)
    settings.update({family.keys[field]: getattr(config, field) for field in _NUMBERS})
    if family.windows:
        settings |= {
            "global_attn_every_n_layers": config.global_every,
            "local_attention": config.window or _WINDOW,
            "global_rope_theta": config.rotary_base,
            "local_rope_theta": config.window_rotary_base,
        }
    settings.update({key: settings[family.keys[field]] for key, field in family.repeats.items()})
    settings.update(dict.fromkeys(family.biases, config.bias))
    if family.pooling:
        settings[family.pooling] = pooling
    settings.update(
        {
            key: getattr(tokenizer, name, default)
            for key, (name, default) in family.token_ids.items()
        }
    )
    if family.offset_positions:
        pad_id = padding_id(config, tokenizer)
        settings["pad_token_id"] = pad_id
        settings[family.keys["max_positions"]] += pad_id + 1
    if family.grouped:
        settings.update(num_hidden_groups=len(slots(family, config)), inner_group_num=1)
    if any(output.classes is None for output in outputs_of(head).values()):
        settings["id2label"] = {str(index): label for index, label in enumerate(labels)}
        settings["label2id"] = {label: index for index, label in enumerate(labels)}
    types = {output: name for name, output in reversed(_problem_types(head).items())}
    if problem in types:
        settings["problem_type"] = types[problem]
    return settings


# ModernBERT's part: transformers 4.48 wrote `global_attn_every_n_layers`, `global_rope_theta` and
# `local_rope_theta`; version 5 writes the kind of every layer (`layer_types`) and a table for each
# kind (`rope_parameters`). Both are read. The older keys are written, because every version and
# other programs read those.
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_EVERY, _WINDOW = 3, 128
_BASES = {_GLOBAL: ("global_rope_theta", 160000.0), _LOCAL: ("local_rope_theta", 10000.0)}
"""The key of the rotary base of each kind of layer in older files, and its default."""


def _every(settings: Mapping[str, Any], layers: int, source: str) -> int:
    """Every how many layers one reads the whole text, the first among them."""
    types = settings.get("layer_types")
    if types is None:
        return whole(settings, "global_attn_every_n_layers", source, default=_EVERY)
    if not isinstance(types, list) or len(types) != layers:
        raise ModelError(
            f"{source} has layer_types={types!r}; it must list the kinds of all {layers} layers"
        )
    every = next((i for i in range(1, layers) if types[i] == _GLOBAL), max(layers, 2))
    if types != [_LOCAL if i % every else _GLOBAL for i in range(layers)]:
        raise ModelError(
            f"{source} has layer_types={types!r}; only {_GLOBAL} in the first layer and in every "
            f"n-th after it, and {_LOCAL} in all others, can be computed"
        )
    return every


def _base(settings: Mapping[str, Any], kind: str, source: str) -> float:
    key, default = _BASES[kind]
    tables = settings.get("rope_parameters")
    if tables is not None and not isinstance(tables, Mapping):
        raise ModelError(
            f"{source} has rope_parameters={tables!r}; it must have a table for {_GLOBAL} "
            f"and {_LOCAL}"
        )
    if unknown := sorted(set(map(str, tables or ())) - {_GLOBAL, _LOCAL}):
        raise ModelError(
            f"{source} has rope_parameters.{unknown[0]}; it must have tables for {_GLOBAL} "
            f"and {_LOCAL} alone"
        )
    table = (tables or {}).get(kind)
    if table is not None and not isinstance(table, Mapping):
        raise ModelError(
            f"{source} has rope_parameters.{kind}={table!r}; it must be a table with rope_theta"
        )
    rope_type = (table or {}).get("rope_type", "default")
    if rope_type != "default":
        raise ModelError(
            f"{source} has rope_parameters.{kind}.rope_type={rope_type!r}; only 'default' "
            "can be computed"
        )
    if table is not None and "rope_theta" in table:
        return number(table, "rope_theta", f"{source}, rope_parameters.{kind},", default)
    if kind == _LOCAL and settings.get(key, default) is None:  # 4.48: as in the other layers
        return _base(settings, _GLOBAL, source)
    return number(settings, key, source, default)
