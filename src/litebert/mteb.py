"""Sentence vectors of a litebert model for mteb, the Massive Text Embedding Benchmark.

    import mteb
    from litebert.mteb import Encoder

    mteb.evaluate(Encoder("tuned"), tasks=mteb.get_tasks(["STSBenchmark"]))

mteb is a package of its own, which litebert does not install.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.model import load
from litebert.hub import is_hub_name, parse_name
from litebert.kernels.packing import Dtype
from litebert.tasks.similarity import scale_to_unit

if TYPE_CHECKING:
    from torch import Tensor


class Encoder:
    """An encoder as mteb calls it: batches of texts in, and vectors out. They are compared by their
    cosine.
    """

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        *,
        vector_size: int | None = None,
        engine: str | None = None,
        dtype: Dtype | None = None,
        device: str | None = None,
    ) -> None:
        """Open a model.

        Args:
            model: any model that gives sentence vectors, as `litebert.load` takes it.
            revision: a name for the state of the model in mteb's results.
            vector_size: the numbers of a vector that are left, the first ones; all by default.
            engine, dtype, device: as in `litebert.load`.

        Raises:
            ModelError: the model cannot be opened, or gives no vectors.
            ConfigError: the vectors have no such size.
        """
        self._name, self._revision = str(model), revision
        opened = load(model, engine=engine, dtype=dtype, device=device or "auto")
        self._encoder = opened.vectors_by(size=vector_size)

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], **facts: Any
    ) -> NDArray[np.float32]:
        """Compute the vectors (N, D) of the texts in `text` of all batches; `facts` change none."""
        return self._encoder.encode(text for batch in inputs for text in batch["text"])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Compute the cosine of each first with each second vector, (N, M)."""
        import torch

        first, second = _as_units(embeddings1), _as_units(embeddings2)
        return torch.from_numpy(first @ second.T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Compute the cosine of each first with its second vector, (N,)."""
        import torch

        return torch.from_numpy((_as_units(embeddings1) * _as_units(embeddings2)).sum(-1))

    @property
    def mteb_model_meta(self) -> Any:
        """The facts of the model for mteb's results."""
        from mteb.models.model_meta import ModelMeta

        named = parse_name(self._name) if is_hub_name(self._name) else None
        return ModelMeta.create_empty(
            {
                "name": named.repository if named else f"litebert/{Path(self._name).name}",
                "revision": self._revision or (named and named.revision) or "none",
                "embed_dim": self._encoder.width,
                "max_tokens": self._encoder.length,
                "framework": ["PyTorch"],
                "similarity_fn_name": "cosine",
            }
        )


def _as_units(vectors: Any) -> NDArray[np.float32]:
    return scale_to_unit(np.asarray(vectors, np.float32))
