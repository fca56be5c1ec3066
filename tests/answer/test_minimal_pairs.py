"""Minimal pairs: sums against `transformers` masking one token at a time, accuracies, and `evaluate
--blimp`.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert import evaluate_blimp
from litebert.answer.masks.minimal_pairs import read_paradigms, score_paradigms
from litebert.answer.masks.reading import MaskReader
from litebert.answer.model import load
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys import families
from toys.folders import save_litebert
from toys.refusals import names

Output = tuple[int, str, str]
LENGTH = 40
FAMILY = {"unigram": "Albert", "wordpiece": "Bert", "bpe": "Roberta"}


def foreign(folder: Path, words: Tokenizer, family: str = "Albert", head: str = "mlm") -> Any:
    """A random model of `transformers` in a folder with a tokenizer."""
    model = families.build_peer(
        family,
        head,
        vocab_size=words.vocab_size,
        max_position_embeddings=LENGTH,
        pad_token_id=words.pad_id,
    )
    model.save_pretrained(folder)
    words.save(folder)
    return model


@pytest.fixture(scope="module")
def words(tiny_tokenizer: Path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


@pytest.fixture(scope="module")
def albert(words: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign") / "albert"
    foreign(folder, words)
    return folder


@pytest.fixture(scope="module")
def sentences(tiny_corpus: Path) -> list[str]:
    text = tiny_corpus.read_text(encoding="utf-8").replace("\n", " ")
    return [
        " ".join(sentence.split()[:6]) + "."
        for sentence in text.split(".")[:80]
        if len(sentence.split()) > 2
    ]


def write(path: Path, pairs: Sequence[Sequence[str]], **fields: object) -> Path:
    lines = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, **fields}) for good, bad in pairs
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# --------------------------------------------------------------------------------------------- sums


@torch.no_grad()
def one_at_a_time(peer: Any, words: Tokenizer, text: str, within_word: bool) -> float:
    """The reference: a plain loop, one forward pass for each token; the words are those that a
    person sees.
    """
    ids, spans = words.encode_offsets([text])[0]
    seen = [match.start() for match in re.finditer(r"\w+|[^\w\s]", text)]
    begins = [
        next(start for start, end in spans[i:].tolist() if start < end) for i in range(len(ids))
    ]  # "▁" is empty
    word_of = [sum(start <= begin for start in seen) for begin in begins]
    row, total = [words.cls_id, *ids.tolist(), words.sep_id], 0.0
    for i in range(len(ids)):
        masked = list(row)
        for j in range(i, len(ids)):
            if j == i or (within_word and word_of[j] == word_of[i]):
                masked[j + 1] = words.mask_id
        logits = peer(torch.tensor([masked])).logits[0, i + 1].double()
        total += float(logits.log_softmax(-1)[row[i + 1]])
    return total


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_sums_are_those_of_one_token_at_a_time(
    kind: Any, tiny_corpus: Path, sentences: list[str], tmp_path: Path
) -> None:
    words = train_tokenizer(tiny_corpus.read_text().split("\n\n"), kind=kind, vocab_size=300)
    peer = foreign(tmp_path / "m", words, FAMILY[kind])
    texts = ["Bado toto, tukapu fa.", *sentences[:2]]
    encoded = words.encode(texts)
    likelihoods = load(tmp_path / "m").mask_reader.log_likelihoods(encoded, within_word=True)
    for text, ids, (plain, within) in zip(texts, encoded, likelihoods, strict=True):
        assert len(plain) == len(within) == len(ids)
        assert plain.sum() == pytest.approx(one_at_a_time(peer, words, text, False), abs=1e-4)
        assert within.sum() == pytest.approx(one_at_a_time(peer, words, text, True), abs=1e-4)
        assert not np.array_equal(plain, within), "no word of several pieces"


def test_the_size_of_batches_changes_nothing(
    albert: Path, words: Tokenizer, sentences: list[str]
) -> None:
    reader, encoded = load(albert).mask_reader, words.encode(sentences[:20])
    separately, all_at_once = (
        reader.log_likelihoods(encoded, within_word=True, tokens=tokens) for tokens in (1, 1 << 20)
    )
    for few, many in zip(separately, all_at_once, strict=True):
        np.testing.assert_allclose(few, many, atol=1e-5)


def test_each_distinct_row_is_read_once(
    albert: Path, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences that differ in one word share the row that masks it; special pieces are never
    masked.
    """
    read: list[tuple[int, ...]] = []
    inner = MaskReader._logits_at

    def listening(self: MaskReader, ids: Any, *rest: Any) -> Any:
        read.extend(map(tuple, ids.tolist()))
        return inner(self, ids, *rest)

    monkeypatch.setattr(MaskReader, "_logits_at", listening)
    ids = [[7, 8, 9, 10], [7, 8, 11, 10], [7, 8, 9, 10]]
    first, second, third = load(albert).mask_reader.log_likelihoods(ids, within_word=False)
    assert len(read) == len(set(read)) == 7
    assert np.array_equal(first, third)
    assert first[0][2] != second[0][2]
    for row in read:
        assert (row[0], row[-1], row.count(words.mask_id)) == (words.cls_id, words.sep_id, 1)


