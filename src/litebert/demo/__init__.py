"""The models that stand in the package, and the archive that holds them.

    litebert.load("vectors")  # the package's own encoder; sentiment and words likewise
    folders = unpack("demo")  # {"sentiment": Path("demo/sentiment"), ...}

`runs/encoder/make.sh` makes `vectors`, and `runs/demo.sh` the others.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from litebert.base.errors import ModelError
from litebert.base.registry import PACKAGED
from litebert.base.storage import cache_folder, remove
from litebert.interop import files

__all__ = ["ENCODER", "NAMES", "locate", "pack", "unpack"]

NAMES = tuple(PACKAGED)
ENCODER = "vectors"
"""The encoder where one is needed and none is named."""


def locate(source: str | Path) -> str | Path:
    """Return the folder of a model of the package by its name; any other source comes back as it
    is, and so does the name of a folder that is there.
    """
    named = str(source) in NAMES and not Path(source).exists()
    return _find(str(source)) if named else source


@cache
def _find(name: str) -> Path:
    """A folder of the user's cache, written once; where that cannot be, one of this process."""
    kept = cache_folder() / f"models-{digest()}"
    try:
        return unpack(kept, only=name)[name]
    except ModelError:
        if (kept / name).is_dir():  # another process was faster
            return kept / name
        folder = Path(tempfile.mkdtemp(prefix="litebert-models-"))
        atexit.register(remove, folder)
        return unpack(folder, only=name)[name]


MODELS = Path(__file__).parent / "models.zip"
LEAST_NUMBERS = 4096
"""Numbers of a matrix that is stored in 8 bits, at least."""
_INDEX = "index.json"
_DATE = (2026, 1, 1, 0, 0, 0)
"""The date of every entry, so that the same models make the same bytes."""


def pack(folders: Mapping[str, Path], archive: Path) -> int:
    """Write litebert model folders, by the names they are to have, into an archive; return its
    bytes.
    """
    entries: dict[str, bytes] = {}
    index: dict[str, dict[str, str]] = {}
    for name, folder in folders.items():
        files.weights_file(folder)
        index[name] = {}
        for file in _list_files(folder):
            data = _pack_weights(file) if file.suffix == ".safetensors" else file.read_bytes()
            entry = hashlib.sha256(data).hexdigest()[:16]
            entries[entry] = data
            index[name][file.relative_to(folder).as_posix()] = entry
    entries[_INDEX] = json.dumps(index, indent=1, sort_keys=True).encode()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for entry, data in sorted(entries.items()):
            packed.writestr(zipfile.ZipInfo(entry, _DATE), data, zipfile.ZIP_DEFLATED)
    return archive.stat().st_size


def digest(archive: Path = MODELS) -> str:
    """Twelve digits that tell what an archive holds: its index names each entry by its content."""
    with zipfile.ZipFile(archive) as packed:
        return hashlib.sha256(packed.read(_INDEX)).hexdigest()[:12]


def unpack(out: str | Path, archive: Path = MODELS, only: str | None = None) -> dict[str, Path]:
    """Write an archive's models, or `only` one, as folders under `out`; return each by name.
    Existing ones stay.
    """
    folders: dict[str, Path] = {}
    try:
        with zipfile.ZipFile(archive) as packed:
            index = json.loads(packed.read(_INDEX))
            for name, entries in index.items():
                if only not in (None, name):
                    continue
                folders[name] = Path(out) / name
                if not folders[name].exists():
                    contents = {file: packed.read(entry) for file, entry in entries.items()}
                    _write_model(folders[name], contents)
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, ModelError) as error:
        raise ModelError(
            f"the models cannot be unpacked from {archive} to {out} ({error}); install litebert "
            "again, or name another folder with --out"
        ) from None
    return folders


def _list_files(folder: Path) -> list[Path]:
    """List the files of a model, without those that another file of the tokenizer repeats."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if "tokenizer/tokenizer.json" in names:
        names.discard("tokenizer/vocab.txt")
    return [folder / name for name in sorted(names)]


def _write_model(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with files.new_folder(folder) as partial:
        for file, data in contents.items():
            path = partial / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".safetensors":
                _unpack_weights(data, path)
            else:
                path.write_bytes(data)


def _pack_weights(file: Path) -> bytes:
    """Pack a file of weights; the facts in its header stay."""
    with TemporaryDirectory() as folder:
        packed = Path(folder) / file.name
        weights, facts = files.read_weights(file), files.read_facts(file)
        files.write_packed(packed, weights, "int8", facts, LEAST_NUMBERS)
        return packed.read_bytes()


def _unpack_weights(data: bytes, path: Path) -> None:
    with TemporaryDirectory(dir=path.parent) as folder:
        packed = Path(folder) / path.name
        packed.write_bytes(data)
        files.write_arrays(path, files.read_weights(packed), files.read_facts(packed))
