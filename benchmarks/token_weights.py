"""Sentence vectors as weighted means of token states: do weights of tokens help, before and after
whitening?

    python benchmarks/token_weights.py RUN GLUE [--texts 6000]

RUN is a pretrained model, and GLUE the folder that holds STS-B. Special tokens are left out. The
frequencies of tokens and the whitening come from sentences of the training part, without scores.
It prints the rank correlation of cosines with the scores of the dev part, times 100, from the token
table (the state before the first layer) and from the last states.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from litebert import load, open_task
from litebert.model.encoder import Encoder
from litebert.tasks.rows import group_by_length, pad_ids
from litebert.tasks.similarity import fit_whitening, scale_to_unit
from litebert.tokenizer import Tokenizer

BATCH_TOKENS = 4096
SMOOTHING = (1e-3, 1e-4)
"""The constants a of the weights a / (a + p) of smooth inverse frequency."""


def count_weights(
    rows: Sequence[Sequence[int]], tokenizer: Tokenizer
) -> dict[str, NDArray[np.float32]]:
    """Compute the weight of each token (V,), by the name of the kind of weight."""
    size = tokenizer.vocab_size
    occurrences = np.bincount(np.concatenate([np.asarray(row) for row in rows]), minlength=size)
    texts = np.bincount(np.concatenate([np.unique(row) for row in rows]), minlength=size)
    shares = occurrences / occurrences.sum()
    weights = {
        "nothing": np.ones(size),
        "inverse document frequency": np.log((len(rows) + 1) / (texts + 1)) + 1,
        **{f"smooth inverse frequency, {a:g}": a / (a + shares) for a in SMOOTHING},
    }
    specials = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]
    for values in weights.values():
        values[specials] = 0
    return {name: values.astype(np.float32) for name, values in weights.items()}


@torch.no_grad()
def compute_means(
    encoder: Encoder,
    tokenizer: Tokenizer,
    rows: Sequence[Sequence[int]],
    weights: Mapping[str, NDArray[np.float32]],
) -> dict[tuple[str, str], NDArray[np.float32]]:
    """Compute the weighted means (N, H) of each text, by the kind of weight and by what is
    averaged."""
    most = encoder.config.max_positions - 2
    whole = [[tokenizer.cls_id, *row[:most], tokenizer.sep_id] for row in rows]
    means: dict[tuple[str, str], NDArray[np.float32]] = {}
    for indices in group_by_length(list(map(len, whole)), BATCH_TOKENS):
        batch = [whole[index] for index in indices]
        ids, mask = pad_ids(batch, tokenizer.pad_id, max(map(len, batch)))
        tokens = torch.from_numpy(ids)
        table, *_, last = encoder.states(tokens, torch.zeros_like(tokens), torch.from_numpy(mask))
        for name, values in weights.items():
            scales = values[ids] + 1e-9 * mask  # a text of special tokens alone is their mean
            scales /= scales.sum(1, keepdims=True)
            for place, states in (("table", table), ("last states", last)):
                pooled = np.einsum("rs,rsh->rh", scales, states.float().numpy())
                shape = (len(rows), pooled.shape[1])
                means.setdefault((name, place), np.zeros(shape, np.float32))[indices] = pooled
    return means


def list_lines(run: str, glue: str, texts: int) -> Iterator[str]:
    """Compute the table, and yield its lines."""
    model = load(run)
    tokenizer, encoder = model.require_tokenizer(), model.model.eval().encoder
    files = open_task("stsb-vectors", glue)
    train, dev = files.read("train"), files.read("dev")
    sentences = sorted({text for row in train for text in (row.text, row.pair)})
    rows = tokenizer.encode(sentences)
    weights = count_weights(rows, tokenizer)
    sides = [tokenizer.encode([getattr(row, side) for row in dev]) for side in ("text", "pair")]
    sample = compute_means(encoder, tokenizer, rows[:texts], weights)
    first, second = (compute_means(encoder, tokenizer, side, weights) for side in sides)
    scores = [row.label for row in dev]

    def correlate(left: NDArray[np.float32], right: NDArray[np.float32]) -> str:
        cosines = (scale_to_unit(left) * scale_to_unit(right)).sum(1)
        return f"{100 * spearmanr(cosines, scores)[0]:.1f}"

    places = ("table", "last states", "table, whitened", "last states, whitened")
    yield f"| mean of tokens, weighted by | {' | '.join(places)} |"
    yield "|---|---|---|---|---|"
    for name in weights:
        keys = [(name, place) for place in places[:2]]
        plain = [correlate(first[key], second[key]) for key in keys]
        maps = [fit_whitening(sample[key]) for key in keys]
        whitened = [
            correlate(map_.of(first[key]), map_.of(second[key]))
            for key, map_ in zip(keys, maps, strict=True)
        ]
        yield f"| {name} | {' | '.join([*plain, *whitened])} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("glue")
    parser.add_argument("--texts", type=int, default=6000, help="sentences that whitening knows")
    options = parser.parse_args()
    for line in list_lines(options.run, options.glue, options.texts):
        print(line, flush=True)


if __name__ == "__main__":
    main()
