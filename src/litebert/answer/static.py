"""A static model: a vector for each token, and the vector of a text is the mean of its token
vectors. It answers with NumPy alone, without a network.

As in model2vec, a token's vector is the model's vector for the token as a text. It is reduced by
principal components, and common tokens weigh less, as in SIF (Arora et al. 2017). The folder opens
in sentence-transformers (`StaticEmbedding`) and in model2vec too.

Shapes: N texts, V vocabulary, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer as FastTokenizer

from litebert.base.errors import ConfigError, ModelError
from litebert.interop.sentence_modules import require_size
from litebert.text.records import check_texts
from litebert.tokenizer.tokenizer import explain_surrogates

if TYPE_CHECKING:
    pass

SIZE = 256
"""Numbers of a vector by default, as in model2vec."""
SMOOTHING = 1e-4
"""The share of all tokens at which a token weighs a half."""
CHUNK = 1024
"""Texts that are encoded at once."""
_WEIGHTS, _TABLE, _TOKENIZER = "model.safetensors", "embeddings", "tokenizer.json"


@dataclass(frozen=True)
class StaticEncoder:
    """Vectors of texts from a table of token vectors."""

    table: NDArray[np.float32]
    """(V, D)"""
    tokenizer: FastTokenizer

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Compute the vectors of texts, (N, D), of unit length; an empty text has the vector 0."""
        source, blocks = check_texts(texts), [np.zeros((0, self.table.shape[1]), np.float32)]
        while chunk := list(islice(source, CHUNK)):
            blocks.append(self._encode_chunk(chunk))
        return np.concatenate(blocks)

    def _encode_chunk(self, texts: list[str]) -> NDArray[np.float32]:
        with explain_surrogates(texts):
            rows = [
                row.ids for row in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            ]
        vectors = np.zeros((len(rows), self.table.shape[1]), np.float32)
        lengths = np.array(list(map(len, rows)))
        present = np.flatnonzero(lengths)
        if len(present):
            ids = np.concatenate([rows[place] for place in present]).astype(np.int64)
            starts = np.cumsum(lengths[present]) - lengths[present]
            vectors[present] = np.add.reduceat(self.table[ids], starts, axis=0)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
        return unit


def load_static(folder: str | Path) -> StaticEncoder:
    """Open a folder that `litebert export --static` or model2vec wrote. It needs no torch.

    Raises:
        ModelError: a file is missing or damaged.
    """
    place = Path(folder)
    try:
        table = load_file(place / _WEIGHTS)[_TABLE].astype(np.float32)
        tokenizer = FastTokenizer.from_file(str(place / _TOKENIZER))
    except Exception as error:  # tokenizers raises nothing narrower
        reason = f"no {_TABLE}" if isinstance(error, KeyError) else error
        raise ModelError(
            f"{place} is no static model ({reason}); give a folder of litebert export --static"
        ) from None
    if (
        table.ndim != 2
        or not table.shape[1]
        or tokenizer.get_vocab_size() > len(table)
        or not np.abs(table).max(initial=0) < 1e18  # so that sums and squares are finite
    ):
        raise ModelError(f"{place / _WEIGHTS} does not fit its tokenizer; export the model again")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return StaticEncoder(table, tokenizer)


def export_static(model: str | Path, out: str | Path, *, size: int | None = None) -> Path:
    """Write a static model, of 256 numbers a vector or fewer, of a model of sentence vectors."""
    from litebert.answer.model import load
    from litebert.interop.files import new_folder, require_new, write_settings
    from litebert.tasks.values import EncodedRow

    require_new(Path(out), model)
    opened = load(model)
    if opened.ranks_pairs:
        raise ConfigError(
            f"{opened.path} answers a pair of texts with a number, and a static model answers "
            "single texts; give a model of sentence vectors"
        )
    tokenizer, types = opened.require_tokenizer(), np.zeros(3, np.int32)
    rows = [
        EncodedRow(np.array([tokenizer.cls_id, token, tokenizer.sep_id], np.int32), types)
        for token in range(tokenizer.vocab_size)
    ]
    vectors = opened.sentence_encoder.of_rows(rows)
    most = min(vectors.shape)
    width = min(SIZE, most)
    if size is not None:
        width = require_size(size, vectors.shape[1], opened.path, most)
    table = _weigh(_reduce(vectors, width))
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(("StaticEmbedding", "Normalize"))
    ]
    described = {
        "config.json": {"model_type": "model2vec", "hidden_dim": width, "normalize": True},
        "modules.json": modules,
    }
    with new_folder(Path(out)) as partial:
        tokenizer.save(partial)
        if not (partial / _TOKENIZER).is_file():
            raise ModelError(f"the tokenizer of {opened.path} has no {_TOKENIZER}")
        save_file({_TABLE: np.ascontiguousarray(table)}, partial / _WEIGHTS)
        for name, content in described.items():
            write_settings(partial / name, content)
        (partial / "1_Normalize").mkdir()
    return Path(out)


def _reduce(vectors: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Reduce vectors (V, D) to their first principal components, (V, size)."""
    exact = vectors.astype(np.float64)
    centered = exact - exact.mean(0)
    _, directions = np.linalg.eigh(centered.T @ centered)
    reduced: NDArray[np.float32] = (centered @ directions[:, ::-1][:, :size]).astype(np.float32)
    return reduced


def _weigh(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weigh tokens by rarity: common ones come first, and Zipf's law gives their frequency."""
    shares = 1 / np.arange(1, len(table) + 1)
    weights = SMOOTHING / (SMOOTHING + shares / shares.sum())
    weighed: NDArray[np.float32] = (table * weights[:, None]).astype(np.float32)
    return weighed
