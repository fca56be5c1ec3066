"""Reading and writing the files of a model folder, with one sentence for every way in which they
can be broken. Torch is imported only for a pickle, and where tensors are asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import mmap
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from litebert.base.errors import MissingExtraError, ModelError, naming_extras
from litebert.base.json_reader import parse_json, read_json
from litebert.base.storage import FULL, hash_fault, newest_whole, sha256_of, write_whole
from litebert.hub import is_hub_name
from litebert.interop.hf.weights import BUFFERS
from litebert.interop.names import (
    ALL_WEIGHTS,
    DIGEST,
    INDEX,
    OF_HEADER,
    PICKLED,
    WEIGHTS,
    RawTensor,
    digest_of,
    facts_of,
    header_of,
    refuse_weights,
)
from litebert.kernels.packing import (
    DTYPES,
    TOGETHER,
    Dtype,
    Packed,
    count_bytes,
    in_panels,
    is_table,
    pack,
)
from litebert.remote.names import require_local

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("litebert")

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
"""The types in the header of a safetensors file, and their names in PyTorch."""
_PACKED, _VERSION = "packed", 1
"""The key of what a header says of packed weights, and the version of their form."""
_LINE = 64
"""Bytes of a line of the processor's cache, at which packed weights begin."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")
"""The types that weights may have; they are computed with in float32."""


def weights_file(folder: Path) -> Path:
    """The file of a folder that holds the weights, or the index of the files that do."""
    for name in ALL_WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    if (folder / "model.onnx").is_file():
        refuse_weights(folder)
    if shards := sorted(folder.glob("model-*-of-*.safetensors")):
        raise ModelError(
            f"{folder} holds its weights in {len(shards)} files, from {shards[0].name} on, "
            f"without the {WEIGHTS}{INDEX} that lists them; copy it there too"
        )
    raise ModelError(
        f"{folder} has neither {WEIGHTS} nor {PICKLED}; copy one of them there as one file"
    )


def shards_of(path: Path) -> dict[Path, set[str]]:
    """The files that an index lists, and the names of the tensors in each."""
    places = read_json(path, ModelError).get("weight_map")
    ending = Path(path.name.removesuffix(INDEX)).suffix
    if not isinstance(places, dict) or not places:
        raise ModelError(f"{path} has no weight_map of tensors to files; copy it again")
    shards: dict[Path, set[str]] = {}
    for tensor, name in places.items():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(ending):
            raise ModelError(
                f"{path} has {name!r} as the file of {tensor}; it must name a {ending} file "
                "beside it"
            )
        shards.setdefault(path.parent / name, set()).add(tensor)
    for shard in shards:
        if not shard.is_file():
            raise ModelError(f"{shard}, which {path.name} lists, is missing; copy it there too")
    return shards


def weights_files(folder: Path) -> list[Path]:
    file = weights_file(folder)
    return sorted(shards_of(file)) if file.name.endswith(INDEX) else [file]


