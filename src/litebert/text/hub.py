"""Data sets that the `datasets` library opens: a folder that it saved, or a name on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litebert.errors import DataError, MissingExtraError, nearest
from litebert.text.sources import OTHER_FIELD, Reading, Texts


def is_saved(folder: str | Path) -> bool:
    """Whether `datasets` saved this folder; any other folder may just be called as a set on the hub is."""
    return any((Path(folder) / file).is_file() for file in ("dataset_dict.json", "dataset_info.json"))


def open_dataset(name: str, config: str | None = None, *, streaming: bool = False) -> Any:
    """The splits by name, or the one split, of a saved folder or of `NAME[:CONFIG]`; `config` where NAME has none.

    Raises:
        DataError: the library cannot open it.
        MissingExtraError: there is no such library.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets") from error
    try:
        if is_saved(name):
            return datasets.load_from_disk(name)
        repository, _, named = name.partition(":")
        words = [word for word in (repository, named or config) if word]
        return datasets.load_dataset(*words, **({"streaming": True} if streaming else {}))
    except Exception as error:  # the library raises many kinds, its own and those of the network
        reason = str(error).split("\n")[0]
        raise DataError(f"hf:{name} cannot be opened ({reason}); a folder works too: hf:FOLDER") from error


def read(name: str, reading: Reading) -> Texts:
    """The texts of the split "train", or of the only one, each with the number of its row."""
    data = open_dataset(name, streaming=True)
    if isinstance(data, dict):
        if "train" not in data and len(data) > 1:
            raise DataError(f"hf:{name} has no split 'train' among {', '.join(data)}; save the one you want alone")
        data = data["train"] if "train" in data else next(iter(data.values()))
    field = reading.text_field
    if data.column_names is not None and field not in data.column_names:
        raise DataError(f"hf:{name} has no column '{field}'; {nearest(field, data.column_names)}{OTHER_FIELD}")
    number = 0
    for batch in data.select_columns([field]).iter(batch_size=1000):
        for value in batch[field]:
            number += 1
            text = reading.text(value, f"hf:{name}:{number}")
            if text is not None:
                yield text, number
