"""What a pretrained model predicts at masks: logits, guesses for masks, and pseudo-log-likelihoods
of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert import progress
from litebert.answer.mask_texts import Guess, guesses, masked_row, places_of, word_of
from litebert.answer.masked_rows import LOGITS, MaskedRows
from litebert.answer.predicting import not_finite
from litebert.answer.vectors import BATCH_TOKENS, CHUNK, batches, texts_of
from litebert.data.shards import Split
from litebert.errors import ModelError
from litebert.interop import LoadedModel
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.words import find_word_ends

MASKS = 16
"""Masks of a text whose logits are computed at a time."""


@dataclass(frozen=True)
class Score:
    """How likely a model finds a text, each token given all others (Salazar et al. 2020,
    arXiv:1910.14659).
    """

    log_likelihood: float
    """The sum of `token_log_likelihoods`, in nats; higher is better, and longer texts have less."""
    tokens: tuple[str, ...]
    """Pieces, as the vocabulary writes them."""
    token_log_likelihoods: tuple[float, ...]

    @property
    def perplexity(self) -> float:
        """The pseudo-perplexity, which does not depend on the length; not a number of a text
        without tokens.
        """
        return (
            float(np.exp(-self.log_likelihood / len(self.tokens))) if self.tokens else float("nan")
        )


@dataclass(frozen=True)
class MaskReader:
    """A pretrained model with its tokenizer, on a device, that reads masked text.

    Shapes: S tokens of a row, V vocabulary, K masked positions.
    """

    network: Pretrainer
    tokenizer: Tokenizer
    name: str
    """Of the objective whose head guesses."""
    length: int
    """Longest row in tokens, special ones included."""

    @classmethod
    def of(cls, loaded: LoadedModel, device: torch.device) -> MaskReader:
        """The reader of a model folder.

        Raises:
            ModelError: the model cannot guess masked tokens.
        """
        network, path = loaded.model, loaded.path
        if not isinstance(network, Pretrainer):
            raise ModelError(
                f"{path} is fine-tuned and can no longer guess masked tokens; give the "
                "pretrained model"
            )
        if loaded.tokenizer is None:
            raise ModelError(
                f"{path} has no tokenizer; put the one it was trained with there, or name "
                "it with --tokenizer"
            )
        heads = [
            name
            for name, objective in network.named_objectives.items()
            if isinstance(objective, MaskedLanguageModeling)
        ]
        if not heads or heads[0] in loaded.untrained:
            raise ModelError(
                f"{path} has no trained head for masked tokens (mlm); give a model that "
                "was pretrained "
                "with one, with its head"
            )
        network.to(device).eval()
        return cls(network, loaded.tokenizer, heads[0], loaded.config.sequences.length)

    # ----------------------------------------------------------------------------------- from texts

    def logits(self, texts: Iterable[str]) -> list[NDArray[np.float32]]:
        """(S, V) for each text: of every token of `[CLS] text [SEP]`. A mask in a text is read as
        one, as in `fill`.

        Raises:
            DataError: a text is too long, or something is no text.
        """
        rows = [self.row(text) for text in texts_of(texts)]
        found: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(rows)
        with progress.task("reading", len(rows), "texts") as bar:
            for places, ids, mask in batches(
                rows, self.tokenizer.pad_id, LOGITS // self.tokenizer.vocab_size
            ):
                logits = self._at(ids, torch.from_numpy(np.flatnonzero(mask)), mask).cpu().numpy()
                lengths = [len(rows[place]) for place in places]
                for place, own in zip(
                    places, np.split(logits, np.cumsum(lengths)[:-1]), strict=True
                ):
                    found[place] = own
                bar.advance(len(places))
        return found

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The `top` likeliest pieces for each mask of a text, in order, the likeliest first.

        A mask is written [MASK], <mask>, as the tokenizer writes its own, or as three or more
        underscores. Each is guessed on its own, while the others are masked; special pieces are
        never guessed.

        Raises:
            DataError: the text has no mask, or is too long.
            ConfigError: `top` is less than 1.
            ModelError: a logit is not a finite number.
        """
        (text,) = texts_of([text])
        row = self.row(text)
        return self.fill_row(row, places_of(self.tokenizer, row, text, top), top)

    def fill_row(
        self,
        row: Sequence[int],
        places: Sequence[int],
        top: int,
        pause: Callable[[], None] = lambda: None,
    ) -> list[list[Guess]]:
        """Do the same for a row that `masked_row` made, with masks at `places`.

        Args:
            pause: called before each mask, for a program that does other work in between.
        """
        states, found = self._states(np.array([row])), list[list[Guess]]()
        for begin in range(0, len(places), MASKS):
            pause()
            logits = self._logits(states, torch.tensor(places[begin : begin + MASKS]))
            if not logits.isfinite().all():
                raise not_finite("the model")
            for values in logits:
                pause()
                found.append(guesses(self.tokenizer, values.cpu().numpy(), top))
        return found

    def score(self, texts: Iterable[str]) -> Iterator[Score]:
        """The pseudo-log-likelihood of each text, in order and in constant memory: each token is
        masked in turn.

        A text that is longer than the model reads is scored in parts, each on its own. A mask in a
        text is text here.

        Raises:
            DataError: something is no text.
            ModelError: a log-likelihood is not a finite number.
        """
        source = texts_of(texts)
        with progress.task("scoring", unit="texts") as bar:
            while chunk := list(islice(source, CHUNK)):
                encoded = self.tokenizer.encode(chunk)
                for ids, (own, _) in zip(
                    encoded, self.log_likelihoods(encoded, within_word=False), strict=True
                ):
                    if not np.isfinite(own).all():
                        raise not_finite("the model")
                    pieces = tuple(map(self.tokenizer.get_token, ids))
                    yield Score(float(own.sum(dtype=np.float64)), pieces, tuple(own.tolist()))
                    bar.advance()

    def log_likelihoods(
        self, encoded: Iterable[Sequence[int]], *, within_word: bool, tokens: int = BATCH_TOKENS
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Two pseudo-log-likelihoods of each token, (n,) each, of texts given as ids without
        special pieces.

        The first masks that token alone (Salazar et al. 2020, arXiv:1910.14659). The second masks
        the later pieces of its word too (Kauf and Ivanova 2023, arXiv:2305.10588), since a model
        that sees them finds the first pieces of a rare word too likely; without `within_word`, or
        where the tokenizer does not know words, it is the first one. Texts that are longer than the
        model reads are scored in parts. `tokens`: most in a forward pass.
        """
        asked = MaskedRows(self._at, self.tokenizer.vocab_size, tokens)
        starts = self.tokenizer.word_starts if within_word else None
        numbers = [self._ask(ids, starts, asked) for ids in encoded]
        asked.finish()
        values = np.array(asked.values, np.float32)
        return [(values[plain], values[within]) for plain, within in numbers]

    def _ask(
        self, ids: Sequence[int], starts: NDArray[np.bool_] | None, asked: MaskedRows
    ) -> tuple[list[int], list[int]]:
        """The numbers of the questions about a text, for each token: of itself masked alone, and
        within its word.
        """
        plain: list[int] = []
        within: list[int] = []
        for begin in range(0, len(ids), self.length - 2):
            part = ids[begin : begin + self.length - 2]
            row = np.array(self._with_specials(part), np.int64)
            for place, (piece, end) in enumerate(
                zip(part, find_word_ends(part, starts), strict=True), 1
            ):
                masked = row.copy()
                masked[place] = self.tokenizer.mask_id
                plain.append(asked.ask(masked, place, piece))
                masked[place : end + 1] = self.tokenizer.mask_id
                within.append(asked.ask(masked, place, piece) if end > place else plain[-1])
        return plain, within

    # -------------------------------------------------------------------------------------- of rows

    def row(self, text: str) -> list[int]:
        """The ids of `[CLS] text [SEP]`, with a mask where the text has one; see `masked_row`."""
        return masked_row(self.tokenizer, text, self.length)

    def _with_specials(self, ids: Sequence[int]) -> list[int]:
        return [self.tokenizer.cls_id, *ids, self.tokenizer.sep_id]

    def _at(
        self, ids: NDArray[np.int64], places: Tensor, mask: NDArray[np.bool_] | None = None
    ) -> Tensor:
        """float32 (K, V) logits at flat positions of rows; `mask` says where tokens stand and no
        padding.
        """
        return self._logits(self._states(ids, mask), places)

    @property
    def _objective(self) -> MaskedLanguageModeling:
        objective = self.network.named_objectives[self.name]
        assert isinstance(objective, MaskedLanguageModeling)
        return objective

    @torch.no_grad()
    def _states(self, ids: NDArray[np.int64], mask: NDArray[np.bool_] | None = None) -> Tensor:
        """(R, S, H) last states of rows."""
        device = self.network.encoder.embedding.word.weight.device
        attention = None if mask is None or mask.all() else torch.from_numpy(mask).to(device)
        context = self.network.context(self.name)
        return self._objective.read(context, torch.from_numpy(ids).to(device), None, attention).last

    @torch.no_grad()
    def _logits(self, states: Tensor, places: Tensor) -> Tensor:
        """float32 (K, V) logits at flat positions of states."""
        return self._objective.guesses(
            states, places.to(states.device), self.network.context(self.name)
        ).float()

    def guess_at(self, ids: Sequence[int], position: int, top: int) -> list[Guess]:
        """Guesses for the piece at `position` of a sentence's ids, special ones not among them."""
        row = self._with_specials(ids)
        row[position + 1] = self.tokenizer.mask_id
        logits = self._at(np.array([row]), torch.tensor([position + 1]))[0]
        return guesses(self.tokenizer, logits.cpu().numpy(), top)


Example = tuple[str, str, str]
"""A sentence with one piece masked, the piece that stood there, and the best guesses with their
probabilities.
"""


def examples(reader: MaskReader, split: Split) -> list[Example]:
    """Guesses in ten held-out sentences of ordinary length, each masking one word that is one
    piece.
    """
    random, tokenizer = np.random.default_rng(0), reader.tokenizer
    starts = tokenizer.word_starts
    found: list[Example] = []
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
        place = int(random.choice(words))
        before, after = tokenizer.decode(ids[:place]), tokenizer.decode(ids[place + 1 :])
        best = ", ".join(
            f"{guess.token} {guess.probability:.0%}"
            for guess in reader.guess_at(ids.tolist(), place, 3)
        )
        found.append(
            (f"{before} [MASK] {after}".strip(), word_of(tokenizer, int(ids[place])), best)
        )
        if len(found) == 10:
            break
    return found
