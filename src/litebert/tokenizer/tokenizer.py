"""Text to ids and back: one `Tokenizer` over unigram (SentencePiece), WordPiece and byte-level BPE
models.

Each kind is trained here or imported. "[MASK]" in a document is text, never the special piece:
batches place the special ids themselves. A saved folder also opens with
`transformers.AutoTokenizer` and gives the same ids, but `transformers` does read "[MASK]" and its
like in a text as special pieces. There is no rule for digits and commas: "1,999" is cut as the
model decides, as in `transformers` 5.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers
from tokenizers.models import BPE

from litebert.errors import DataError
from litebert.json_reader import parse_json, read_json
from litebert.storage import UNFINISHED, remove, written_whole
from litebert.tokenizer.engines import (
    SPECIAL_NAMES,
    STEPS_PREFIX,
    Engine,
    SentencePieceEngine,
    TokenizersEngine,
    byte_engine,
    model_pb2,
    strip_marks,
    wordpiece_engine,
)
from litebert.tokenizer.offsets import encode_offsets


class Tokenizer:
    """Pieces, their ids and what each is for.

    Attributes: `kind` (unigram, wordpiece, bpe or wordlevel), `vocab_size`, the ids `pad_id`,
    `unk_id`, `cls_id`, `sep_id`, `mask_id`, `special_ids` (ascending; all that is no text), and
    `pair_separators` between two segments: 2 in the layout `<s> A </s></s> B </s>`, else 1. Can be
    pickled to worker processes.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kind = engine.kind
        self.vocab_size = len(engine.pieces)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = engine.roles.values()
        self.special_ids = engine.special_ids
        self.pair_separators = engine.pair_separators
        self._words: dict[int, str] = {}

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) over what decides ids: pieces, scores and normaliser, not file paths or
        dates.
        """
        return self.engine.digest()

    @cached_property
    def word_starts(self) -> np.ndarray | None:
        """bool (vocab_size,): the piece begins a word; None where the tokenizer cannot tell.

        A piece goes on with the word before it only if it carries no word mark (or, in WordPiece,
        carries `##`) and begins with a letter, digit or combining mark of a script written with
        spaces. So punctuation is its own word, and in Chinese, Japanese, Thai and their like every
        piece is one. In byte-level BPE the mark is the space itself; an imported one that puts no
        space before a text cannot mark the text's first word.
        """
        starts = self.engine.word_starts()
        if starts is not None:
            starts[list(self.special_ids)] = True
        return starts

    def piece(self, id: int) -> str:  # noqa: A002
        """The piece as the vocabulary writes it, mark included."""
        return self.engine.pieces[id]

    def word(self, id: int) -> str:  # noqa: A002
        """What a piece says, without the mark of a word. Each is decoded once."""
        word = self._words.get(id)
        if word is None:
            word = self._words[id] = self.decode([id]).strip() or self.piece(id)
        return word

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, on the calling thread, without special pieces. An empty text gives no
        ids.
        """
        with _whole_characters(texts):
            return self.engine.encode(texts)

    def encode_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """For each text, the ids (n,) and the character range that each token covers, (n, 2).

        Both columns ascend. Together the spans cover the text but for its spaces and what is
        dropped between words; none begins or ends with a space. Pieces of one character share its
        span; a piece that is only a space or the mark of a word has an empty one. The ids are those
        of `encode` but where `SentencePieceEngine.portable` says.
        """
        with _whole_characters(texts):
            return [encode_offsets(self._following, text) for text in texts]

    @cached_property
    def _following(self) -> TokenizersEngine:
        """The engine itself, or the same model in the library that follows characters."""
        if isinstance(self.engine, TokenizersEngine):
            return self.engine
        return TokenizersEngine(json.dumps(self.engine.portable()), "the tokenizer")

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts end to end, int32 (n,), and how many each text has, int64
        (texts,)."""
        encoded = self.encode(texts)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, without special pieces (but unknown ones) and the space put before
        the first word.
        """
        silent = {*self.special_ids} - {self.unk_id}
        return self.engine.decode([int(i) for i in ids if i not in silent])

    def normalize(self, text: str) -> str:
        """The text as the model sees it, whitespace collapsed."""
        return self.engine.normalize(text)

    def save(self, folder: str | Path, *, token_types: bool | None = None) -> None:
        """Write a folder that `Tokenizer.load` and `transformers.AutoTokenizer.from_pretrained`
        both open.

        `token_types`: whether `transformers` shall give a second segment the token type 1, and
        token types to the model at all. None says yes, except with two separators between segments:
        such models have one type.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = {role: self.piece(getattr(self, f"{role}_id")) for role in SPECIAL_NAMES}
        typed = self.pair_separators == 1 if token_types is None else token_types
        portable = self.engine.portable()
        portable["truncation"] = portable["padding"] = None
        portable["post_processor"] = self._post_processor(int(typed))
        config = {
            # the class that takes tokenizer.json as it stands
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{role}_token": name for role, name in names.items()},
            "model_input_names": ["input_ids", *["token_type_ids"] * typed, "attention_mask"],
            "clean_up_tokenization_spaces": False,
            **self.engine.settings(),
            _ENGINE_KEY: type(self.engine).__name__,
        }
        for file, content in self.engine.files().items():
            (folder / file).write_bytes(content)
        written = json.dumps(portable, indent=2, ensure_ascii=False)
        (folder / "tokenizer.json").write_text(written, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(
            json.dumps(config, indent=2) + "\n", encoding="utf-8"
        )

    def write(self, folder: str | Path) -> bool:
        """Save as a folder of its own, whole or not at all, and replace a tokenizer there; whether
        one was replaced.

        Raises:
            DataError: `check_folder` refuses it.
        """
        check_folder(folder)
        place = Path(os.path.realpath(folder))  # resolve() gives up at a loop of links
        old, replaced = place.with_name(f"{UNFINISHED}old-{place.name}"), False
        place.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(place) as aside:
            self.save(aside)
            if replaced := place.exists() and any(place.iterdir()):
                remove(old)
                place.rename(old)
        remove(old)
        return replaced

    def _post_processor(self, second_type: int) -> dict[str, Any]:
        """Where special pieces stand around one text and two, as a `tokenizer.json` says it."""
        cls, sep = self.piece(self.cls_id), self.piece(self.sep_id)

        def special(name: str, type_id: int = 0) -> dict[str, Any]:
            return {"SpecialToken": {"id": name, "type_id": type_id}}

        single = [special(cls), {"Sequence": {"id": "A", "type_id": 0}}, special(sep)]
        second = [{"Sequence": {"id": "B", "type_id": second_type}}, special(sep, second_type)]
        ids = ((cls, self.cls_id), (sep, self.sep_id))
        template = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, *[special(sep)] * (self.pair_separators - 1), *second],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids},
        }
        if self.kind != "bpe":
            return template
        # Offsets into the text leave out the space that a piece begins with.
        trim = {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        }
        return {"type": "Sequence", "processors": [trim, template]}

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Open a folder saved here or by `transformers`, or a bare `*.model`, `vocab.txt` or
        `tokenizer.json` file.

        A run and a litebert model folder hold theirs in a folder `tokenizer`, which is opened.

        An old folder with `vocab.json` and `merges.txt` is byte-level BPE; it puts a space before a
        text only where its `tokenizer_config.json` says `add_prefix_space`. A bare `*.model` or
        `vocab.txt` does not say whether text was lower-cased or stripped of accents before it. The
        pieces tell: what none can spell is done here.
        """
        path = Path(path)
        if path.is_dir():
            inner = path / "tokenizer"
            return cls(
                _load_folder(inner if (path / "recipe.json").is_file() and inner.is_dir() else path)
            )
        if not path.is_file() or path.suffix not in _LOADERS:
            raise DataError(
                f"there is no tokenizer at {path}; give a folder, *.model, vocab.txt or "
                "tokenizer.json"
            )
        return cls(_LOADERS[path.suffix](path, {}))


