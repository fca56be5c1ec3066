"""Vectors, logits, guesses and pseudo-log-likelihoods of pretrained models, against
`transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.answer.model import Model, load
from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.base.registry import OBJECTIVES
from litebert.change.conversion import convert
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.folders import save_litebert, small_tokenizer, tiny
from toys.refusals import refused

TEXTS = ["bado toto kumi.", "", "Kumi mimi lala so ti bado, kumi!", "fa"]
LENGTH = 24


def folder_of(
    folder: Path, words: Tokenizer, objectives: tuple[str, ...] = ("mlm",), more_rows: int = 0
) -> Path:
    """An ALBERT with random weights of some size, and rows for tokens that it does not have."""
    encoder = EncoderConfig(
        vocab_size=words.vocab_size + more_rows,
        embedding_size=8,
        hidden_size=16,
        layers=2,
        heads=2,
        intermediate_size=32,
        max_positions=LENGTH,
        sharing="all",
        always_project=True,
        activation="gelu_tanh",
        pooler="sop" in objectives,
    )
    config = Config(
        name="tiny", encoder=encoder, sequences=SequenceConfig(length=LENGTH), objectives=objectives
    )
    model, generator = Pretrainer(config), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    save_litebert(model, words, folder)
    return folder


@pytest.fixture(scope="module")
def folder(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("made") / "pretrained", Tokenizer.load(tiny_tokenizer))


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder)


@pytest.fixture(scope="module")
def peer(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoModelForMaskedLM

    target = tmp_path_factory.mktemp("hf") / "hf"
    convert(folder, target, to="hf")
    return AutoModelForMaskedLM.from_pretrained(target).eval()


def row(model: Model, text: str) -> list[int]:
    assert model.tokenizer is not None
    return [model.tokenizer.cls_id, *model.tokenizer.encode([text])[0], model.tokenizer.sep_id]


@torch.no_grad()
def test_logits(model: Model, peer: Any) -> None:
    for text, logits in zip(TEXTS, model.logits(TEXTS), strict=True):
        expected = peer(torch.tensor([row(model, text)])).logits[0].numpy()
        np.testing.assert_allclose(logits, expected, atol=2e-5)


@torch.no_grad()
def test_vectors_are_the_mean_of_the_states_of_a_text(model: Model, peer: Any) -> None:
    vectors = model.encode(TEXTS)
    assert vectors.shape == (4, 16)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        states = peer.base_model(torch.tensor([row(model, text)])).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0).numpy(), atol=2e-5)
    assert model.encode([]).shape == (0, 16)
    long = " ".join(["bado"] * 100)
    again = load(model.path).encode(text for text in [long, *TEXTS * 600])
    np.testing.assert_allclose(again[1:5], vectors, atol=1e-5)
    np.testing.assert_allclose(again[-4:], vectors, atol=1e-5)


def test_rows_without_a_token_are_never_guessed(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Published tables are longer than their vocabulary."""
    words = Tokenizer.load(tiny_tokenizer)
    model = load(folder_of(tmp_path / "longer", words, more_rows=64))
    (guesses,) = model.fill_mask("bado [MASK] kumi", top=1000)
    everything = {*range(words.vocab_size)} - {*words.special_ids}
    assert {guess.id for guess in guesses} == everything


class Reversed(MaskedLanguageModeling):
    """Guesses of a way of its own, which compiled calls do not know."""

    def guesses(self, *arguments: Any) -> torch.Tensor:
        return -super().guesses(*arguments)


def test_guesses_of_an_objective_of_ones_own_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OBJECTIVES, "_parts", {**OBJECTIVES._parts, "mlm": Reversed})
    save_litebert(tiny(("mlm",)), small_tokenizer(), tmp_path / "m")
    own, expected = (load(tmp_path / "m", engine=engine) for engine in ("compiled", "torch"))
    for actual, logits in zip(own.logits(["reading"]), expected.logits(["reading"]), strict=True):
        np.testing.assert_allclose(actual, logits, atol=1e-5)


def test_targets_have_their_probabilities(model: Model) -> None:
    (every,) = model.fill_mask("bado [MASK] kumi", top=1000)
    share = {guess.id: guess.probability for guess in every}
    words = model.tokenizer
    assert words is not None
    pieces = [words.get_token(token) for token in (*share,)[-3:]]  # parts of words, too
    (found,) = model.fill_mask("bado [MASK] kumi", targets=["ba", *pieces, "ba"])
    assert [guess.probability for guess in found] == sorted(
        (share[guess.id] for guess in found), reverse=True
    )
    assert {words.get_token(guess.id) for guess in found} >= {*pieces}
    for wrong in (["ba", "bado kumi bado"], [], ["[MASK]"], "ba", [3]):
        with refused(DataError):
            model.fill_mask("bado [MASK]", targets=wrong)  # type: ignore[arg-type]


