"""Tokenizers made elsewhere, files that cannot be used, and the inspection."""

from __future__ import annotations

import json
import os
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import models

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.inspection import inspect
from toys.refusals import refused
from toys.tokenizing import EXTRA, TRICKY, pieces, raw_model, train

pytestmark = pytest.mark.thorough


# ------------------------------------------------------------------------------------------ imports


def test_a_bare_model_gets_the_lower_casing_done_outside(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(raw_model())
    tokenizer = Tokenizer.load(tmp_path / "spiece.model")
    assert tokenizer.encode(["The Café"]) == tokenizer.encode(["the cafe"])
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.encode(TRICKY) == tokenizer.encode(TRICKY)
    assert again.fingerprint == tokenizer.fingerprint
    from transformers import AutoTokenizer

    peer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in ["The Café", "a  CAT", "x [y] 12."]:
        assert peer(text, add_special_tokens=False)["input_ids"] == tokenizer.encode([text])[0]
    # The configuration beside a model has the last word.
    config = {"do_lower_case": False, "keep_accents": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).encode(["The"]) != tokenizer.encode(["the"])


def test_a_folder_written_by_transformers(tmp_path: Path) -> None:
    from transformers import AlbertTokenizer, BertTokenizer

    source = tmp_path / "source"
    source.mkdir()
    (source / "spiece.model").write_bytes(raw_model())
    vocabulary = {
        piece: i
        for i, piece in enumerate(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "c", "##at"]
        )
    }
    for reference in (AlbertTokenizer.from_pretrained(source), BertTokenizer(vocab=vocabulary)):
        folder = tmp_path / type(reference).__name__
        reference.save_pretrained(folder)
        for path in (folder, folder / "tokenizer.json"):
            tokenizer = Tokenizer.load(path)
            assert tokenizer.cls_id == reference.cls_token_id
            assert tokenizer.word_starts is not None
            for text in ["The CAT", "the café ``quoted''", " the  value [x]", ""]:
                assert (
                    tokenizer.encode([text])[0]
                    == reference(text, add_special_tokens=False)["input_ids"]
                )
        tokenizer.save(folder / "ours")
        assert Tokenizer.load(folder / "ours").encode(["the Cat"]) == tokenizer.encode(["the Cat"])


@pytest.mark.parametrize(("words", "upper"), [(["the", "##e"], False), (["The", "##e"], True)])
def test_a_bare_vocabulary_file(tmp_path: Path, words: list[str], upper: bool) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(
        "\r\n".join(
            ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, ""]
        ).encode()
    )
    tokenizer = Tokenizer.load(path)
    assert tokenizer.kind == "wordpiece"
    assert tokenizer.vocab_size == 8
    assert tokenizer.unk_id == 2
    assert tokenizer.encode(["The", "The\u0301"])[0] == [6]
    assert (tokenizer.encode(["Thé"]) == tokenizer.encode(["The"])) is not upper
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]

    tokenizer.save(tmp_path / "saved")
    peer = BertTokenizerFast.from_pretrained(tmp_path / "saved")
    for text in ("The", "Thé", "thee 猫", "The e"):
        assert peer(text, add_special_tokens=False)["input_ids"] == tokenizer.encode([text])[0]


