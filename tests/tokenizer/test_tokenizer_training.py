"""Training a tokenizer: deterministic, within its budget, and clear about what a text allows."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer, child, training
from litebert.tokenizer.training import build_character_rules, sample_lines, train_tokenizer
from toys.refusals import refused
from toys.tokenizing import PROSE, Kind, train

pytestmark = pytest.mark.thorough


# ----------------------------------------------------------------------------------------- training


def train_fingerprint(kind: Kind, seed: int) -> str:
    # The memory is less than the corpus holds, so that the sample matters.
    return train(kind, 400, memory=60_000, seed=seed).fingerprint


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_training_is_deterministic(kind: Kind) -> None:
    """Each runs in its process, as commands do: sentencepiece's second model of one may differ."""
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        first, other, again = pool.starmap(
            train_fingerprint, [(kind, 1), (kind, 2), (kind, 1)], chunksize=1
        )
    assert first == again
    assert first != other


def test_training_holds_no_more_than_its_budget() -> None:
    def endless() -> Iterator[str]:
        draw = random.Random(5)
        for _ in range(4000):
            yield " ".join("".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(40))

    lines = sample_lines(endless(), 100_000, seed=3)
    assert 0.6 * 100_000 < sum(map(sys.getsizeof, lines)) <= 100_000


def test_sample_is_uniform_and_keeps_the_order() -> None:
    lines = [f"{i:04d}" + "x" * (i % 7 * 20) for i in range(400)]
    hits = np.zeros(400)
    for seed in range(300):
        sample = sample_lines(lines, 40_000, seed)
        assert sample == sorted(sample)
        hits[[int(line[:4]) for line in sample]] += 1
    share = hits.sum() / hits.size / 300
    chi_square = ((hits - 300 * share) ** 2 / (300 * share * (1 - share))).sum()
    assert 0.2 < share < 0.8
    assert abs(chi_square - 400) < 4 * np.sqrt(2 * 400)
    assert sample_lines(lines, 1 << 20, 0) == lines
    assert sample_lines(["a" * 999], 10, 0) == ["a" * 999]


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_too_large_a_vocabulary_names_the_largest(kind: Kind) -> None:
    text = ["the cat sat on the mat", "the dog sat on the log"]
    with refused(DataError, 5000) as caught:
        train_tokenizer(text, kind=kind, vocab_size=5000)
    (largest,) = {int(number) for number in re.findall(r"\d+", str(caught.value))} - {5000}
    assert train_tokenizer(text, kind=kind, vocab_size=largest).vocab_size == largest


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_too_small_a_vocabulary_is_refused(kind: Kind) -> None:
    with refused(DataError, "vocabulary", 5):
        train(kind, 5)


def test_a_vocabulary_of_bytes_alone_is_the_smallest(bpe: Tokenizer) -> None:
    with refused(DataError, "vocabulary", 260, 261):
        train("bpe", 260)
    assert len(train("bpe", 261).encode(["the é"])[0]) == len(" the é".encode())


def test_bpe_merges_the_most_frequent_pairs_first() -> None:
    tokenizer = train_tokenizer(["aa aab ab"] * 3, kind="bpe", vocab_size=264)
    # The first word of a line gets its space: " a" nine times, then " aa" six times, then of a tie
    # the earlier letters.
    assert [tokenizer.get_token(i) for i in range(260, 263)] == ["Ġa", "Ġaa", "Ġab"]


@pytest.mark.parametrize("options", [{"lower_case": True}, {"strip_accents": True}])
def test_bpe_refuses_to_lose_text(options: dict[str, bool]) -> None:
    with refused(DataError, "bpe", "lower-cases", "accents"):
        train_tokenizer(["a"], kind="bpe", vocab_size=300, **options)
    train("bpe", 400, lower_case=False)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
@pytest.mark.parametrize("texts", [[], ["", " \n\t "]])
def test_no_text_is_refused(kind: Kind, texts: list[str]) -> None:
    with refused(DataError):
        train_tokenizer(texts, kind=kind, vocab_size=100)


