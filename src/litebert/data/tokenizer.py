"""Text to ids and back: one `Tokenizer` over unigram (SentencePiece) and WordPiece models, trained here or imported.

Ids never contain a special piece that was spelt in the text: "[MASK]" in a document is text, and batches place the
special ids themselves. A saved folder also opens with `transformers.AutoTokenizer` and gives the same ids, except
that `transformers` does read "[MASK]" and its like in a text as the special pieces. There is no rule for digits and
commas: "1,999" is cut as the model likes, as in `transformers` 5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import AddedToken, processors

from litebert.data.tokenizer_engines import (
    SPECIAL_NAMES,
    STEPS_PREFIX,
    Engine,
    SentencePieceEngine,
    TokenizersEngine,
    model_pb2,
    strip_marks,
    wordpiece_engine,
    wordpiece_normalizer,
)
from litebert.data.tokenizer_inspection import Inspection, inspect
from litebert.data.tokenizer_training import train_engine
from litebert.errors import DataError

__all__ = ["Inspection", "Tokenizer", "inspect", "train_tokenizer"]


class Tokenizer:
    """Pieces, their ids and what each is for.

    Attributes: `kind` (unigram or wordpiece), `vocab_size`, the ids `pad_id`, `unk_id`, `cls_id`, `sep_id`,
    `mask_id`, and `special_ids` (ascending; everything that is no text). Can be pickled to worker processes.
    """

    def __init__(self, engine: Engine, name: str = "the tokenizer") -> None:
        self._engine = engine
        self.kind = engine.kind
        self.vocab_size = len(engine.pieces)
        id_of = {piece: i for i, piece in enumerate(engine.pieces)}
        roles: dict[str, int] = {}
        for role, names in SPECIAL_NAMES.items():
            found = [id_of[n] for n in names if n in id_of]
            if not found:
                raise DataError(f"{name} has no piece {' or '.join(names)}; add it, or train a tokenizer of your own")
            roles[role] = found[0]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = roles.values()
        self.special_ids = tuple(sorted({*roles.values(), *engine.controls}))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) over what decides ids: pieces, scores and normaliser, not file paths or dates."""
        return self._engine.digest()

    @cached_property
    def word_starts(self) -> np.ndarray | None:
        """bool (vocab_size,): the piece begins a word; None where the tokenizer cannot tell.

        A piece goes on with the word before it only if it carries no word mark (or, in WordPiece, carries `##`) and
        begins with a letter, digit or combining mark of a script written with spaces. So punctuation is its own
        word, and in Chinese, Japanese, Thai and their like every piece is a word, never a clause.
        """
        starts = self._engine.word_starts()
        if starts is not None:
            starts[list(self.special_ids)] = True
        return starts

    @cached_property
    def random_ids(self) -> np.ndarray:
        """int64 (n,): the ids that may stand in for a masked piece: all but the special ones."""
        return np.delete(np.arange(self.vocab_size), list(self.special_ids))

    def piece(self, id: int) -> str:  # noqa: A002
        """The piece as the vocabulary writes it, mark included."""
        return self._engine.pieces[id]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, on the calling thread, without special pieces. An empty text gives no ids."""
        try:
            return self._engine.encode(texts)
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                if any("\ud800" <= char <= "\udfff" for char in text):
                    raise DataError(f"{text[:30]!a} holds half a character; read the file as UTF-8") from None
            raise

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts end to end, int32 (n,), and how many each text has, int64 (texts,)."""
        encoded = self.encode(texts)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; special pieces are left out, unknown ones shown."""
        silent = {*self.special_ids} - {self.unk_id}
        return self._engine.decode([int(i) for i in ids if i not in silent])

    def normalize(self, text: str) -> str:
        """The text as the model sees it, whitespace collapsed."""
        return self._engine.normalize(text)

    def save(self, folder: str | Path) -> None:
        """Write a folder that `Tokenizer.load` and `transformers.AutoTokenizer.from_pretrained` both open."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = {role: self.piece(getattr(self, f"{role}_id")) for role in SPECIAL_NAMES}
        portable = self._engine.portable()
        portable.add_special_tokens([AddedToken(self.piece(i), normalized=False) for i in self.special_ids])
        cls, sep = names["cls"], names["sep"]
        portable.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(cls, self.cls_id), (sep, self.sep_id)],
        )
        portable.no_truncation()
        portable.no_padding()
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",  # the class that takes tokenizer.json as it stands
            **{f"{role}_token": name for role, name in names.items()},
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
            _ENGINE_KEY: type(self._engine).__name__,
        }
        for file, content in self._engine.files().items():
            (folder / file).write_bytes(content)
        (folder / "tokenizer.json").write_text(portable.to_str(pretty=True), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Open a folder saved here or by `transformers`, or a bare `*.model`, `vocab.txt` or `tokenizer.json` file.

        A bare `*.model` or `vocab.txt` does not say whether text was lower-cased or stripped of accents before it
        reached the model. Then the pieces tell: what none of them can spell was done outside, and is done here.
        """
        path = Path(path)
        if path.is_dir():
            return cls(_load_folder(path), str(path))
        if not path.is_file():
            raise DataError(f"there is no tokenizer at {path}; give a folder, *.model, vocab.txt or tokenizer.json")
        loaders: dict[str, Callable[[Path, dict[str, Any]], Engine]] = {
            ".model": _load_sentencepiece,
            ".txt": _load_vocabulary,
            ".json": _load_json,
        }
        if path.suffix not in loaders:
            raise DataError(f"{path} is no tokenizer file; give a folder, *.model, vocab.txt or tokenizer.json")
        return cls(loaders[path.suffix](path, {}), str(path))


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: Literal["unigram", "wordpiece"],
    vocab_size: int,
    lower_case: bool = True,
    strip_accents: bool = False,
    memory: int = 64 << 20,
    seed: int = 0,
) -> Tokenizer:
    """Learn `vocab_size` pieces, special ones included, from `texts` (documents or lines, any number, read once).

    `unigram` has ALBERT's layout of ids (its README), `wordpiece` BERT's order of special pieces. `memory` is the
    budget in bytes for the sample of lines that training sees. The same texts, options and seed give the same ids.
    Accents are kept unless `strip_accents`. Raises DataError when there is no text, and when `vocab_size` is more or
    less than the text can fill; the message names the limit.
    """
    engine = train_engine(texts, kind, vocab_size, lower_case, strip_accents, memory, seed)
    return Tokenizer(engine, "the trained tokenizer")


# ----------------------------------------------------------------------------------------------------------- loading

_ENGINE_KEY = "litebert_engine"


def _load_folder(folder: Path) -> Engine:
    config_file, portable = folder / "tokenizer_config.json", folder / "tokenizer.json"
    config: dict[str, Any] = {}
    if config_file.is_file():
        try:
            config = json.loads(_read_text(config_file))
            if not isinstance(config, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise DataError(f"{config_file} is not a JSON object ({error}); save the tokenizer again") from error
    models = sorted(folder.glob("*.model"))
    ours = config.get(_ENGINE_KEY) == SentencePieceEngine.__name__
    # Another program's tokenizer.json may say more than its model file (lower case, accents), so it goes first.
    if portable.is_file() and not (ours and models):
        return _load_json(portable, config)
    if models:
        if len(models) > 1 and folder / "spiece.model" not in models:
            raise DataError(f"{folder} holds {len(models)} *.model files; give the path of the one to use")
        return _load_sentencepiece(models[0] if len(models) == 1 else folder / "spiece.model", config)
    if (folder / "vocab.txt").is_file():
        return _load_vocabulary(folder / "vocab.txt", config)
    raise DataError(f"{folder} holds no tokenizer.json, *.model or vocab.txt; give a tokenizer's folder or file")


def _load_json(path: Path, config: dict[str, Any]) -> Engine:
    return TokenizersEngine(_read_text(path), str(path))


def _load_sentencepiece(path: Path, config: dict[str, Any]) -> Engine:
    proto = _read_bytes(path)
    engine = SentencePieceEngine(proto, str(path))
    if engine.steps:
        return engine
    text = [piece for i, piece in enumerate(engine.pieces) if i not in engine.controls]
    lower = config.get("do_lower_case", not _has_upper(text))
    strip = not config.get("keep_accents", not lower or any(strip_marks(piece) != piece for piece in text))
    # What the model's own normaliser does already needs no step.
    steps = ["strip"] * (strip and engine.normalize("é") != "e") + ["lower"] * (lower and engine.normalize("A") != "a")
    if not steps:
        return engine
    model = model_pb2.ModelProto.FromString(proto)
    model.normalizer_spec.name = STEPS_PREFIX + ",".join(steps)
    return SentencePieceEngine(model.SerializeToString(deterministic=True), str(path))


def _load_vocabulary(path: Path, config: dict[str, Any]) -> Engine:
    lines = _read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for i, piece in enumerate(lines):
        if piece in vocabulary:
            raise DataError(
                f"{path}:{i + 1}: the piece {piece!r} stands on line {vocabulary[piece] + 1} too; remove one"
            )
        vocabulary[piece] = i
    lower = config.get("do_lower_case", not _has_upper(p for p in vocabulary if not p.startswith("[")))
    return wordpiece_engine(
        vocabulary,
        wordpiece_normalizer(
            lower,
            config.get("strip_accents"),
            config.get("tokenize_chinese_chars", True),
        ),
        str(path),
    )


def _has_upper(pieces: Iterable[str]) -> bool:
    return any(piece != piece.lower() for piece in pieces)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its name and rights") from error


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); give a text file, or save it again") from error