def test_real_models(shared_data: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    german = Tokenizer.load(shared_data / "spm" / "german-albert-30k.model")
    english = Tokenizer.load(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    assert (german.vocab_size, english.vocab_size) == (30000, 30522)
    assert (english.pad_id, english.unk_id, english.cls_id, english.sep_id, english.mask_id) == (
        0,
        100,
        101,
        102,
        103,
    )
    assert english.encode(["Hello, world!"])[0] == [7592, 1010, 2088, 999]
    assert pieces(german, "Über die Straße")[:1] == ["▁Über"]
    raw = sentencepiece.SentencePieceProcessor(
        model_file=str(shared_data / "spm" / "german-albert-30k.model")
    )
    text = [
        "Über den Wolken muß die Freiheit wohl grenzenlos sein, sagte er.",
        "1,999 Äpfel",
        *TRICKY,
        *EXTRA,
    ]
    for name, tokenizer in (("german", german), ("english", english)):
        tokenizer.save(tmp_path / name)
        peer = AutoTokenizer.from_pretrained(tmp_path / name)
        for line in text:
            line = unicodedata.normalize("NFC", line)
            if "ｶﾞ" not in line:  # a foreign model composes half-width marks, `tokenizers` cannot
                assert (
                    peer(line, add_special_tokens=False)["input_ids"] == tokenizer.encode([line])[0]
                ), ascii(line)
    assert german.encode(text) == raw.encode(text)


# ----------------------------------------------------------------------------------- unusable files


def json_of(model: Any) -> str:
    return tokenizers.Tokenizer(model).to_str()


def byte_pair_model() -> bytes:
    return raw_model(model_type="bpe")


def newer_model(unigram_bytes: bytes) -> bytes:
    proto: Any = model_pb2
    model = proto.ModelProto.FromString(unigram_bytes)
    model.normalizer_spec.name = "litebert:nfkc,rot13"
    return bytes(model.SerializeToString())


def test_unusable_files_are_refused_by_name(tmp_path: Path, unigram: Tokenizer) -> None:
    good = unigram.engine.make_files()["spiece.model"]
    specials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
    gaps = {"<pad>": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 9}
    cases: dict[str, tuple[bytes | None, list[str]]] = {
        "absent.model": (None, []),
        "empty.model": (b"", []),
        "noise.model": (bytes(range(256)) * 40, []),
        "cut.model": (good[: len(good) // 2], []),
        "bpe.model": (byte_pair_model(), ["unigram"]),
        "newer.model": (newer_model(good), ["'rot13'"]),
        "nomask.model": (raw_model(control_symbols=["[CLS]", "[SEP]"]), ["[MASK]", "<mask>"]),
        "binary.txt": (b"\xff\xfe\x00", ["byte 0"]),
        "twice.txt": (f"{specials}cat\ncat\n".encode(), ["twice.txt:7", "'cat'", "line 6"]),
        "nounk.txt": (b"a\nb\n", ["<unk>", "[UNK]"]),
        "nocls.txt": (b"[UNK]\n[PAD]\n", ["[CLS]", "<s>"]),
        "binary.json": (b"\x80\x81", ["byte 0"]),
        "syntax.json": (b"{", []),
        "other.json": (b'{"a": 1}', []),
        "list.json": (b"[1, 2]", []),
        "bpe.json": (json_of(models.BPE({"a": 0}, [])).encode(), ["BPE"]),
        "gaps.json": (json_of(models.WordPiece(gaps, unk_token="[UNK]")).encode(), ["ids"]),
        "odd.bin": (b"x", []),
    }
    for name, (content, names) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with refused(DataError, name, *names):
            Tokenizer.load(path)


def test_unusable_folders_are_refused(tmp_path: Path, unigram: Tokenizer) -> None:
    with refused(DataError, tmp_path, "tokenizer.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with refused(DataError, tmp_path / "tokenizer_config.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    model = unigram.engine.make_files()["spiece.model"]
    (tmp_path / "one.model").write_bytes(model)
    (tmp_path / "two.model").write_bytes(model)
    with refused(DataError, tmp_path, "2 *.model"):
        Tokenizer.load(tmp_path)
    (tmp_path / "spiece.model").write_bytes(model)
    assert Tokenizer.load(tmp_path).fingerprint == unigram.fingerprint
    (tmp_path / "tokenizer.json").mkdir()
    (tmp_path / "vocab.txt").mkdir()
    assert Tokenizer.load(tmp_path).fingerprint == unigram.fingerprint


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("x")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with refused(DataError, path, "Permission denied"):
        Tokenizer.load(path)


def test_wordpiece_without_a_prefix_cannot_tell_words(tmp_path: Path) -> None:
    vocabulary = {
        piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json_of(models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix=""))
    )
    assert Tokenizer.load(path).word_starts is None


# ------------------------------------------------------------------------------------------ inspect


def test_inspect_counts_what_happens(unigram: Tokenizer) -> None:
    texts = ["The cat sat.\nOn the mat", "ﬁne ﬁne ☃ \x07", "É"]
    report = inspect(unigram, iter(texts))
    ids = [i for text in texts for line in text.split("\n") for i in unigram.encode([line])[0]]
    assert (report.texts, report.words, report.tokens) == (3, 11, len(ids))
    assert report.unknown_tokens == ids.count(unigram.unk_id) == 1
    assert report.tokens_per_word == len(ids) / 11
    assert report.unknown_rate == 1 / len(ids)
    assert report.lower_cased_characters == 3
    assert [(c.char, c.becomes, c.count) for c in report.changed] == [
        ("ﬁ", "fi", 2),
        ("\x07", "", 1),
    ]
    assert (report.changed_characters, report.dropped_characters) == (2, 1)
    assert [(c.char, c.count) for c in report.unknown] == [("☃", 1)]


def test_inspect_shows_lost_accents_most_frequent_first() -> None:
    tokenizer = train(strip_accents=True)
    report = inspect(tokenizer, ["é à é É" + chr(c) for c in range(0x100, 0x17F)])
    assert [(c.char, c.becomes) for c in report.changed[:3]] == [("é", "e"), ("à", "a"), ("É", "e")]
    assert len(report.changed) == 20
    inspection = inspect(train(), ["é à é É"])
    assert inspection.changed == ()
    assert inspection.lower_cased_characters == 1


def test_inspect_reports_as_rows_and_as_json(wordpiece: Tokenizer) -> None:
    report = inspect(wordpiece, ["The cat ☃\u200b\u0301"])
    decoded = json.loads(json.dumps(report.to_dict()))
    assert decoded["tokens_per_word"] == report.tokens_per_word
    assert decoded["unknown"][0]["char"] == "☃"
    rows = dict(report.rows())
    assert rows["texts"] == "1"
    assert rows["☃ U+2603 SNOWMAN"] == "unknown, 1"
    assert rows["U+200B ZERO WIDTH SPACE"] == "dropped, 1"


def test_inspect_of_nothing(unigram: Tokenizer) -> None:
    report = inspect(unigram, [])
    assert (report.texts, report.tokens, report.tokens_per_word, report.unknown_rate) == (
        0,
        0,
        0.0,
        0.0,
    )


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_added_tokens_are_one_token_as_in_transformers(kind: str, tmp_path: Path, run: Any) -> None:
    from transformers import AutoTokenizer

    train(kind).save(tmp_path / "old")
    peer = AutoTokenizer.from_pretrained(tmp_path / "old")
    peer.add_tokens(["[CUST]"], special_tokens=True)
    peer.add_tokens(["covidpass"])
    peer.save_pretrained(tmp_path / "marked")
    marked = Tokenizer.load(tmp_path / "marked")
    for text in ("[CUST] bado toto", "a covidpass[CUST] [cust]"):
        assert marked.encode([text])[0] == peer(text, add_special_tokens=False)["input_ids"]
    mask = marked.get_token(marked.mask_id)
    assert marked.mask_id not in marked.encode([f"bado {mask}"])[0]
    words = ("--tokens", "[USR]", "<p>", "--out")
    assert run("tokenizer", "extend", tmp_path / "marked", *words, tmp_path / "new")[0] == 0
    named = AutoTokenizer.from_pretrained(tmp_path / "new")
    text = "bado [USR]toto <p> [usr]"
    ids = Tokenizer.load(tmp_path / "new").encode([text])[0]
    assert ids == named(text, add_special_tokens=False)["input_ids"]
    assert {marked.vocab_size, marked.vocab_size + 1} <= {*ids}
    assert run("tokenizer", "extend", tmp_path / "new", *words, tmp_path / "x")[0] == 2


def test_added_tokens_beside_a_vocabulary(tmp_path: Path) -> None:
    wordpiece = train("wordpiece")
    wordpiece.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    file = tmp_path / "added_tokens.json"
    file.write_text(json.dumps({"covidpass": wordpiece.vocab_size}))
    assert wordpiece.vocab_size in Tokenizer.load(tmp_path).encode(["the CovidPass"])[0]
    for ids in (wordpiece.vocab_size + 3, 2, "x", None, [1], -1):
        file.write_text(json.dumps({"covidpass": ids}))
        with refused(DataError, tmp_path):
            Tokenizer.load(tmp_path)


def test_rules_that_fit_no_text_are_refused(tmp_path: Path) -> None:
    train("wordpiece").save(tmp_path)
    file = tmp_path / "tokenizer.json"
    spec = json.loads(file.read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Removed"}
    file.write_text(json.dumps({**spec, "pre_tokenizer": {**split, "invert": False}}))
    with refused(DataError, file):
        Tokenizer.load(tmp_path).encode(["a" * 60 + "b"])


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    train("wordpiece").save(tmp_path)
    for name, link in (("tokenizer_config.json", False), ("tokenizer.json", True)):
        (tmp_path / name).unlink()
        if link:
            (tmp_path / name).symlink_to("/dev/zero")
        else:
            os.mkfifo(tmp_path / name)
    with suppress(DataError):  # or read from vocab.txt: it returns at once, either way
        Tokenizer.load(tmp_path)


def test_inspect_counts_what_the_model_reads() -> None:
    report = inspect(train("unigram"), ["cafe\u0301 a\u200bb"])
    assert "\u0301" not in {change.char for change in report.unknown}
    parts = [change.becomes for change in report.changed if change.char == "\u200b"]
    assert (parts, report.dropped_characters) == ([" "], 0)


def test_roles_that_old_settings_describe(tmp_path: Path) -> None:
    """Up to 2023, transformers saved a role as an object where it strips spaces."""
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b")
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    mask = {"__type": "AddedToken", "content": "[MASK]", "lstrip": True}
    settings = {"do_lower_case": True, "mask_token": mask}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert [list(ids) for ids in Tokenizer.load(tmp_path).encode(["a b"])] == [[5, 6]]
