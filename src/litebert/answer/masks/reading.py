"""The predictions of a pretrained model at masks: logits, guesses for masks, and
pseudo-log-likelihoods of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.answer.masks.rows import LOGITS, MaskedRows
from litebert.answer.masks.texts import Guess, MaskFiller, list_guesses
from litebert.answer.predicting import not_finite
from litebert.answer.vectors import BATCH_TOKENS, CHUNK, batches
from litebert.base import progress
from litebert.base.errors import ModelError
from litebert.interop.loaded import LoadedModel
from litebert.kernels.network import find_refusal
from litebert.kernels.packing import Dtype
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.text.records import check_texts
from litebert.tokenizer.words import find_word_ends

if TYPE_CHECKING:
    from litebert.data.shards import Split

MASKS = 16
"""Masks of a text whose logits are computed at a time."""


@dataclass(frozen=True)
class Score:
    """How likely a text is, each token given all others (Salazar et al. 2020, arXiv:1910.14659)."""

    log_likelihood: float
    """The sum of `token_log_likelihoods`, in nats; higher is better, and longer texts have less."""
    tokens: tuple[str, ...]
    """The tokens, as the vocabulary writes them."""
    token_log_likelihoods: tuple[float, ...]

    @property
    def perplexity(self) -> float:
        """The pseudo-perplexity, whatever the length; not a number of a text without tokens."""
        return (
            float(np.exp(-self.log_likelihood / len(self.tokens))) if self.tokens else float("nan")
        )


class MaskNetwork(Protocol):
    """A network that reads masked rows, and its head for masked tokens."""

    def states(self, ids: NDArray[np.int64], mask: NDArray[np.bool_] | None = None) -> Any:
        """Compute the last states of rows (R, S); `mask` is False for padding."""

    def logits(self, states: Any, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute float32 (K, V) logits at flat positions (K,) of states."""