def test_a_report_of_the_library_becomes_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "USER_DEFINED_SYMBOLS", ("a\nb",) * 3)
    with refused(DataError, 333, "already defined"):
        train_tokenizer(PROSE, kind="unigram", vocab_size=333)


@pytest.mark.parametrize("size", [0, -5, 10**9, 10**12])
@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_a_size_that_no_vocabulary_has_is_refused(kind: Kind, size: int) -> None:
    with refused(DataError, size):
        train_tokenizer(["a b"], kind=kind, vocab_size=size)


def test_a_trainer_that_is_killed_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(child, "__file__", str(program))
    with refused(DataError, "signal 9", "--sample-mib"):
        train_tokenizer(PROSE, kind="wordpiece", vocab_size=300)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_the_largest_vocabulary_that_a_text_allows(kind: Kind, log_messages: list[str]) -> None:
    text = ["the cat sat on the mat", "the dog sat on the log"]
    tokenizer = train_tokenizer(text, kind=kind, vocab_size=5000, shrink=True)
    assert 15 < tokenizer.vocab_size < 100
    assert any(str(tokenizer.vocab_size) in line and "5000" in line for line in log_messages)


def test_training_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    train("wordpiece", 401)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_unknown_kind_is_refused() -> None:
    with refused(DataError, "'unigrams'", "'unigram'"):
        train("unigrams")


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_thousands_of_characters_fit_a_small_vocabulary(kind: Kind) -> None:
    draw = random.Random(0)
    ideographs = [chr(0x4E00 + i) for i in range(3000)]
    weights = [1 / (i + 1) for i in range(3000)]
    texts = ["".join(draw.choices(ideographs, weights, k=60)) + "。" for _ in range(600)]
    tokenizer = train_tokenizer(texts, kind=kind, vocab_size=500)
    assert tokenizer.vocab_size == 500
    flat, _ = tokenizer.encode_flat(texts)
    decoded = tokenizer.decode(tokenizer.encode([ideographs[0] * 3 + ideographs[5]])[0]).replace(
        " ", ""
    )
    assert decoded == ideographs[0] * 3 + ideographs[5]
    assert (flat == tokenizer.unk_id).mean() < 0.35


def test_rare_letters_of_a_small_alphabet_are_kept() -> None:
    tokenizer = train_tokenizer(
        [*PROSE, "an é, once in all the text"], kind="unigram", vocab_size=900
    )
    assert tokenizer.unk_id not in tokenizer.encode(["é"])[0]


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_accents_and_case(kind: Kind) -> None:
    accented, stripped, cased = (
        train(kind),
        train(kind, strip_accents=True),
        train(kind, lower_case=False),
    )
    assert accented.normalize("Café ÜBER Straße Ærø") == "café über straße ærø"
    assert stripped.normalize("Café ÜBER Straße Ærø") == "cafe uber straße ærø"
    assert cased.normalize("Café ÜBER") == "Café ÜBER"
    assert accented.encode(["CAFÉ"]) == accented.encode(
        ["cafe\u0301" if kind == "unigram" else "café"]
    )
    assert stripped.encode(["Où"]) == stripped.encode(["ou"])


def test_stripping_accents_leaves_other_letters_whole() -> None:
    rules = build_character_rules(lower_case=True, strip_accents=True)
    assert rules["\u0301"] == ""
    assert rules["É"] == "e"
    assert "한" not in rules  # composed again, not left in its parts
    assert build_character_rules(lower_case=False, strip_accents=False)["ﬁ"] == "fi"


def test_raw_sentencepiece_reads_our_model_alike(unigram: Tokenizer) -> None:
    raw = sentencepiece.SentencePieceProcessor(
        model_proto=unigram.engine.make_files()["spiece.model"]
    )
    for text in ["École e\u0301cole", "The CAT  sat.\tﬁne", "吾輩は猫", "soft\u00adhyphen"]:
        assert raw.encode(text) == unigram.encode([text])[0]
