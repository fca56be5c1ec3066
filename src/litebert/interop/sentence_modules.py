"""The files of a sentence-transformers folder beside its encoder: the pooling and other modules
that follow it.

Of a model whose states are vectors (tasks/similarity.py) they are written. Those of a foreign
folder are read for vectors, and copied when its encoder is written, so that the folder converts to
litebert and back without loss.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from litebert.base.errors import ConfigError, ModelError
from litebert.base.json_reader import parse_json, read_regular
from litebert.base.storage import is_inside
from litebert.interop.files import read_weights, write_arrays, write_settings
from litebert.interop.loaded import LoadedModel, VectorMap
from litebert.interop.names import PICKLED, WEIGHTS

if TYPE_CHECKING:
    from litebert.config import Pooling

log = logging.getLogger("litebert")

L = TypeVar("L", bound=LoadedModel)
LIST = "modules.json"
_LENGTHS, _OPTIONS = "sentence_bert_config.json", "config_sentence_transformers.json"
_KNOWN = {
    _LENGTHS: (
        *("max_seq_length", "do_lower_case", "transformer_task", "modality_config"),
        "module_output_name",
    ),
    _OPTIONS: (
        *("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"),
        "truncate_dim",
    ),
}
"""The settings of these files that are applied, or say what litebert does anyway."""
_POOLING = "1_Pooling"
DENSE = "2_Dense"
"""The folder of a map in a folder that litebert writes, whoever opens it."""
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
_ACTIVATIONS = {"Identity": False, "Tanh": True}
_POOLINGS: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls"}
_FORMER = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The key of each mode in files of sentence-transformers up to 5.2, each true or false."""


class _Folder:
    """The files of a folder that say how vectors are made, each parsed when it is first asked for.
    The encoder of sentence-transformers before version 2 is in a folder within, `0_Transformer`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.has_modules = path, (path / LIST).is_file()

    @cached_property
    def modules(self) -> list[Any]:
        modules = _parse_file(self.path / LIST) if self.has_modules else []
        return modules if isinstance(modules, list) else []

    @cached_property
    def inner(self) -> Path:
        first = next(iter(self.modules), None)
        path = first.get("path") if isinstance(first, dict) else None
        has_encoder = any((self.path / name).is_file() for name in ("config.json", "recipe.json"))
        if has_encoder or not isinstance(path, str) or not is_inside(path):
            return self.path
        inner = self.path / path
        return inner if inner.is_dir() and not inner.is_symlink() else self.path

    def place(self, name: str) -> Path:
        return (self.inner if name == _LENGTHS else self.path) / name

    @cached_property
    def lengths(self) -> dict[str, Any]:
        return _json(self.place(_LENGTHS))

    @cached_property
    def options(self) -> dict[str, Any]:
        return _json(self.place(_OPTIONS))

    @cached_property
    def files(self) -> list[str]:
        """The files and folders that belong to the modules."""
        if not self.has_modules:
            return []
        paths = [module.get("path") for module in self.modules if isinstance(module, dict)]
        # An empty path is the folder itself, where the encoder is; nothing outside it is copied.
        folders = {
            path: self.path / path for path in paths if isinstance(path, str) and is_inside(path)
        }
        return [
            LIST,
            *(name for name in _KNOWN if self.place(name).is_file()),
            *(
                name
                for name, inside in folders.items()
                if inside.is_dir() and not inside.is_symlink() and inside != self.inner
            ),
        ]


def encoder_folder(folder: Path) -> Path:
    """Where the encoder is in a folder of sentence-transformers, or in any other."""
    return _Folder(folder).inner


class VectorSettings(NamedTuple):
    """How a model makes a vector of a text."""

    pooling: Pooling = "mean"
    normalized: bool = False
    """True where vectors have unit length."""
    length: int | None = None
    """Tokens a text may have, special ones included, where the folder says it."""
    map: VectorMap | None = None
    map_folder: str = DENSE
    """The map's folder in the folder of the model."""
    sizes: tuple[int, ...] = ()
    """The smaller sizes for which the vectors were trained, in their first numbers."""
    size: int | None = None
    """Numbers that are left of each vector at the very end (`truncate_dim`); None leaves all."""
    lowers: bool = False
    """True where texts are put into lower case before the tokenizer (`do_lower_case`)."""
    prompts: Mapping[str, str] = MappingProxyType({})
    """Texts that stand before a text, by name."""
    default_prompt: str | None = None
    """The name of the prompt where none is named."""

    def count_numbers(self, hidden_size: int) -> int:
        width = hidden_size if self.map is None else len(self.map.bias)
        return width if self.size is None else min(width, self.size)

    def get_prompt(self, name: str | None) -> str:
        """Return the prompt with a name, by default the folder's own, or none."""
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            has = f"choose one of: {', '.join(self.prompts)}" if self.prompts else "it has none"
            raise ConfigError(f"the model has no prompt {name!r}; {has}")
        return self.prompts[name]