@dataclass(frozen=True)
class MaskReader(MaskFiller):
    """A pretrained model with its tokenizer that reads masked text.

    Shapes: S tokens of a row, V vocabulary, K masked positions.
    """

    network: MaskNetwork

    @classmethod
    def of(
        cls,
        loaded: LoadedModel,
        engine: str = "compiled",
        device: str = "cpu",
        threads: int | None = None,
        dtype: Dtype = "float32",
    ) -> MaskReader:
        """Make the reader of a model folder: with torch, or in compiled calls if they can."""
        path = loaded.path
        if loaded.task_record:
            raise ModelError(
                f"{path} is fine-tuned and can no longer predict masked tokens; give the "
                "pretrained model"
            )
        if loaded.tokenizer is None:
            raise ModelError(
                f"{path} has no tokenizer; put the one it was trained with there, or name "
                "it with --tokenizer"
            )
        objectives = loaded.config.build_objectives()
        heads = [
            name
            for name, objective in objectives.items()
            if isinstance(objective, MaskedLanguageModeling)
        ]
        if not heads or heads[0] in loaded.untrained:
            raise ModelError(
                f"{path} has no trained head for masked tokens (mlm); give a model that was "
                "pretrained with one, with its head"
            )
        from litebert.answer.engines.compiled import CompiledMasks, knows_masks

        encoder = loaded.config.generator or loaded.config.encoder
        network: MaskNetwork
        if engine == "torch" or find_refusal(encoder) or not knows_masks(objectives[heads[0]]):
            from litebert.answer.engines.torch_runtime import TorchMasks

            network = TorchMasks(loaded, heads[0], device)
        else:
            if find_refusal(encoder, dtype):  # of a generator, whose sizes are its own
                dtype = "float32"
            network = CompiledMasks(loaded, heads[0], threads, dtype)
        return cls(loaded.tokenizer, str(path), loaded.config.sequences.length, network)

    # ----------------------------------------------------------------------------------- from texts

    def logits(self, texts: Iterable[str]) -> list[NDArray[np.float32]]:
        """Compute the logits (S, V) of each `[CLS] text [SEP]`; masks are read as in `fill`."""
        rows = [self.row(text) for text in check_texts(texts)]
        results: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(rows)
        with progress.task("reading", len(rows), "texts") as bar:
            for indices, ids, mask in batches(
                rows, self.tokenizer.pad_id, LOGITS // self.tokenizer.vocab_size
            ):
                logits = self._logits_at(ids, np.flatnonzero(mask), mask)
                ends = np.cumsum([len(rows[index]) for index in indices])
                for index, text_logits in zip(indices, np.split(logits, ends[:-1]), strict=True):
                    results[index] = text_logits
                bar.advance(len(indices))
        return results

    def score(self, texts: Iterable[str]) -> Iterator[Score]:
        """Compute the pseudo-log-likelihood of each text, in order, in constant memory.

        A longer text than the model reads is scored in parts. A mask counts as plain text.
        """
        source = check_texts(texts)
        with progress.task("scoring", unit="texts") as bar:
            while chunk := list(islice(source, CHUNK)):
                encoded = self.tokenizer.encode(chunk)
                for ids, (values, _) in zip(
                    encoded, self.log_likelihoods(encoded, within_word=False), strict=True
                ):
                    if not np.isfinite(values).all():
                        raise not_finite(self.name)
                    tokens = tuple(map(self.tokenizer.get_token, ids))
                    total = float(values.sum(dtype=np.float64))
                    yield Score(total, tokens, tuple(values.tolist()))
                    bar.advance()

    def log_likelihoods(
        self, encoded: Iterable[Sequence[int]], *, within_word: bool, tokens: int = BATCH_TOKENS
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Compute two pseudo-log-likelihoods of each token of texts, ids without special tokens,
        (n,) each.

        The first masks that token alone (Salazar et al. 2020, arXiv:1910.14659). The second masks
        the later tokens of its word too (Kauf and Ivanova 2023, arXiv:2305.10588): a model that
        sees them would find the first tokens of a rare word too likely. Without `within_word` both
        are equal. Texts longer than the model reads are scored in parts; a pass has `tokens` at
        most.
        """
        rows = MaskedRows(self._logits_at, self.tokenizer.vocab_size, tokens)
        starts = self.tokenizer.word_starts if within_word else None
        numbers = [self._ask(ids, starts, rows) for ids in encoded]
        rows.finish()
        values = np.array(rows.values, np.float32)
        return [(values[plain], values[within]) for plain, within in numbers]

    def _ask(
        self, ids: Sequence[int], starts: NDArray[np.bool_] | None, rows: MaskedRows
    ) -> tuple[list[int], list[int]]:
        """Ask for each token of a text, masked alone and within its word; return the questions."""
        plain: list[int] = []
        within: list[int] = []
        for begin in range(0, len(ids), self.length - 2):
            part = ids[begin : begin + self.length - 2]
            row = np.array(self._with_specials(part), np.int64)
            for position, (token, end) in enumerate(
                zip(part, find_word_ends(part, starts), strict=True), 1
            ):
                masked = row.copy()
                masked[position] = self.tokenizer.mask_id
                plain.append(rows.ask(masked, position, token))
                masked[position : end + 1] = self.tokenizer.mask_id
                within.append(rows.ask(masked, position, token) if end > position else plain[-1])
        return plain, within

    # -------------------------------------------------------------------------------------- of rows

    def compute_logits(
        self, row: Sequence[int], positions: Sequence[int], pause: Callable[[], None]
    ) -> Iterator[NDArray[np.float32]]:
        states = self.network.states(np.array([row]))
        for begin in range(0, len(positions), MASKS):
            pause()
            yield from self.network.logits(states, np.array(positions[begin : begin + MASKS]))

    def _with_specials(self, ids: Sequence[int]) -> list[int]:
        return [self.tokenizer.cls_id, *ids, self.tokenizer.sep_id]

    def _logits_at(
        self,
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float32]:
        return self.network.logits(self.network.states(ids, mask), positions)

    def guess_at(self, ids: Sequence[int], position: int, top: int) -> list[Guess]:
        """Guess the token at `position` of a sentence's ids, which have no special tokens."""
        row = self._with_specials(ids)
        row[position + 1] = self.tokenizer.mask_id
        logits = self._logits_at(np.array([row]), np.array([position + 1]))[0]
        return list_guesses(self.tokenizer, logits, top)


Example = tuple[str, str, str]
"""A sentence with a mask, the token behind the mask, and the likeliest guesses."""


def collect_examples(reader: MaskReader, split: Split) -> list[Example]:
    """Guess a word that is a single token in each of ten held-out sentences of ordinary length."""
    random, tokenizer = np.random.default_rng(0), reader.tokenizer
    starts = tokenizer.word_starts
    examples: list[Example] = []
    for document in random.permutation(split.documents):
        tokens, offsets = split.read_document(int(document))
        lengths = np.diff(offsets)
        usable = np.flatnonzero((lengths >= 8) & (lengths <= 32))
        if len(usable) == 0:
            continue
        sentence = int(random.choice(usable))
        ids = tokens[offsets[sentence] : offsets[sentence + 1]].astype(np.int64)
        alone = np.ones(len(ids), dtype=bool)
        if starts is not None:
            alone = starts[ids] & np.append(starts[ids[1:]], True)
        words = [
            i
            for i in np.flatnonzero(alone)
            if any(c.isalpha() for c in tokenizer.get_token(int(ids[i])))
        ]
        if not words:
            continue
        position = int(random.choice(words))
        before, after = tokenizer.decode(ids[:position]), tokenizer.decode(ids[position + 1 :])
        best = ", ".join(
            f"{guess.token} {guess.probability:.0%}"
            for guess in reader.guess_at(ids.tolist(), position, 3)
        )
        word = tokenizer.get_word(int(ids[position]))
        examples.append((f"{before} [MASK] {after}".strip(), word, best))
        if len(examples) == 10:
            break
    return examples
