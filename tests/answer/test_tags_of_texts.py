"""Raw text for a tagger: its words are those of `transformers`, with the characters of each, in a
file, in Python and over HTTP.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from litebert import load
from litebert.answer.files import predict_file
from litebert.serve.served import Served
from litebert.serve.wire import Group
from litebert.tokenizer.training import train_tokenizer
from litebert.tokenizer.words import find_words

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TEXTS = [
    "(Berlin) is where Paul works",
    'they call it "Rome", said Emma.',
    "[Vienna] the report",
    "Anna lives in Paris.",
    "the train to Oslo, Rome",
    "Peter's house, Mr. O’Neil's dog",
    "你好 世界",
    "我住在北京，他住在上海。",
    "e-mail: ana_silva@x.org! U.S.A. for $5.00 (approx.)",
    "“Rome” ‘Oslo’ «Bern» — €100",
    "no\u00a0break,\u3000wide\tand 👍🏽 ok",
    "Привет, Москва! 서울에서 왔다...",
]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger with random weights, which finds entities everywhere."""
    folder = tmp_path_factory.mktemp("tagger")
    tokenizer = train_tokenizer(TEXTS * 20, kind="wordpiece", vocab_size=400, shrink=True)
    tokenizer.save(folder)
    torch.manual_seed(6)
    shape: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        **shape,
        vocab_size=tokenizer.vocab_size,
        intermediate_size=64,
        pad_token_id=tokenizer.pad_id,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
        initializer_range=1.0,
    )
    network = transformers.BertForTokenClassification(config).eval()  # type: ignore[no-untyped-call]
    network.save_pretrained(folder)
    return folder


def places(record: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each["type"], each["start"], each["end"]) for each in record["entities"]]


def test_entities_of_texts_are_those_of_transformers(tagger: Path, tmp_path: Path) -> None:
    pipeline: Any = transformers.pipeline(
        "token-classification", model=str(tagger), aggregation_strategy="first"
    )
    expected = [
        [(each["entity_group"], each["start"], each["end"]) for each in pipeline(text)]
        for text in TEXTS
    ]
    assert sum(map(len, expected)) > 30
    model = load(tagger)
    records = model.predict(TEXTS)
    assert [places(record) for record in records] == expected
    for text, record in zip(TEXTS, records, strict=True):
        assert [text[start:end] for start, end in record["offsets"]] == record["words"]
        assert all(text[e["start"] : e["end"]] == e["text"] for e in record["entities"])
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    out = io.StringIO()
    predict_file(model, tmp_path / "in.jsonl", out, form="jsonl")
    assert [json.loads(line) for line in out.getvalue().splitlines()] == records
    out = io.StringIO()
    predict_file(model, tmp_path / "in.jsonl", out, form="csv")
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [json.loads(row["entities"]) for row in rows if row["entities"]] == [
        record["entities"] for record in records if record["entities"]
    ]
    opening: dict[str, Any] = {
        "engine": None,
        "device": "cpu",
        "exit_confidence": "auto",
        "threads": 1,
        "tokens": 4096,
    }
    answers = Served(tagger, opening).answer(Group("predict", (), TEXTS))
    assert [places(json.loads(row.payload)) for row in answers] == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("田中さんは東京に行った。", "田 中 さ ん は 東 京 に 行 っ た 。"),
        ("กรุงเทพฯ 2024", "ก รุ ง เ ท พ ฯ 2024"),
        ("カフェ Paris」", "カ フ ェ Paris 」"),
        ("नमस्ते दिल्ली।", "नमस्ते दिल्ली ।"),
        ("soft\u00adhyphen zero\u200bwidth\u200b,", "soft\u00adhyphen zero\u200bwidth ,"),
        (" \t\u200b ", ""),
        ("C++ #1 a\u0301b", "C + + # 1 a\u0301b"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert [text[start:end] for start, end in find_words(text)] == words.split(
        " " if words else None
    )


def test_words_of_lists_keep_their_form(tagger: Path) -> None:
    (record,) = load(tagger).predict([["(Berlin)", "New York", ""]])
    assert record["words"] == ["(Berlin)", "New York", ""]
    assert record["offsets"] == [[0, 8], [9, 17], [18, 18]]