def vector_settings(loaded: LoadedModel) -> VectorSettings | None:
    """Read the vector settings of a model's task, or of the modules of its folder; None if none."""
    folder = _Folder(loaded.path)
    if "vectors" in loaded.task:
        vectors = loaded.task["vectors"]
        pooling = str(vectors.get("pooling")) if isinstance(vectors, dict) else ""
        if pooling not in _POOLINGS:
            raise ModelError(
                f"{loaded.path / 'task.json'} has vectors {vectors!r}; give them the pooling mean "
                "or cls"
            )
        unit, length = bool(vectors.get("normalized")), loaded.task.get("length")
        settings = VectorSettings(_POOLINGS[pooling], unit, length, read_vector_map(loaded))
    elif folder.has_modules:
        settings = _read_modules(folder, loaded.vector_map)
    else:
        return None

    # What sentence-transformers applies before and after the modules.
    file, options = folder.place(_OPTIONS), folder.options
    prompts, default = options.get("prompts") or {}, options.get("default_prompt_name")
    size = options.get("truncate_dim")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ModelError(f"{file} has prompts {prompts!r}; write a text for each name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise ModelError(
            f"{file} has the default_prompt_name {default!r}, which prompts does not have; add it"
        )
    if size is not None and (type(size) is not int or size < 1):
        raise ModelError(f"{file} has truncate_dim {size!r}; write a whole number above 0")
    width = loaded.config.encoder.hidden_size if settings.map is None else len(settings.map.bias)
    return settings._replace(
        size=size,
        lowers=folder.lengths.get("do_lower_case") is True,
        prompts=prompts,
        default_prompt=default,
        sizes=read_sizes(loaded, width),
    )


def _read_modules(folder: _Folder, replacement: VectorMap | None) -> VectorSettings:
    """What the modules do; `replacement` is the map, if it differs from that of the folder."""
    path, alone = folder.path, "give --pooling mean to take vectors of the encoder alone"
    modules = [module for module in folder.modules if isinstance(module, dict)]
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    if unknown := next((kind for kind in kinds if kind not in _KINDS), None):
        raise ModelError(
            f"{path / LIST} lists a module {unknown}, which litebert does not compute; {alone}"
        )
    if kinds != [kind for kind in _KINDS if kind in kinds]:
        raise ModelError(
            f"{path / LIST} lists {', '.join(kinds)}, and litebert computes {', '.join(_KINDS)} "
            f"once each and in this order; {alone}"
        )
    places = {kind: str(module.get("path")) for module, kind in zip(modules, kinds, strict=True)}
    length = folder.lengths.get("max_seq_length")
    if length is None:  # as of version 6
        length = _json(folder.inner / "tokenizer_config.json").get("model_max_length")

    file = path / places.get("Pooling", _POOLING) / "config.json"
    pooling, prompts = _json(file), folder.options.get("prompts")
    leaves_out = pooling.get("include_prompt") is False
    if leaves_out and isinstance(prompts, dict) and any(prompts.values()):
        raise ModelError(
            f"{file} leaves the prompt out of the pooling (include_prompt), which litebert does "
            f"not compute; {alone}"
        )
    former = [mode for mode, key in _FORMER.items() if pooling.get(key)]
    named = pooling.get("pooling_mode") or former or "mean"
    modes = [named] if isinstance(named, str) else list(named)
    if len(modes) > 1 or modes[0] not in _POOLINGS:
        raise ModelError(
            f"{file} asks for the pooling {' + '.join(map(str, modes))}, which litebert does not "
            "compute; give --pooling mean or cls"
        )
    map_ = replacement
    if map_ is None and "Dense" in places:
        map_ = read_dense(path, places["Dense"])
    return VectorSettings(
        _POOLINGS[modes[0]],
        "Normalize" in kinds,
        length if isinstance(length, int) and 2 < length < 1_000_000 else None,
        map_,
        places.get("Dense", DENSE),
    )


