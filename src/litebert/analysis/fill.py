"""What a model guesses for a masked word of a sentence: the quickest look at what it has learned."""

from __future__ import annotations

import numpy as np
import torch

from litebert.data.shards import Split
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer

Guess = tuple[str, str, str]
"""A sentence with one piece masked, the piece that stood there, and the best guesses with their probabilities."""


@torch.no_grad()
def fill(model: Pretrainer, tokenizer: Tokenizer, ids: list[int], position: int) -> Guess:
    """Mask the piece at `position` of a sentence's ids (special tokens not among them) and guess it."""
    mlm = next(one for one in model.named_objectives.values() if isinstance(one, MaskedLanguageModeling))
    context = model.context(mlm.name)
    masked = [tokenizer.cls_id, *ids, tokenizer.sep_id]
    masked[position + 1] = tokenizer.mask_id
    weight = model.encoder.embedding.word.weight
    input_ids = torch.tensor([masked], device=weight.device)
    output = mlm.read(context, input_ids)
    logits = mlm.guesses(output.last, torch.tensor([position + 1], device=weight.device), context)
    top = logits.float().softmax(-1)[0].topk(3)
    before, after = tokenizer.decode(ids[:position]), tokenizer.decode(ids[position + 1 :])
    guesses = (f"{_word(tokenizer, int(i))} {float(p):.0%}" for p, i in zip(top.values, top.indices, strict=True))
    return f"{before} [MASK] {after}".strip(), _word(tokenizer, ids[position]), ", ".join(guesses)


def _word(tokenizer: Tokenizer, piece: int) -> str:
    return tokenizer.decode([piece]).strip() or tokenizer.piece(piece)


def examples(model: Pretrainer, tokenizer: Tokenizer, split: Split) -> list[Guess]:
    """Guesses in ten held-out sentences of ordinary length, each masking one word that is one piece."""
    random = np.random.default_rng(0)
    starts = tokenizer.word_starts
    guesses: list[Guess] = []
    for document in random.permutation(split.documents):
        tokens, offsets = split.sentences_of(int(document))
        lengths = np.diff(offsets)
        usable = np.flatnonzero((lengths >= 8) & (lengths <= 32))
        if len(usable) == 0:
            continue
        sentence = int(random.choice(usable))
        ids = tokens[offsets[sentence] : offsets[sentence + 1]].astype(np.int64)
        alone = np.ones(len(ids), dtype=bool)
        if starts is not None:
            alone = starts[ids] & np.append(starts[ids[1:]], True)
        words = [i for i in np.flatnonzero(alone) if any(c.isalpha() for c in tokenizer.piece(int(ids[i])))]
        if not words:
            continue
        guesses.append(fill(model, tokenizer, ids.tolist(), int(random.choice(words))))
        if len(guesses) == 10:
            break
    return guesses