@contextmanager
def _whole_characters(texts: Sequence[str]) -> Iterator[None]:
    """Say what is wrong where a library refuses a text: a surrogate, left by a wrong decoding."""
    try:
        yield
    except (TypeError, UnicodeEncodeError):
        for text in texts:
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise DataError(
                    f"{text[:30]!a} holds half a character; read the file as UTF-8"
                ) from None
        raise


# ------------------------------------------------------------------------------------------ loading

_ENGINE_KEY = "litebert_engine"


_VOCABULARIES = {
    "unigram": ("spiece.model",),
    "wordpiece": ("vocab.txt",),
    "bpe": ("vocab.json", "merges.txt"),
}
"""The files beside tokenizer.json that hold a tokenizer of each kind."""
_SAVED = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    *chain.from_iterable(_VOCABULARIES.values()),
}


def check_folder(folder: str | Path) -> None:
    """Refuse a folder to write a tokenizer to that holds anything but a tokenizer.

    Raises:
        DataError: it does, or it is a file, or the folder that it lies in may not be written to.
    """
    folder = Path(folder)
    above = next(parent for parent in Path(os.path.realpath(folder)).parents if parent.exists())
    if above.is_dir() and not os.access(above, os.W_OK):
        raise DataError(
            f"{folder} cannot be made, because {above} may not be written to; choose another folder"
        )
    if not folder.exists():
        if not above.is_dir():
            raise DataError(
                f"{folder} cannot be made, because {above} is a file; choose another folder"
            )
        return
    if not folder.is_dir():
        raise DataError(
            f"{folder} is a file; choose a folder that is new, empty or holds a tokenizer"
        )
    if foreign := sorted(path.name for path in folder.iterdir() if path.name not in _SAVED):
        raise DataError(
            f"{folder} holds {foreign[0]}, which is not part of a tokenizer; choose another folder"
        )