def read_vector_map(loaded: LoadedModel) -> VectorMap | None:
    """Read the map that a model's task.json names, or take the one that replaces it in memory."""
    vectors = loaded.task.get("vectors")
    name = vectors.get("map") if isinstance(vectors, Mapping) else None
    if loaded.vector_map is not None or name is None:
        return loaded.vector_map
    return read_dense(loaded.path, name)


def truncate_vectors(
    settings: VectorSettings, hidden_size: int, size: int, folder: Path
) -> VectorSettings:
    """Return settings with the first `size` numbers of a model's vectors, of unit length where
    these are normalized, by a map that leaves out the others.
    """
    map_ = settings.map
    width = hidden_size if map_ is None else len(map_.bias)
    size = require_size(size, width, folder)
    if size == width:
        return settings
    if size not in settings.sizes:
        sizes = ", ".join(map(str, settings.sizes)) or "no smaller size"
        log.info(
            f"the vectors of {folder} are cut to {size} numbers, and were trained for {sizes}; "
            "finetune --matryoshka trains sizes"
        )
    if map_ is None:
        map_ = VectorMap(np.eye(hidden_size, dtype=np.float32), np.zeros(hidden_size, np.float32))
    cut = VectorMap(map_.weight[:size], map_.bias[:size], map_.tanh)
    return settings._replace(
        map=cut, sizes=tuple(smaller for smaller in settings.sizes if smaller < size)
    )


def require_size(size: int, width: int, folder: Path, most: int | None = None) -> int:
    """Return the size of vectors that a person names: at most `most`, by default their width."""
    most = width if most is None else most
    is_whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
    if not is_whole or not 1 <= size <= most:
        raise ConfigError(
            f"vector_size is {size!r}, and the vectors of {folder} have {width} numbers; give a "
            f"whole number from 1 to {most}"
        )
    return int(size)


def truncate_saved_vectors(loaded: L, size: int | None) -> L:
    """Return a model to be written, whose vectors are cut to a size; as it is with None."""
    if size is None:
        return loaded
    settings, vectors = vector_settings(loaded), loaded.task.get("vectors")
    if settings is None or not isinstance(vectors, Mapping):
        raise ConfigError(
            f"{loaded.path} was not fine-tuned with --task pairs, so its folder holds no size of "
            "vectors; give --vector-size to litebert embed instead"
        )
    settings = truncate_vectors(settings, loaded.config.encoder.hidden_size, size, loaded.path)
    if settings.map is None:
        return loaded
    record = {**vectors, "map": DENSE, "sizes": list(settings.sizes)}
    return replace(loaded, vector_map=settings.map, task={**loaded.task, "vectors": record})


def read_sizes(loaded: LoadedModel, width: int) -> tuple[int, ...]:
    """Read the sizes to which vectors of `width` numbers may be cut, from a model's task.json."""
    vectors = loaded.task.get("vectors")
    sizes = vectors.get("sizes", []) if isinstance(vectors, Mapping) else []
    if not isinstance(sizes, list) or not all(
        type(size) is int and 0 < size < width for size in sizes
    ):
        raise ModelError(
            f"{loaded.path / 'task.json'} has sizes {sizes!r} for vectors of {width} numbers; give "
            f"whole numbers from 1 to {width - 1}, or leave sizes out"
        )
    return tuple(sizes)


def read_dense(folder: Path, name: Any) -> VectorMap:
    if not is_inside(name):
        raise ModelError(f"{folder} names {name!r} for the map of its vectors; name a folder in it")
    dense_folder = folder / name
    named = _json(dense_folder / "config.json").get("activation_function", "Identity")
    activation = str(named).rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise ModelError(
            f"{dense_folder / 'config.json'} asks for the activation {activation}, which litebert "
            "does not compute; give --pooling mean to take vectors of the encoder alone"
        )
    file = dense_folder / WEIGHTS
    if not file.is_file() and (dense_folder / PICKLED).is_file():
        file = dense_folder / PICKLED
    weights = read_weights(file)
    weight = weights.get("linear.weight", np.zeros(0, np.float32))
    bias = weights.get("linear.bias", np.zeros(len(weight), np.float32))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ModelError(f"{dense_folder} holds no weights of a map of vectors; restore it")
    return VectorMap(weight, bias, _ACTIVATIONS[activation])


