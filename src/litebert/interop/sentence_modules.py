"""What a folder of sentence-transformers holds beside its encoder: the pooling and other modules that follow it.

Nothing here computes with them. They are named when the folder is read and copied when its encoder is written, so that
the folder converts to litebert and back without loss.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from litebert.errors import ModelError
from litebert.interop.loaded import LoadedModel
from litebert.model.pretrainer import Pretrainer

LIST = "modules.json"
_SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")


def modules_note(folder: Path) -> list[str]:
    """Name the modules that are not part of the encoder."""
    found = _present(folder)
    return [f"{folder} is a sentence-transformers model; only its encoder is read, and {', '.join(found)} is copied "
            "when the model is converted"] if found else []  # fmt: skip


def carry_modules(loaded: LoadedModel, folder: Path) -> tuple[str, ...]:
    """Copy the modules of the folder a pretrained model was read from, with a note; a fine-tuned model has none."""
    found = _present(loaded.path) if isinstance(loaded.model, Pretrainer) else []
    found = [name for name in found if not (folder / name).exists()]
    for name in found:
        source = loaded.path / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copyfile(source, folder / name)
    copied = f"{', '.join(found)} is copied for sentence-transformers; litebert does not apply the modules it lists"
    return (copied,) if found else ()


def _present(folder: Path) -> list[str]:
    """The files and folders that belong to the modules; none where the folder is of another kind."""
    if not (folder / LIST).is_file():
        return []
    try:
        modules = json.loads((folder / LIST).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{folder / LIST} cannot be read as JSON ({error}); restore it") from None
    listed = modules if isinstance(modules, list) else []
    paths = [module.get("path") for module in listed if isinstance(module, dict)]
    # An empty path is the folder itself, where the encoder is; nothing outside it is copied.
    named = [path for path in paths if isinstance(path, str) and path not in ("", "..") and "\0" not in path]
    names = [path for path in named if Path(path).name == path]
    inside = [name for name in names if (folder / name).is_dir() and not (folder / name).is_symlink()]
    return [LIST, *(name for name in _SETTINGS if (folder / name).is_file()), *dict.fromkeys(inside)]
