"""A model of sentence vectors that teaches a student: the student learns the vectors of texts,
through a map to the teacher's width. `finetuning.teachers` has all teachers of a run.

It may have any width, depth and tokenizer, for it reads each text by itself.

Shapes: N texts, D numbers of a vector.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.errors import ModelError, NonFiniteError
from litebert.finetuning.items import EncodedPart, build_single_rows
from litebert.finetuning.rows import PaddedRows, group_by_length, pad_rows
from litebert.finetuning.scoring import Logits
from litebert.finetuning.similarity import scale_to_unit
from litebert.interop import LoadedModel, files, read_folder
from litebert.interop.names import find_exported_graph
from litebert.interop.sentence_modules import VectorSettings, vector_settings
from litebert.registry import ENGINES
from litebert.storage import sha256_of, write_whole
from litebert.tokenizer import Tokenizer
from litebert.train.teacher import compute_fingerprint

if TYPE_CHECKING:
    from litebert.finetuning.prepared import PreparedTask

log = logging.getLogger("litebert")

FOLDER = "teacher-vectors"
"""Name of the folder of vectors computed so far, in a run folder."""
BLOCK = 4096
"""Texts whose vectors are in one file. A run that is killed computes at most so many again."""


@dataclass(frozen=True)
class VectorTeacher:
    """A model that gives sentence vectors, as a teacher."""

    source: str
    loaded: LoadedModel
    fingerprint: str
    tokenizer: Tokenizer
    settings: VectorSettings

    @property
    def width(self) -> int:
        """D."""
        map_ = self.settings.map
        return self.loaded.config.encoder.hidden_size if map_ is None else len(map_.bias)

    @property
    def length(self) -> int:
        """The longest row that it reads, in tokens, special ones included."""
        length = self.settings.length or self.loaded.config.sequences.length
        return min(int(length), self.loaded.config.encoder.max_positions)

    @property
    def key(self) -> bytes:
        """The facts that its vector of a text depends on."""
        facts = self.settings._replace(map=None), self.length
        return self.fingerprint.encode() + repr(facts).encode()

    def compute_logits(
        self, prepared: PreparedTask, parts: Sequence[EncodedPart], device: str, folder: Path
    ) -> list[Logits]:
        """Compute the vectors of the texts of each item of each part, (1, D) or (2, D) in half
        precision. They have unit length.

        Args:
            folder: the run folder, which keeps the vectors until all are computed.
        """
        texts = dict.fromkeys(
            text
            for part in parts
            for item in part.items
            for text in _list_texts(part.examples[item.example])
        )
        place_of = {text: place for place, text in enumerate(texts)}
        vectors = self._embed_in_blocks(list(texts), device, folder / FOLDER)
        return [
            [
                vectors[[place_of[text] for text in _list_texts(part.examples[item.example])]]
                for item in part.items
            ]
            for part in parts
        ]

    def _embed_in_blocks(self, texts: Sequence[str], device: str, folder: Path) -> NDArray[Any]:
        """Compute the vectors of texts, (N, D), block by block; blocks in the folder are read."""
        # Neighbors in length are in one block, so that little is padded.
        order = np.argsort([len(text) for text in texts], kind="stable")
        vectors: NDArray[Any] = np.zeros((len(texts), self.width), np.float16)
        runtime = None
        with progress.task("asking the teacher", total=len(texts), unit="texts") as bar:
            for start in range(0, len(texts), BLOCK):
                places = order[start : start + BLOCK]
                block = [texts[place] for place in places]
                key = hashlib.sha256(self.key + repr(block).encode("utf-8", "surrogatepass"))
                file = folder / f"{start // BLOCK:05d}.safetensors"
                saved = _read_block(file, key.hexdigest())
                if saved is None:
                    runtime = runtime or self._make_runtime(device)
                    saved = self._embed(runtime, block).astype(np.float16)
                    _write_block(file, key.hexdigest(), saved)
                vectors[places] = saved
                bar.advance(len(block))
        return vectors

    def _make_runtime(self, device: str) -> Any:
        from litebert.model.task_model import TaskModel

        if find_exported_graph(self.loaded.path) is not None:  # which answers on the CPU
            return ENGINES["onnx"](self.loaded, "cpu")
        states = TaskModel.of_states(self.loaded.model.eval().encoder)
        task = {"kind": "backbone", "classes": 0}
        return ENGINES["torch"](replace(self.loaded, network=states, task=task, labels=()), device)

    def _embed(self, runtime: Any, texts: Sequence[str]) -> NDArray[np.float32]:
        """Compute the vectors of texts, (N, D), of unit length.

        Raises:
            NonFiniteError: a number is not finite.
        """
        rows, _ = build_single_rows(self.tokenizer, texts, self.length)
        limits, positions = runtime.capabilities, self.loaded.config.encoder.max_positions
        lengths = [len(row.ids) for row in rows]
        groups = list(group_by_length(lengths, limits.tokens, padding=limits.padding))
        passes = [
            pad_rows([rows[place] for place in group], self.tokenizer.pad_id, positions)
            for group in groups
        ]

        def pool(padded: PaddedRows) -> NDArray[np.float32]:
            pooled: NDArray[np.float32] = runtime.vectors(padded, self.settings.pooling)
            return pooled if self.settings.map is None else self.settings.map.of(pooled)

        vectors = np.zeros((len(rows), self.width), np.float32)
        for group, values in zip(groups, runtime.map_passes(pool, passes), strict=True):
            vectors[group] = values
        if not np.isfinite(vectors).all():
            raise NonFiniteError(
                f"the teacher {self.source} gives vectors that are not finite; name another teacher"
            )
        return scale_to_unit(vectors)


def open_vector_teacher(source: str | Path) -> VectorTeacher:
    """Open the model of sentence vectors in a folder: a run, a litebert, Hugging Face or
    sentence-transformers folder, or an exported one with the states.

    Raises:
        ModelError: it cannot be opened, has no tokenizer, gives no states, or its modules ask for
            what is not computed.
    """
    graph = find_exported_graph(Path(source))
    loaded = read_folder(source, lazy=graph is not None)
    if graph is not None and loaded.task.get("kind") != "backbone":
        raise ModelError(
            f"the teacher {source} is an ONNX export that gives no states; export the model again "
            "with --head backbone, or name the folder it was exported from"
        )
    if (tokenizer := loaded.tokenizer) is None:
        raise ModelError(
            f"the teacher {source} has no tokenizer; put the one it was trained with there"
        )
    settings = vector_settings(loaded) or VectorSettings()
    fingerprint = sha256_of(graph) if graph is not None else compute_fingerprint(loaded)
    if settings.map is not None:
        numbers = (settings.map.weight, settings.map.bias)
        digest = hashlib.sha256(b"".join(array.tobytes() for array in numbers))
        fingerprint = hashlib.sha256((fingerprint + digest.hexdigest()).encode()).hexdigest()
    return VectorTeacher(str(source), loaded, fingerprint, tokenizer, settings)


def delete_blocks(folder: Path) -> None:
    """Delete the vectors of single blocks from a run folder, once all are in one file."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _list_texts(example: Any) -> tuple[str, ...]:
    return (example.text,) if example.pair is None else (example.text, example.pair)


def _read_block(file: Path, key: str) -> NDArray[np.float16] | None:
    if files.read_metadata(file).get("key") != key:
        return None
    try:
        vectors: NDArray[np.float16] = files.read_tensors(file)["vectors"].numpy()
    except ModelError:
        log.warning(f"{file} is damaged; the teacher answers again")
        return None
    return vectors


def _write_block(file: Path, key: str, vectors: NDArray[np.float16]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(file) as aside:
        files.write_tensors(aside, {"vectors": torch.from_numpy(vectors)}, {"key": key})
