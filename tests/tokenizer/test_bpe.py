"""Byte-level BPE: every text comes back, and folders made elsewhere keep their ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.inspection import inspect
from toys import refusals
from toys.refusals import refused
from toys.tokenizing import EXTRA, PROSE, TRICKY, pieces, train

TEXTS = TRICKY + EXTRA + PROSE


@settings(max_examples=200)
@given(text=st.text(max_size=40))
def test_any_text_comes_back(text: str) -> None:
    tokenizer = train("bpe")
    ids = tokenizer.encode([text])[0]
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == text.removeprefix(" ")


def test_the_first_word_is_cut_as_elsewhere(bpe: Tokenizer) -> None:
    first, later = pieces(bpe, "function"), pieces(bpe, "a function")
    assert first == later[1:]
    assert first[0].startswith("Ġ")


def test_nothing_is_dropped_or_changed(bpe: Tokenizer) -> None:
    report = inspect(bpe, ["The ﬁne É ☃\u200b\u0301 \x07 ▁"])
    assert (
        report.unknown_tokens,
        report.changed,
        report.unknown,
        report.lower_cased_characters,
    ) == (0, (), (), 0)
    assert bpe.normalize(" É  ▁\n") == "É ▁"


def test_the_command(
    run: Callable[..., tuple[int, str, str]], tiny_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tokenizer"
    words = ("tokenizer", "train", tiny_corpus, "--kind", "bpe", "--vocab-size", 300, "--out", out)
    status, printed, err = run(*words)
    assert (status, printed) == (0, "")
    refusals.names(
        next(line for line in err.splitlines() if line.startswith("wrote")), out, "bpe", 300
    )
    assert Tokenizer.load(out).encode(["A"]) != Tokenizer.load(out).encode(["a"])
    status, _, err = run(*words, "--strip-accents")
    assert (status, "byte for byte" in err) == (2, True)
    status, text, _ = run("tokenizer", "inspect", tiny_corpus, "--tokenizer", out, "--json")
    assert (status, json.loads(text)["unknown_tokens"]) == (0, 0)


# ------------------------------------------------------------------------------------------ imports


def old_folder(folder: Path, tokenizer: Tokenizer, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in tokenizer.engine.make_files().items():
        (folder / name).write_bytes(content)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("prefix", [None, False, True])
def test_an_old_folder_of_vocabulary_and_merges(
    bpe: Tokenizer, tmp_path: Path, prefix: bool | None
) -> None:
    from transformers import RobertaTokenizerFast

    folder = old_folder(
        tmp_path / "old", bpe, None if prefix is None else {"add_prefix_space": prefix}
    )
    tokenizer = Tokenizer.load(folder)
    reference = RobertaTokenizerFast.from_pretrained(folder)
    for text in TEXTS:
        assert (
            tokenizer.encode([text])[0] == reference(text, add_special_tokens=False)["input_ids"]
        ), ascii(text)
    assert tokenizer.pair_separators == 2
    assert (tokenizer.encode(["the"]) == bpe.encode(["the"])) is bool(prefix)
    assert (tokenizer.fingerprint == bpe.fingerprint) is bool(prefix)
    assert tokenizer.decode(tokenizer.encode([" the"])[0]) == ("the" if prefix else " the")


@pytest.mark.parametrize("prefix", [False, True])
def test_a_folder_written_by_transformers(bpe: Tokenizer, tmp_path: Path, prefix: bool) -> None:
    from transformers import AutoTokenizer, RobertaTokenizerFast

    reference = RobertaTokenizerFast.from_pretrained(
        old_folder(tmp_path / "old", bpe), add_prefix_space=prefix
    )
    reference.save_pretrained(tmp_path / "theirs")
    for path in (tmp_path / "theirs", tmp_path / "theirs" / "tokenizer.json"):
        tokenizer = Tokenizer.load(path)
        assert (tokenizer.kind, tokenizer.pair_separators) == ("bpe", 2)
        assert tokenizer.special_ids == bpe.special_ids
        for text in TEXTS:
            assert (
                tokenizer.encode([text])[0]
                == reference(text, add_special_tokens=False)["input_ids"]
            ), ascii(text)
    tokenizer.save(tmp_path / "ours")
    assert Tokenizer.load(tmp_path / "ours").fingerprint == tokenizer.fingerprint
    again = AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in ("A  cat's", "été 猫😀", "\n x"):
        our_encoding, peer_encoding = (
            hf(text, text, return_offsets_mapping=True) for hf in (again, reference)
        )
        assert our_encoding["input_ids"] == peer_encoding["input_ids"]
        assert our_encoding["offset_mapping"] == peer_encoding["offset_mapping"]


def spelt_as_of_old(spec: dict[str, Any]) -> None:
    """A file of the first years: no type, merges as lines, no word on which pieces are special."""
    del spec["model"]["type"]
    for field in ("byte_fallback", "ignore_merges"):
        spec["model"].pop(field, None)
    if "merges" in spec["model"]:
        spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    spec["added_tokens"] = spec["added_tokens"][:2]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_file_in_old_words_keeps_them(kind: str, tmp_path: Path) -> None:
    trained = train(kind)
    trained.save(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    spelt_as_of_old(spec)
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.kind == kind
    assert tokenizer.special_ids == trained.special_ids
    assert tokenizer.encode(TEXTS) == trained.encode(TEXTS)
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(TEXTS) == trained.encode(TEXTS)


def template(pair: str) -> Any:
    return processors.TemplateProcessing(
        single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
    )


PROCESSORS = {
    "roberta": (processors.RobertaProcessing(("</s>", 2), ("<s>", 0)), 2),
    "bert": (processors.BertProcessing(("</s>", 2), ("<s>", 0)), 1),
    "two": (template("<s> $A </s> </s> $B </s>"), 2),
    "three": (template("<s> $A </s> </s> </s> $B </s>"), 3),
    "one": (template("<s> $A </s> $B </s>"), 1),
    "none": (template("$A $B"), 1),
    "in a sequence": (
        processors.Sequence([processors.ByteLevel(), template("<s> $A </s> $B </s>")]),
        1,
    ),
    "offsets only": (processors.ByteLevel(), 2),  # then the kind decides
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_separators_of_a_pair_are_those_of_the_file(
    bpe: Tokenizer, tmp_path: Path, name: str
) -> None:
    from transformers import AutoTokenizer

    processor, count = PROCESSORS[name]
    bpe.save(tmp_path)
    portable = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    portable.post_processor = processor
    portable.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.pair_separators == count
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").pair_separators == count
    a, b = tokenizer.encode(["a cat", "the dog"])
    peer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert peer("a cat", "the dog")["input_ids"] == [0, *a, *[2] * count, *b, 2]


# ------------------------------------------------------------------------------------------ refusal


def test_other_byte_pair_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    portable = tokenizers.Tokenizer(models.BPE({"<s>": 0, "a": 1}, []))
    for splitter in (
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace()]),
    ):
        portable.pre_tokenizer = splitter
        portable.save(str(path))
        with refused(DataError, path, "BPE", "byte-level BPE"):
            Tokenizer.load(path)


@pytest.mark.parametrize(
    ("file", "content", "names"),
    [
        ("vocab.json", "{", []),
        ("vocab.json", '{"a": "b"}', []),
        ("merges.txt", "#version: 0.2\na\n", []),
        ("merges.txt", "#version: 0.2\nqq zz\n", []),
        ("vocab.json", '{"a": 0}', ["<pad>", "[PAD]"]),
    ],
)
def test_unusable_folders_are_refused(
    bpe: Tokenizer, tmp_path: Path, file: str, content: str, names: list[str]
) -> None:
    folder = old_folder(tmp_path / "old", bpe)
    if content == '{"a": 0}':
        (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / file).write_text(content)
    with refused(DataError, folder, *names):
        Tokenizer.load(folder)
    (folder / "merges.txt").unlink()
    with refused(DataError, folder, "vocab.json", "merges.txt"):
        Tokenizer.load(folder)