@torch.no_grad()
def test_a_score_masks_each_token_in_turn(model: Model, peer: Any) -> None:
    assert model.tokenizer is not None
    for text, score in zip(TEXTS, model.score(TEXTS), strict=True):
        ids = row(model, text)
        expected = []
        for place in range(1, len(ids) - 1):
            masked = [*ids[:place], model.tokenizer.mask_id, *ids[place + 1 :]]
            logits = peer(torch.tensor([masked])).logits[0, place]
            expected.append(float(logits.log_softmax(-1)[ids[place]]))
        assert score.token_log_likelihoods == pytest.approx(expected, abs=1e-4)
        assert score.log_likelihood == pytest.approx(sum(expected), abs=1e-3)
        assert score.tokens == tuple(model.tokenizer.get_token(token) for token in ids[1:-1])
        if expected:
            assert score.perplexity == pytest.approx(np.exp(-np.mean(expected)), rel=1e-4)


def test_a_long_text_is_scored_in_parts(model: Model) -> None:
    (whole,) = model.score([" ".join(["bado"] * 40)])
    assert len(whole.tokens) > 2 * LENGTH
    assert all(value < 0 for value in whole.token_log_likelihoods)


def test_guesses_are_of_the_logits_of_the_mask(model: Model) -> None:
    assert model.tokenizer is not None
    first, second = model.fill_mask("bado [MASK] kumi ___.", top=4)
    (logits,) = model.logits(["bado <mask> kumi [MASK]."])
    places = [
        place
        for place, token in enumerate(model.mask_reader.row("bado ___ kumi ___."))
        if token == model.tokenizer.mask_id
    ]
    for guesses, place in zip((first, second), places, strict=True):
        likely = torch.from_numpy(logits[place]).softmax(-1).numpy()
        assert len(guesses) == 4
        assert [guess.probability for guess in guesses] == sorted(
            (g.probability for g in guesses), reverse=True
        )
        for guess in guesses:
            assert guess.probability == pytest.approx(float(likely[guess.id]), abs=1e-6)
            assert guess.id not in model.tokenizer.special_ids


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_a_mask_takes_the_place_of_a_word(kind: Any, tiny_corpus: Path, tmp_path: Path) -> None:
    """Text around a mask is cut as if the word stood there."""
    words = train_tokenizer(tiny_corpus.read_text().split("\n\n"), kind=kind, vocab_size=400)
    reader = load(folder_of(tmp_path / "m", words)).mask_reader
    starts, pieces = words.word_starts, [words.decode([i]).strip() for i in range(words.vocab_size)]
    assert starts is not None
    word = next(
        piece
        for i, piece in enumerate(pieces)
        if starts[i] and piece.isalpha() and words.encode([f"so {piece}."])[0][-2] == i
    )
    ids = words.encode([f"so {word}."])[0]
    masked = [words.cls_id, *ids[:-2], words.mask_id, ids[-1], words.sep_id]
    for mask in ("[MASK]", "<mask>", "___", words.get_token(words.mask_id)):
        assert reader.row(f"so {mask}.") == masked
    assert reader.row("[MASK] [MASK]").count(words.mask_id) == 2
    assert reader.row("[MASK][MASK]").count(words.mask_id) == 2


def test_what_cannot_be_asked(model: Model, tiny_tokenizer: Path, tmp_path: Path) -> None:
    with refused(DataError, "[MASK]"):
        model.fill_mask("bado")
    with refused(ConfigError, "top", 0):
        model.fill_mask("[MASK]", top=0)
    with refused(DataError, LENGTH):
        model.fill_mask("bado kumi " * 20 + "[MASK]")
    with refused(DataError, "text 2", 7):
        model.encode(["ba", 7])  # type: ignore[list-item]
    with refused(DataError, "'ba'"):
        model.score("ba")
    with refused(ModelError, model.path):
        model.predict(["ba"])
    bare = folder_of(tmp_path / "bare", Tokenizer.load(tiny_tokenizer), ("sop",))
    for ask in (load(bare).score, load(bare).logits):
        with refused(ModelError, bare, "mlm"):
            ask(["ba"])
    assert load(bare).encode(["ba"]).shape == (1, 16)
