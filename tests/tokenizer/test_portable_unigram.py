"""A SentencePiece model that was saved here, where the library sentencepiece is not installed."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.engines import digest_unigram
from toys.refusals import refused
from toys.tokenizing import CORPUS, TRICKY, raw_model, train

TEXTS = [text for text in (*CORPUS, *TRICKY) if "**" not in text]
"""Without the texts whose cuts have the same score (`SentencePieceEngine.to_portable`)."""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    train().save(tmp_path / "saved")
    monkeypatch.setattr("litebert.tokenizer.tokenizer.find_spec", lambda name: None)
    return tmp_path / "saved"


def test_it_reads_as_the_library_does(saved: Path, tmp_path: Path) -> None:
    tokenizer, expected = Tokenizer.load(saved), train()
    assert type(tokenizer.engine) is not type(expected.engine)
    assert tokenizer.fingerprint == expected.fingerprint
    assert tokenizer.encode(TEXTS) == expected.encode(TEXTS)
    assert tokenizer.special_ids == expected.special_ids
    np.testing.assert_array_equal(tokenizer.word_starts, expected.word_starts)
    for text in TEXTS:
        assert tokenizer.normalize(text) == expected.normalize(text)
        (ids,) = expected.encode([text])
        assert tokenizer.decode(ids) == expected.decode(ids)
    assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == expected.fingerprint


def test_it_is_saved_as_the_library_saves_it(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tokenizer.load(saved).save(tmp_path / "again")
    files = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert files.keys() == {path.name for path in saved.iterdir()}
    assert files["spiece.model"] == (saved / "spiece.model").read_bytes()
    monkeypatch.undo()
    again = Tokenizer.load(tmp_path / "again")
    assert type(again.engine) is type(train().engine)
    assert again.fingerprint == train().fingerprint


@pytest.mark.parametrize("fault", ["another", "cut"])
def test_files_that_do_not_fit_are_refused(fault: str, saved: Path) -> None:
    model = saved / "spiece.model"
    if fault == "another":
        train(vocab_size=500).save(saved.parent / "other")
        (saved / "tokenizer.json").write_bytes((saved.parent / "other/tokenizer.json").read_bytes())
    else:
        model.write_bytes(model.read_bytes()[:200])
    with refused(DataError, saved, "tokenizer.json"):
        Tokenizer.load(saved)


@pytest.mark.parametrize(
    "options",
    [{}, {"byte_fallback": True, "vocab_size": 700}, {"treat_whitespace_as_suffix": True}],
    ids=str,
)
def test_the_digest_is_that_of_what_protobuf_writes(options: dict[str, Any]) -> None:
    types: Any = sentencepiece_model_pb2
    model = types.ModelProto.FromString(proto := raw_model(**options))
    decisive = types.ModelProto(pieces=model.pieces, normalizer_spec=model.normalizer_spec)
    for field in ("model_type", "treat_whitespace_as_suffix", "byte_fallback"):
        setattr(decisive.trainer_spec, field, getattr(model.trainer_spec, field))
    written = decisive.SerializeToString(deterministic=True)
    assert digest_unigram(proto) == hashlib.sha256(written).hexdigest()