def write_dense(dense_folder: Path, map_: VectorMap) -> None:
    """The module Dense of sentence-transformers, in a new folder."""
    rows, columns = map_.weight.shape
    name = next(name for name, tanh in _ACTIVATIONS.items() if tanh == map_.tanh)
    kind = f"torch.nn.modules.{'activation' if map_.tanh else 'linear'}.{name}"
    dense_folder.mkdir()
    settings = {
        "in_features": columns,
        "out_features": rows,
        "bias": True,
        "activation_function": kind,
    }
    write_settings(dense_folder / "config.json", settings)
    write_arrays(
        dense_folder / WEIGHTS, {"linear.weight": map_.weight, "linear.bias": map_.bias}, {}
    )


def modules_note(path: Path) -> list[str]:
    """Name the modules that are not part of the encoder."""
    folder = _Folder(path)
    if not folder.files:
        return []
    notes = [
        f"{path} is a sentence-transformers model; litebert embed applies its pooling and what "
        f"follows it, and {_are_copied(folder.files)} when the model is converted"
    ]
    for name, settings in ((_LENGTHS, folder.lengths), (_OPTIONS, folder.options)):
        if unknown := sorted({*settings}.difference(_KNOWN[name])):
            notes.append(
                f"{folder.place(name)} has {', '.join(unknown)}, which litebert does not read"
            )
    return notes


def map_note(loaded: LoadedModel) -> list[str]:
    """Say what a model made smaller needs before its vectors are used."""
    try:
        settings = vector_settings(loaded)
    except ModelError:  # which asking for vectors reports
        return []
    if settings is None or settings.map is None:
        return []
    return [
        "the map of its vectors was made for the larger model; train the smaller one before its "
        "vectors are used"
    ]


def carry_modules(loaded: LoadedModel, folder: Path, foreign: bool = False) -> tuple[str, ...]:
    """Put the modules of a model into a folder, with a note on those that are copied. For a
    `foreign` folder, modules that a litebert folder describes in its task.json are written.
    """
    settings = vector_settings(loaded) if foreign and "vectors" in loaded.task else None
    if settings is not None:
        _write_modules(settings, loaded.config.encoder.hidden_size, folder)
        return ()
    replaces = loaded.vector_map is not None
    # The folder of a model that is being made is not there yet.
    if not foreign and "vectors" in loaded.task and (replaces or loaded.path.is_dir()):
        map_ = read_vector_map(loaded)
        if map_ is not None:
            write_dense(folder / DENSE, map_)
    opened = _Folder(loaded.path)
    files = [] if loaded.task_record else opened.files
    names = [name for name in files if not (folder / name).exists()]
    for name in names:
        source = opened.place(name)
        if name == LIST and opened.inner != loaded.path:
            first, *others = opened.modules
            write_settings(folder / name, [{**first, "path": ""}, *others])
        elif source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copyfile(source, folder / name)
    reported = set(modules_note(loaded.path)) & set(loaded.notes)  # when the folder was read
    return (f"{_are_copied(names)} for sentence-transformers",) if names and not reported else ()


def _are_copied(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} copied"


def _write_modules(settings: VectorSettings, width: int, folder: Path) -> None:
    names = (
        "Transformer",
        "Pooling",
        *["Dense"] * (settings.map is not None),
        *["Normalize"] * settings.normalized,
    )
    paths = ["", *(f"{i}_{name}" for i, name in enumerate(names) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    pooling = {
        "word_embedding_dimension": width,
        **{key: mode == settings.pooling for mode, key in _FORMER.items()},
    }
    written: dict[str, Any] = {
        LIST: modules,
        f"{_POOLING}/config.json": pooling,
        _OPTIONS: {"similarity_fn_name": "cosine"},
    }
    if settings.length is not None:
        written[_LENGTHS] = {"max_seq_length": settings.length, "do_lower_case": False}
    for path, name in zip(paths[1:], names[1:], strict=True):
        if settings.map is not None and name == "Dense":
            write_dense(folder / path, settings.map)
        else:
            (folder / path).mkdir()
    for name, content in written.items():
        write_settings(folder / name, content)


def _json(file: Path) -> dict[str, Any]:
    content = _parse_file(file) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def _parse_file(file: Path) -> Any:
    try:
        return parse_json(read_regular(file))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON ({error}); restore it") from None
