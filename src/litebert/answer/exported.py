"""Answering with a folder that `litebert export` wrote, by ONNX Runtime alone: nothing here imports
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.mask_texts import Guess, build_masked_row, find_masks, list_guesses
from litebert.answer.onnx_engine import OnnxEngine
from litebert.answer.predicting import Predictor, not_finite
from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.errors import LitebertError, ModelError
from litebert.finetuning.items import EncodedRow, build_row
from litebert.finetuning.rows import PaddedRows, group_by_length, pad_ids
from litebert.finetuning.similarity import pool_states, scale_to_unit
from litebert.interop.onnx.exports import find_exported_graph, require_whole
from litebert.interop.sentence_modules import VectorSettings, settings_of
from litebert.json_reader import read_json
from litebert.tasks.registry import restore_task
from litebert.tokenizer import Tokenizer


def is_exported(folder: Path) -> bool:
    """Return True if a folder holds a graph, its recipe.json, and no other weights."""
    return find_exported_graph(folder) is not None and (folder / "recipe.json").is_file()


@dataclass(frozen=True)
class Exported:
    """An exported model. Its head decides: it answers as it was fine-tuned, guesses masks, or gives
    vectors.

    Shapes: N texts, R rows of S tokens, H hidden size, V vocabulary.
    """

    path: Path
    config: Config
    tokenizer: Tokenizer
    record: dict[str, Any]
    """The content of its task.json; empty where it has none."""
    engine: OnnxEngine

    @classmethod
    def open(cls, folder: Path, threads: int | None = None) -> Exported:
        """Open a folder.

        Args:
            threads: threads of ONNX Runtime; as many as torch would take by default.

        Raises:
            ModelError: a file of it is damaged or missing.
            MissingExtraError: onnxruntime is not installed.
        """
        graph, recipe = find_exported_graph(folder), folder / "recipe.json"
        assert graph is not None
        require_whole(graph)
        try:
            config = from_dict(Config, read_json(recipe, ModelError))
            tokenizer = Tokenizer.load(folder)
        except ModelError:
            raise
        except LitebertError as error:
            raise ModelError(
                f"{folder} cannot be opened ({error}); export the model again"
            ) from None
        record = read_json(task, ModelError) if (task := folder / "task.json").is_file() else {}
        return cls(folder, config, tokenizer, record, OnnxEngine.of_file(graph, threads))

    @property
    def length(self) -> int:
        """Longest row in tokens, special ones included."""
        return int(self.record.get("length", self.config.sequences.length))

    @property
    def gives_vectors(self) -> bool:
        """True if it was exported as a backbone."""
        return "last_hidden_state" in self.engine.outputs

    @property
    def fills(self) -> bool:
        """True if it was exported with the head that guesses masked tokens."""
        return not self.record and not self.gives_vectors

    @cached_property
    def predictor(self) -> Predictor:
        """Its tokenizer, its task and its engine.

        Raises:
            ModelError: it was not fine-tuned, or its task cannot be restored.
        """
        if not self.record:
            raise ModelError(
                f"{self.path} was not exported with the head of a task, so it cannot answer"
            )
        try:
            task = restore_task(self.record, self.path)
        except (LitebertError, KeyError) as error:
            raise ModelError(f"the task of {self.path} cannot be restored: {error}") from None
        positions = self.config.encoder.max_positions
        return Predictor(self.tokenizer, task, self.engine, self.length, positions, str(self.path))

    def encode(self, texts: Iterable[str], normalized: bool | None = None) -> NDArray[np.float32]:
        """Compute sentence vectors (N, H) with a backbone, as `SentenceEncoder` does.

        Args:
            normalized: whether vectors have unit length; by default as the folder says.

        Raises:
            ModelError: it is no backbone.
        """
        settings = settings_of(self.path, self.record) or VectorSettings()
        rows = [
            build_row(self.tokenizer, ids, None, self.length)
            for ids in self.tokenizer.encode(list(texts))
        ]
        vectors = self.of_rows(rows)
        return (
            scale_to_unit(vectors)
            if (settings.normalized if normalized is None else normalized)
            else vectors
        )

    def of_rows(self, rows: Sequence[EncodedRow]) -> NDArray[np.float32]:
        """Compute the vectors of rows that `build_row` made of texts, (N, D), not normalized.

        Raises:
            ModelError: it was not exported as a backbone.
        """
        if not self.gives_vectors:
            raise ModelError(f"{self.path} gives no vectors; export the model with --head backbone")
        settings = settings_of(self.path, self.record) or VectorSettings()
        vectors = np.zeros((len(rows), self.config.encoder.hidden_size), np.float32)
        passes = list(
            group_by_length(
                [len(row.ids) for row in rows], self.engine.tokens, padding=self.engine.padding
            )
        )
        inputs = [self._pad([rows[index].ids for index in indices]) for indices in passes]
        for indices, batch, (states, *_) in zip(
            passes, inputs, self.engine.run_all(inputs), strict=True
        ):
            vectors[indices] = pool_states(states, batch.mask, settings.pooling)
        if not np.isfinite(vectors).all():
            raise not_finite(self.path)
        return vectors if settings.map is None else settings.map.of(vectors)

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Guess the `top` likeliest tokens for each mask of a text, as `MaskReader.fill` does.

        Raises:
            ModelError: it cannot guess masked tokens.
            DataError: the text has no mask, or is too long.
        """
        if not self.fills:
            raise ModelError(
                f"{self.path} cannot guess masked tokens; export the pretrained model with "
                "--head mlm"
            )
        row = build_masked_row(self.tokenizer, text, self.length)
        return self.fill_row(row, find_masks(self.tokenizer, row, text, top), top)

    def fill_row(
        self,
        row: Sequence[int],
        positions: Sequence[int],
        top: int,
        pause: Callable[[], None] = lambda: None,
    ) -> list[list[Guess]]:
        """Do the same for a row that `build_masked_row` made, as `MaskReader.fill_row` does."""
        logits = self.engine.run(self._pad([row]))[0]
        if not np.isfinite(logits[0, positions]).all():
            raise not_finite(self.path)
        guesses = []
        for position in positions:
            pause()
            guesses.append(list_guesses(self.tokenizer, logits[0, position], top))
        return guesses

    def _pad(self, rows: Sequence[Sequence[int] | NDArray[np.int32]]) -> PaddedRows:
        ids, mask = pad_ids(rows, self.tokenizer.pad_id, max(map(len, rows)))
        return PaddedRows(ids, np.zeros_like(ids), mask)
