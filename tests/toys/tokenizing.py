"""Texts that are hard on tokenizers, and small tokenizers trained on them."""

from __future__ import annotations

import io
from functools import cache
from pydoc_data.topics import topics
from typing import Any, Literal, TypeAlias

import sentencepiece

from litebert.text.sentences import split_lines
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer

PROSE = [topics[name] for name in sorted(topics)[:12]]
EXTRA = [
    "Où est le café naïve? Über die Straße, señor — Ærø, Łódź, İstanbul, Ελληνικά.",
    "吾輩は猫である。名前はまだ無い。我们学习语言。",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "한국어는 띄어쓰기를 합니다. हिन्दी में मात्राएँ।",
]
CORPUS = PROSE + EXTRA * 3
TRICKY = [
    "",
    " ",
    "\t\n",
    "The cat sat.",
    "  two  spaces\tand a tab\r\nand lines ",
    "ÉCOLE école e\u0301cole E\u0301\u0323 o\u0308\u0304",
    "ﬁne ½ ² Ａｂｃ １２３ ～ ㎏ ｶﾞ ｶ",
    "smile 😀 👩‍👩‍👧 🇫🇷 👍🏽 A🏽",
    "吾輩は猫である。我们 中文abc",
    "ภาษาไทย",
    "각 한국어",
    "1,999 and 1999, x1999,",
    "a" * 500 + " " + "ab" * 60,
    "zero\u200bwidth soft\u00adhyphen bom\ufeff nul\x00 bell\x07 \u2028 \u00a0",
    "▁mark ▁ __",
    "``quotes'' “curly” don't",
    '(a) "b" - c. – £1 €2',
    "!!!???... ---",
]


Kind: TypeAlias = Literal["unigram", "wordpiece", "bpe"]


@cache
def train(kind: Kind = "unigram", vocab_size: int = 600, **options: Any) -> Tokenizer:
    return train_tokenizer(CORPUS, kind=kind, vocab_size=vocab_size, **options)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.get_token(i) for i in tokenizer.encode([text])[0]]


def raw_model(**options: Any) -> bytes:
    """A model as SentencePiece itself trains it."""
    out = io.BytesIO()
    settings_: dict[str, Any] = {
        "vocab_size": 300,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "minloglevel": 3,
        **options,
    }
    lines = [line.lower() for text in PROSE for line in split_lines(text)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, **settings_
    )
    return out.getvalue()