# --------------------------------------------------------------------------------------- accuracies


def test_ties_are_wrong(words: Tokenizer, sentences: list[str], tmp_path: Path) -> None:
    """No sentence is likelier than another of as many pieces, where every piece is as likely."""
    shape = EncoderConfig(
        vocab_size=words.vocab_size,
        embedding_size=8,
        hidden_size=8,
        layers=1,
        heads=2,
        intermediate_size=16,
        max_positions=LENGTH,
    )
    model = Pretrainer(
        Config(
            name="x", encoder=shape, sequences=SequenceConfig(length=LENGTH), objectives=("mlm",)
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    save_litebert(model, words, tmp_path / "constant")
    shuffled = [
        " ".join(random.Random(0).sample(sentence.split(), len(sentence.split())))
        for sentence in sentences
    ]
    pairs = [
        (sentence, other)
        for sentence, other in zip(sentences, shuffled, strict=True)
        if len(words.encode([sentence])[0]) == len(words.encode([other])[0])
    ]
    assert len(pairs) > 20
    result = evaluate_blimp(tmp_path / "constant", write(tmp_path / "p.jsonl", pairs))
    for score in (result.overall.plain, result.overall.within_word):
        assert score is not None
        assert (score.accuracy, score.standard_error) == (0, 0)


def test_accuracies_and_their_errors(albert: Path, sentences: list[str], tmp_path: Path) -> None:
    folder, draw = tmp_path / "pairs", random.Random(1)
    pairs = [draw.sample(sentences, 2) for _ in range(60)]
    write(
        folder / "a.jsonl.gz",
        pairs[:20],
        UID="a",
        linguistics_term="agreement",
        field="syntax",
        pairID="0",
    )
    write(folder / "b.jsonl", pairs[20:30], UID="b", linguistics_term="agreement", field="syntax")
    write(folder / "deeper" / "plain.jsonl", [*pairs[30:59], (sentences[0], sentences[0])])
    result = evaluate_blimp(albert, folder)
    named = [
        (paradigm.name, paradigm.phenomenon, paradigm.field, paradigm.pairs)
        for paradigm in result.paradigms
    ]
    assert named == [
        ("a", "agreement", "syntax", 20),
        ("b", "agreement", "syntax", 10),
        ("plain", "plain", "", 30),
    ]
    assert Path(result.paradigms[0].file) == folder / "a.jsonl.gz"
    model = load(albert)
    for paradigm, expected_pairs in zip(
        result.paradigms, (pairs[:20], pairs[20:30], pairs[30:59]), strict=True
    ):
        good, bad = (
            [score.log_likelihood for score in model.score(texts)]
            for texts in zip(*expected_pairs, strict=True)
        )
        right = sum(g > b for g, b in zip(good, bad, strict=True)) / paradigm.pairs
        assert 0 < right < 1
        assert paradigm.plain.accuracy == right
        assert paradigm.plain.standard_error == pytest.approx(
            math.sqrt(right * (1 - right) / paradigm.pairs)
        )
    for form in ("plain", "within_word"):
        a, b, c = (getattr(paradigm, form) for paradigm in result.paradigms)
        agreement, alone = (getattr(phenomenon, form) for phenomenon in result.phenomena)
        assert agreement.accuracy == pytest.approx((a.accuracy + b.accuracy) / 2)
        assert agreement.standard_error == pytest.approx(
            math.hypot(a.standard_error, b.standard_error) / 2
        )
        assert alone == c
        overall = getattr(result.overall, form)
        assert overall.accuracy == pytest.approx((a.accuracy + b.accuracy + c.accuracy) / 3)
        errors = (accuracy.standard_error for accuracy in (a, b, c))
        assert overall.standard_error == pytest.approx(math.hypot(*errors) / 3)
    assert [
        (phenomenon.name, phenomenon.paradigms, phenomenon.pairs) for phenomenon in result.phenomena
    ] == [
        ("agreement", 2, 30),
        ("plain", 1, 30),
    ]
    assert (result.overall.paradigms, result.overall.pairs, result.in_parts) == (3, 60, 0)


def test_a_file_of_several_paradigms(tmp_path: Path) -> None:
    parts = [write(tmp_path / uid, [("a", "b")] * 3, UID=uid).read_text() for uid in "xy"]
    (tmp_path / "both.jsonl").write_text("\n".join(parts))
    assert [
        (paradigm.name, len(paradigm.pairs))
        for paradigm in read_paradigms(tmp_path / "both.jsonl", 2)
    ] == [
        ("x", 2),
        ("y", 2),
    ]


def test_a_tokenizer_that_does_not_know_words(
    albert: Path, sentences: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "word_starts", None)
    result = evaluate_blimp(albert, write(tmp_path / "p.jsonl", [sentences[:2]]))
    groups: list[Any] = [result.overall, *result.phenomena, *result.paradigms]
    assert [group.within_word for group in groups] == [None] * 3
    assert result.rows()[-1][-1] == "-"


@pytest.mark.thorough
def test_the_paradigms_of_blimp(shared_data: Path, albert: Path) -> None:
    paradigms = read_paradigms(shared_data / "blimp")
    assert (len(paradigms), {len(paradigm.pairs) for paradigm in paradigms}) == (34, {1000})
    assert all(Path(paradigm.file).name == f"{paradigm.name}.jsonl.gz" for paradigm in paradigms)
    assert len({paradigm.phenomenon for paradigm in paradigms}) == 13
    result = score_paradigms(
        load(albert), [replace(paradigm, pairs=paradigm.pairs[:1]) for paradigm in paradigms]
    )
    assert (result.overall.paradigms, result.overall.pairs) == (34, 34)


# ----------------------------------------------------------------------------------------- the verb


def test_the_verb(
    run: Callable[..., Output], albert: Path, sentences: list[str], tiny_data: Path, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "p.jsonl",
        [sentences[i : i + 2] for i in range(0, 20, 2)],
        linguistics_term="binding",
    )
    status, out, err = run("evaluate", albert, "--blimp", file, "--max-pairs", 4)
    assert status == 0, err
    assert re.search(r"^binding +1 +4 +\d+\.\d% ± \d+\.\d% ", out, re.M)
    status, out, _ = run("evaluate", albert, "--blimp", tmp_path, "--json")
    assert status == 0
    report = json.loads(out)
    assert set(report) == {"model", "blimp"}
    (paradigm,) = report["blimp"]["paradigms"]
    assert (paradigm["name"], paradigm["pairs"], paradigm["file"]) == ("p", 10, str(file))
    assert report["blimp"]["overall"]["plain"] == paradigm["plain"]
    both = ("evaluate", albert, "--blimp", file, "--shards", tiny_data, "--sequences", 4)
    status, out, err = run(*both, "--json")
    assert status == 0, err
    assert json.loads(out)["blimp"] == report["blimp"]
    assert "mlm_loss" in json.loads(out)["scores"]
    assert "blimp" not in json.loads(run("evaluate", albert, *both[4:], "--json")[1])


def test_sentences_longer_than_the_model(
    run: Callable[..., Output], albert: Path, sentences: list[str], tmp_path: Path
) -> None:
    long = " ".join(sentences[:10])
    status, out, err = run(
        "evaluate", albert, "--blimp", write(tmp_path / "p.jsonl", [(sentences[0], long)]), "--json"
    )
    assert (status, json.loads(out)["blimp"]["in_parts"]) == (0, 1)
    assert json.loads(out)["blimp"]["overall"]["plain"]["accuracy"] == 1
    names(next(line for line in err.splitlines() if "warning" in line), LENGTH)


GOOD = '{"sentence_good": "a", "sentence_bad": "b"}\n'


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", ()),
        (GOOD + "{", (2,)),
        (GOOD + "[1]", (2,)),
        (GOOD + '{"sentence_good": "a"}', (2, "sentence_bad")),
        (GOOD + '{"good": "a", "bad": "b"}', (2, "sentence_good")),
        ('{"sentence_good": "a", "sentence_bad": null}', (1, "sentence_bad")),
        (GOOD + '{"sentence_good": " ", "sentence_bad": "b"}', (2, "sentence_good")),
        (GOOD + '{"sentence_good": "a", "sentence_bad": "\\u200b"}', (2, "sentence_bad")),
    ],
)
def test_malformed_files(
    text: str, places: tuple[object, ...], run: Callable[..., Output], albert: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text(text)
    one_sentence(run("evaluate", albert, "--blimp", tmp_path), tmp_path / "p.jsonl", *places)


def one_sentence(output: Output, *places: object) -> None:
    status, out, err = output
    assert (status, out) == (2, "")
    *progress, last = err.splitlines()
    assert all(line.endswith(" so far") for line in progress)  # on a slow machine
    names(last, *places)


def test_what_cannot_be_scored(
    run: Callable[..., Output], albert: Path, words: Tokenizer, tiny_data: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "p.jsonl", [("bado", "toto")])
    one_sentence(run("evaluate", albert), "pretrained", "--shards", "--blimp")
    one_sentence(
        run("evaluate", albert, "--shards", tiny_data, "--max-pairs", 3), "--max-pairs", "--blimp"
    )
    one_sentence(run("evaluate", albert, "--blimp", file, "--max-pairs", 0), "max_pairs", 0)
    one_sentence(run("evaluate", albert, "--blimp", tmp_path / "gone"), tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    one_sentence(
        run("evaluate", albert, "--blimp", tmp_path / "empty"), tmp_path / "empty", ".jsonl"
    )
    for family, head in (
        ("Albert", "sequence"),
        ("Electra", "discriminator"),
        ("Bert", "backbone"),
    ):
        foreign(tmp_path / head, words, family, head)
        one_sentence(run("evaluate", tmp_path / head, "--blimp", file), tmp_path / head)