def weights_digest(folder: Path) -> str:
    """The sha256 of the weights of a folder; of shards, that of the sums of all."""
    sums = [sha256_of(file) for file in weights_files(folder)]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of a model, in one file or in those that an index lists, in float32, without the
    constants of older files. Numbers that the file holds in float32 stay in it until they are used.
    """
    if not path.name.endswith(INDEX):
        return {
            name: weight.unpack() if isinstance(weight, Packed) else weight
            for name, weight in read_stored(path).items()
        }
    whole: dict[str, NDArray[np.float32]] = {}
    for shard, listed in shards_of(path).items():
        tensors = {tensor.name: tensor for tensor in _read(shard)}
        if missing := sorted(listed - tensors.keys()):
            raise ModelError(
                f"{shard} has no '{missing[0]}', which {path.name} lists; copy both files again"
            )
        weights = to_weights(tensors.values(), shard)
        whole |= {name: weights[name] for name in listed & weights.keys()}
    return whole


def read_stored(path: Path) -> dict[str, NDArray[np.float32] | Packed]:
    """The weights of a model as they are stored: what an export has packed stays so, in its file,
    which must not be written over as long as it is used."""
    if path.name.endswith(INDEX):
        return {**read_weights(path)}
    dtype, packed = _read_packing(path)
    tensors = {tensor.name: tensor for tensor in _read(path)}
    stored: dict[str, NDArray[np.float32] | Packed] = {}
    for name, (shape, is_rows) in packed.items():
        tensor, (count, wide) = tensors.pop(name, None), count_bytes(shape, dtype, is_rows)
        if tensor is None or (tensor.dtype, *tensor.shape) != ("uint8", count, wide):
            raise ModelError(f"{path} is damaged: {name} is not as its header says; export again")
        data = np.ndarray((count, wide), np.uint8, tensor.data)
        stored[name] = Packed(data, shape, dtype, is_rows)
    return {**stored, **to_weights(tensors.values(), path)}


def packed_type(path: Path) -> Dtype | None:
    """The type of the weights of an export; None of any other file."""
    return _read_packing(path)[0] if _PACKED in read_metadata(path) else None


def _read_packing(path: Path) -> tuple[Dtype, dict[str, tuple[tuple[int, int], bool]]]:
    text = read_metadata(path).get(_PACKED)
    if text is None:
        return "float32", {}
    facts = parse_json(text.encode())
    if (version := facts.get("version")) != _VERSION:
        raise ModelError(
            f"{path} is an export of version {version}, and this litebert reads {_VERSION}; "
            "install another litebert, or export the model again"
        )
    try:
        return DTYPES[DTYPES.index(facts["dtype"])], {
            str(name): ((int(rows), int(wide)), kind == "tables")
            for kind in ("panels", "tables")
            for name, (rows, wide) in facts[kind].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ModelError(
            f"{path} is damaged: its header has no shapes; export the model again"
        ) from None


def list_names(path: Path) -> list[str]:
    if path.name.endswith(INDEX):
        return [name for names in shards_of(path).values() for name in names]
    if path.suffix != ".safetensors":
        return list(read_weights(path))
    try:
        with safe_open(path, "np") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{path} is damaged or not a file of weights ({error}); copy it again"
        ) from None


def to_weights(tensors: Iterable[RawTensor], file: Path) -> dict[str, NDArray[np.float32]]:
    """Tensors in float32; what can be no weights is refused, and `file` named."""
    weights = {}
    for tensor in tensors:
        if tensor.name.rpartition(".")[2] in BUFFERS:
            continue
        if tensor.dtype not in _FLOATS:
            raise ModelError(
                f"{file} holds {tensor.name} as {tensor.dtype}, and a model needs weights in "
                "floating point; save the model again in float32, before it is quantized"
            )
        array = weights[tensor.name] = _to_float32(tensor)
        # NaN and infinity stay in a sum, which takes a tenth of the time; an overflow of finite
        # numbers is told apart.
        with np.errstate(all="ignore"):
            total = array.sum()
        if not np.isfinite(total) and (strange := int((~np.isfinite(array)).sum())):
            numbers = (
                "a number that is not finite"
                if strange == 1
                else f"{strange:,} numbers that are not finite"
            )
            raise ModelError(
                f"{file} holds {numbers} in {tensor.name}; restore the file, or train the model "
                "again"
            )
    return weights


def _to_float32(tensor: RawTensor) -> NDArray[np.float32]:
    if tensor.dtype == "bfloat16":  # the first halves of numbers in float32
        halves: NDArray[np.uint16] = np.ndarray(tensor.shape, np.uint16, tensor.data)
        return (halves.astype(np.uint32) << 16).view(np.float32)
    numbers: NDArray[Any] = np.ndarray(tensor.shape, tensor.dtype, tensor.data)
    with np.errstate(over="ignore"):  # to infinity, which no weight is
        return np.require(numbers.astype(np.float32, copy=False), requirements="A")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors or PyTorch file, in the types that they have there."""
    return {tensor.name: to_tensor(tensor) for tensor in _read(path)}