def _load_folder(folder: Path) -> Engine:
    engine, config = _open_folder(folder)
    _check_one(folder, engine, config)
    return engine


def _check_one(folder: Path, engine: Engine, config: dict[str, Any]) -> None:
    """Refuse a folder that holds files of two tokenizers; where another program wrote it, only two
    kinds.
    """
    other = [
        names[-1]
        for kind, names in _VOCABULARIES.items()
        if kind != engine.kind and (folder / names[-1]).is_file()
    ]
    if _ENGINE_KEY in config and isinstance(engine, TokenizersEngine):
        files = {
            name: content.decode()
            for name, content in engine.files().items()
            if (folder / name).is_file()
        }
        other += [
            name
            for name, text in files.items()
            if _content(folder / name) != _content(folder / name, text)
        ]
    elif _ENGINE_KEY in config and (portable := folder / "tokenizer.json").is_file():
        model = read_json(portable, DataError, "save the tokenizer again").get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if [piece for piece, *_ in vocabulary or ()] != engine.pieces:
            other.append(portable.name)
    if other:
        raise DataError(
            f"{folder} mixes two tokenizers: {other[0]} does not belong to the "
            f"{engine.kind} tokenizer "
            "beside it; delete the folder and save the tokenizer again"
        )


def _content(path: Path, text: str | None = None) -> Any:
    """What a file of a vocabulary says, however it is laid out; `text` stands for its own."""
    text = _read_text(path) if text is None else text
    try:
        return parse_json(text) if path.suffix == ".json" else text.split()
    except ValueError:
        return None


def _open_folder(folder: Path) -> tuple[Engine, dict[str, Any]]:
    config_file, portable = folder / "tokenizer_config.json", folder / "tokenizer.json"
    config = (
        read_json(config_file, DataError, "save the tokenizer again")
        if config_file.is_file()
        else {}
    )
    models = sorted(folder.glob("*.model"))
    ours = config.get(_ENGINE_KEY) == SentencePieceEngine.__name__
    # Another program's tokenizer.json may say more than its model file (lower case, accents), so it
    # goes first.
    if portable.is_file() and not (ours and models):
        return _load_json(portable, config), config
    if models:
        if len(models) > 1 and folder / "spiece.model" not in models:
            raise DataError(
                f"{folder} holds {len(models)} *.model files; give the path of the one to use"
            )
        return _load_sentencepiece(
            models[0] if len(models) == 1 else folder / "spiece.model", config
        ), config
    if (folder / "vocab.txt").is_file():
        return _load_vocabulary(folder / "vocab.txt", config), config
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _load_merges(folder, config), config
    raise DataError(
        f"{folder} holds no tokenizer.json, *.model, vocab.txt, or vocab.json with "
        "merges.txt; give one"
    )


def _load_json(path: Path, config: dict[str, Any]) -> Engine:
    return TokenizersEngine(_read_text(path), str(path))


def _load_sentencepiece(path: Path, config: dict[str, Any]) -> Engine:
    proto = _read_bytes(path)
    engine = SentencePieceEngine(proto, str(path))
    if engine.steps:
        return engine
    text = [piece for i, piece in enumerate(engine.pieces) if i not in engine.special_ids]
    lower = config.get("do_lower_case", not _has_upper(text))
    strip = not config.get(
        "keep_accents", not lower or any(strip_marks(piece) != piece for piece in text)
    )
    # What the model's own normaliser does already needs no step.
    steps = ["strip"] * (strip and engine.normalize("é") != "e") + ["lower"] * (
        lower and engine.normalize("A") != "a"
    )
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
            twice = f"the piece {piece!r} stands on line {vocabulary[piece] + 1} too"
            raise DataError(f"{path}:{i + 1}: {twice}; remove one")
        vocabulary[piece] = i
    lower = config.get(
        "do_lower_case", not _has_upper(p for p in vocabulary if not p.startswith("["))
    )
    normalizer = normalizers.BertNormalizer(
        lowercase=lower,
        strip_accents=config.get(
            "strip_accents"
        ),  # None: together with lower-casing, as in the original
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    return wordpiece_engine(vocabulary, normalizer, str(path))


def _load_merges(folder: Path, config: dict[str, Any]) -> Engine:
    try:
        vocabulary, merges = BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        return byte_engine(vocabulary, merges, config.get("add_prefix_space", False), str(folder))
    except DataError:
        raise
    except Exception as error:  # the library raises plain Exception
        files = f"vocab.json and merges.txt in {folder}"
        raise DataError(
            f"{files} are not a byte-level BPE vocabulary ({error}); save them again"
        ) from error


_LOADERS: dict[str, Callable[[Path, dict[str, Any]], Engine]] = {
    ".model": _load_sentencepiece,
    ".txt": _load_vocabulary,
    ".json": _load_json,
}


def _has_upper(pieces: Iterable[str]) -> bool:
    return any(piece != piece.lower() for piece in pieces)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); check its name and rights"
        ) from error


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}); give a text file, or save it again"
        ) from error