def to_tensor(raw: RawTensor) -> Tensor:
    import torch

    dtype = getattr(torch, raw.dtype)
    if not raw.data.size:  # which has no view in another type
        return torch.empty(raw.shape, dtype=dtype)
    return torch.from_numpy(raw.data).view(dtype).view(raw.shape)


def _read(path: Path) -> list[RawTensor]:
    """The tensors of a file; of a pickle, nothing but tensors is unpickled."""
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        with naming_extras():
            import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about old pickles
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (ModelError, MissingExtraError, MemoryError):
        raise
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # what a damaged pickle raises is anything
        if isinstance(error, pickle.UnpicklingError):
            with open(path, "rb") as file:  # begins as pickles do, outside torch's own container
                is_pickle = file.read(1) == pickle.PROTO
            if "unsupported global" in str(error).lower() or is_pickle:
                raise ModelError(
                    f"{path} is a pickle of more than tensors, and could run any code; ask its "
                    f"author for {WEIGHTS}, or if you trust it, write it again with transformers"
                ) from None
            error = ValueError("no pickle of tensors")  # torch's own words advise to allow it
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ModelError(
            f"{path} is damaged or not a file of weights ({reason}); copy it again"
        ) from None
    if not isinstance(tensors, dict) or not all(
        isinstance(item, torch.Tensor) for item in tensors.values()
    ):
        raise ModelError(f"{path} must hold tensors by name and nothing else")
    tensors = {name: tensor.detach() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ModelError(
                f"{path} holds {name} with {tensor.numel():,} numbers, of which it stores fewer; "
                "save the model again"
            )
    return [
        RawTensor(
            name,
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tensor.contiguous().view(-1).view(torch.uint8).numpy(),
        )
        for name, tensor in tensors.items()
    ]


def _read_safetensors(path: Path) -> list[RawTensor]:
    """The tensors of a file, which stay in it until they are used; a wrong digest is refused."""
    with safe_open(path, "np") as file:  # checks every place in the header
        metadata = dict(file.metadata() or {})
    mapped: Any = np.memmap(path, np.uint8, "c")
    data = np.asarray(mapped)
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = parse_json(data[8:start].tobytes())
    header.pop("__metadata__", None)
    tensors = []
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        dtype = _DTYPES.get(tensor["dtype"], tensor["dtype"])
        within = data[start + begin : start + end]
        tensors.append(RawTensor(name, dtype, tuple(tensor["shape"]), within))
    try:
        recorded = facts_of(metadata).get(DIGEST)  # which files of other programs have not
    except ValueError:
        recorded = ""
    if recorded is not None and recorded != digest_of(tensors):
        raise ModelError(
            f"{path} is damaged: its weights are not those that were written (sha256); copy the "
            "file again, or restore it from a backup"
        )
    if hasattr(mmap, "MADV_DONTNEED"):  # what no answer reads takes no memory of the process
        mapped._mmap.madvise(mmap.MADV_DONTNEED)
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Read the texts in the header of a safetensors file; none of any other file."""
    if path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, "np") as file:
            return facts_of(file.metadata() or {})
    except (OSError, SafetensorError, ValueError):
        return {}


def read_facts(path: Path) -> dict[str, str]:
    """The facts that litebert wrote into the header of a file, beside what says how to read it."""
    about = read_metadata(path)
    return {name: about[name] for name in about if name not in (*OF_HEADER, _PACKED)}


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """The same of tensors as `write_arrays`."""
    write_arrays(
        path, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}, facts
    )


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str] | None = None
) -> None:
    """A safetensors file with a digest of its tensors, and `facts` beside it; without `facts` the
    header is as transformers wants it, for a Hugging Face folder.
    """
    plain = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    header = {"format": "pt"}
    if facts is not None:
        raw = (
            RawTensor(name, str(array.dtype), array.shape, array.reshape(-1).view(np.uint8))
            for name, array in plain.items()
        )
        header = header_of(facts, digest_of(raw))
    save_file(plain, path, header)
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors writes for the owner alone


def write_settings(path: Path, settings: Any) -> None:
    """Write JSON in ASCII, as transformers does."""
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def write_packed(
    path: Path,
    weights: Mapping[str, NDArray[np.float32]],
    dtype: Dtype,
    facts: Mapping[str, str],
    least: float = math.inf,
) -> None:
    """A safetensors file of packed weights, each of which begins at a line of the cache.

    Args:
        least: numbers of a matrix that is packed too, although an engine needs it in float32.
    """
    arrays, packing = dict[str, NDArray[Any]](), {"version": _VERSION, "dtype": dtype}
    shapes: dict[str, dict[str, tuple[int, ...]]] = {"panels": {}, "tables": {}}
    for name in sorted(weights, key=lambda name: (not in_panels(name), not is_table(name), name)):
        weight = arrays[name] = np.require(weights[name], requirements="C")
        # The sizes of a generator may not fit.
        fits = in_panels(name) and weight.shape[1] % TOGETHER[dtype] == 0
        if fits or is_table(name) or (weight.ndim == 2 and weight.size >= least):
            shapes["panels" if fits else "tables"][name] = weight.shape
            arrays[name] = pack(weight, dtype, not fits).data
    raw = [
        RawTensor(name, str(array.dtype), array.shape, array.reshape(-1).view(np.uint8))
        for name, array in arrays.items()
    ]
    header: dict[str, Any] = {
        "__metadata__": header_of(
            {**facts, _PACKED: json.dumps({**packing, **shapes})}, digest_of(raw)
        )
    }
    end = 0
    for tensor in raw:
        begin, end = end, end + tensor.data.nbytes
        kind = "U8" if tensor.dtype == "uint8" else "F32"
        header[tensor.name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _LINE)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in raw:
            file.write(tensor.data)


def require_new(folder: Path, source: str | Path | None = None) -> None:
    """Refuse a folder to write to that holds anything, or lies in the one that is read."""
    require_local(folder)
    if is_hub_name(folder):
        raise ModelError(
            f"{folder} is a name of the Hugging Face Hub, and this writes a folder; name a folder, "
            "which litebert push writes to the Hub"
        )
    if (
        source is not None
        and (inside := Path(os.path.realpath(source))) in Path(os.path.realpath(folder)).parents
    ):
        raise ModelError(
            f"the destination {folder} lies inside {inside}, the folder to convert; choose "
            "one outside it"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} exists already; delete it or choose another destination")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes its name only when everything is in it."""
    require_new(folder)
    try:
        target = Path(os.path.realpath(folder))  # resolve() gives up at a loop of links
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(target) as aside:
            aside.mkdir()
            yield aside
    except (OSError, SafetensorError) as error:
        number, reason = getattr(error, "errno", None), getattr(error, "strerror", None) or error
        # SafetensorError has no number, and says in words what the disk refuses.
        free = "" if number is not None and number not in FULL else "free some space or "
        raise ModelError(
            f"cannot write {folder}: {reason}; {free}choose another destination"
        ) from None


def newest_weights(run: Path) -> Path:
    """The newest whole model of a run folder; a warning names newer ones that are damaged or cannot
    be read. Only the weights are checked against the hash in their checkpoint's index.json.
    """
    newest, damaged = newest_whole(run / "checkpoints", lambda path: hash_fault(path, WEIGHTS))
    if newest is not None:
        for path, fault in damaged:
            log.warning(f"{path} {fault}; using the older checkpoint {newest.name}")
        return newest / WEIGHTS
    if damaged:
        faults = "; ".join(f"{path} {fault}" for path, fault in damaged)
        raise ModelError(
            f"no checkpoint of {run} can be used ({faults}); restore one from a backup"
        )
    raise ModelError(
        f"the run in {run} has no checkpoint yet; wait until it writes one "
        "(train.save_every), or run its command again"
    )
