"""Text to ids and back: one `Tokenizer` over unigram (SentencePiece), WordPiece and byte-level BPE
models.

Each kind is trained here or imported. "[MASK]" in a document is text, never the special token,
because batches insert the special ids themselves. Tokens that were added for a text, such as [USR],
are read in it. A saved folder also opens with `transformers.AutoTokenizer` and gives the same ids.
But `transformers` does read "[MASK]" in a text as such, unless `split_special_tokens` is set.
There is no rule for digits and commas: "1,999" is split as the model decides, as in `transformers`
5.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers
from tokenizers.models import BPE

from litebert import hub
from litebert.base.errors import DataError
from litebert.base.json_reader import parse_json, read_json, read_regular
from litebert.base.storage import UNFINISHED, remove, write_whole
from litebert.text.records import check_texts
from litebert.tokenizer.engines import (
    PLAIN_TOKEN,
    SPECIAL_NAMES,
    STEPS_PREFIX,
    Engine,
    PortableUnigram,
    SentencePieceEngine,
    TokenizersEngine,
    build_byte_engine,
    build_wordpiece_engine,
    import_model_types,
    strip_marks,
)
from litebert.tokenizer.kinds import KINDS
from litebert.tokenizer.offsets import encode_offsets


class Tokenizer:
    """Tokens, their ids and their roles.

    Attributes: `kind` (unigram, wordpiece, bpe or wordlevel), `vocab_size`, the ids `pad_id`,
    `unk_id`, `cls_id`, `sep_id`, `mask_id`, `special_ids` (ascending; all that is no text), and
    `pair_separators` between two segments: 2 in the layout `<s> A </s></s> B </s>`, else 1, and
    `truncation_side`, the end at which long texts are cut. A tokenizer can be pickled to worker
    processes.
    """

    def __init__(self, engine: Engine, truncation_side: Literal["right", "left"] = "right") -> None:
        self.engine, self.truncation_side = engine, truncation_side
        self.kind = engine.kind.name
        self.vocab_size = len(engine.tokens)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = engine.roles.values()
        self.special_ids = engine.special_ids
        self.pair_separators = engine.pair_separators
        self._words: dict[int, str] = {}

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) of what decides ids: tokens, scores and normalizer, not file paths or
        dates.
        """
        return self.engine.compute_digest()

    @cached_property
    def word_starts(self) -> np.ndarray | None:
        """True for each token that begins a word, bool (vocab_size,); None where the tokenizer
        cannot tell.

        A token continues the word before it only if it has no word mark (or, in WordPiece, has
        `##`) and begins with a letter, digit or combining mark of a script that is written with
        spaces. So punctuation is a word, and in Chinese, Japanese and Thai every token is one. In
        byte-level BPE the mark is the space. An imported BPE that puts no space before a text
        cannot mark the text's first word.
        """
        starts = self.engine.find_word_starts()
        if starts is not None:
            starts[list(self.special_ids)] = True
        return starts

    @property
    def space(self) -> str:
        """The space that stands before a word so that it is split as inside a text; empty where
        none is needed.
        """
        return self.engine.kind.space

    def get_token(self, id: int) -> str:  # noqa: A002
        """Return the token as the vocabulary writes it, mark included."""
        return self.engine.tokens[id]

    def get_word(self, id: int) -> str:  # noqa: A002
        """Return the text of a token, without the mark of a word. Each token is decoded once."""
        word = self._words.get(id)
        if word is None:
            word = self._words[id] = self.decode([id]).strip() or self.get_token(id)
        return word

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, on the calling thread, without special tokens.

        An empty text has no ids.
        """
        texts = list(check_texts(texts))
        with explain_surrogates(texts):
            return self.engine.encode(texts)

    def encode_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Return, for each text, the ids (n,) and the character range that each token covers, (n,
        2).

        Both columns ascend. Together the spans cover the text, except for its spaces and for what
        is dropped between words. No span begins or ends with a space. Tokens of one character share
        its span. A token that is only a space or the mark of a word has an empty span. The ids are
        what `encode` gives, apart from the differences that `SentencePieceEngine.to_portable`
        lists.
        """
        with explain_surrogates(texts):
            return [encode_offsets(self._offsets_engine, text) for text in texts]

    @cached_property
    def _offsets_engine(self) -> TokenizersEngine:
        """The engine itself, or the same model in the library that follows characters."""
        if isinstance(self.engine, TokenizersEngine):
            return self.engine
        return TokenizersEngine(json.dumps(self.engine.to_portable()), "the tokenizer")

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts end to end, int32 (n,), and their number in each text, int64
        (texts,).
        """
        encoded = self.encode(texts)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, without the space before its first word.

        Special tokens are left out, except unknown ones.
        """
        skipped = {*self.special_ids} - {self.unk_id}
        return self.engine.decode([int(i) for i in ids if i not in skipped])

    def normalize(self, text: str) -> str:
        """Return the text as the model sees it, whitespace collapsed."""
        return self.engine.normalize(text)

    def save(self, folder: str | Path, *, token_types: bool | None = None) -> None:
        """Write a folder that `Tokenizer.load` and `transformers.AutoTokenizer.from_pretrained`
        both open.

        Args:
            token_types: `transformers` gives token types to the model, and type 1 to a second
                segment. The default is True, except with two separators between segments, for such
                models have one type.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = {role: self.get_token(getattr(self, f"{role}_id")) for role in SPECIAL_NAMES}
        has_types = self.pair_separators == 1 if token_types is None else token_types
        portable, files = self.engine.to_portable(), self.engine.make_files()
        portable["truncation"] = portable["padding"] = None
        portable["post_processor"] = self._make_post_processor(int(has_types))
        config = {
            # This class uses tokenizer.json unchanged.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{role}_token": name for role, name in names.items()},
            "model_input_names": ["input_ids", *["token_type_ids"] * has_types, "attention_mask"],
            "clean_up_tokenization_spaces": False,
            **self.engine.make_settings(),
            **({"truncation_side": "left"} if self.truncation_side == "left" else {}),
            _ENGINE_KEY: (
                SentencePieceEngine if "spiece.model" in files else TokenizersEngine
            ).__name__,
        }
        for file, data in files.items():
            (folder / file).write_bytes(data)
        content = json.dumps(portable, indent=2, ensure_ascii=False)
        (folder / "tokenizer.json").write_text(content, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(
            json.dumps(config, indent=2) + "\n", encoding="utf-8"
        )

    def write(self, folder: str | Path) -> bool:
        """Save as a folder of its own, completely or not at all, and return True if it replaced a
        tokenizer.
        """
        check_folder(folder)
        target = Path(os.path.realpath(folder))  # resolve() gives up at a loop of links
        old, replaced = target.with_name(f"{UNFINISHED}old-{target.name}"), False
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(target) as unfinished:
            self.save(unfinished)
            if replaced := target.exists() and any(target.iterdir()):
                remove(old)
                target.rename(old)
        remove(old)
        return replaced

    def _make_post_processor(self, second_type: int) -> dict[str, Any]:
        cls, sep = self.get_token(self.cls_id), self.get_token(self.sep_id)

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
        if not self.engine.kind.is_bytes:
            return template
        # Offsets then exclude the space that a token begins with.
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

        In the folder of a run or of a litebert model, the folder `tokenizer` is opened. A name such
        as `hf:albert/albert-base-v2` opens the tokenizer of a model of the Hub.

        An old folder with `vocab.json` and `merges.txt` is byte-level BPE. It puts a space before a
        text only where its `tokenizer_config.json` says `add_prefix_space`. A bare `*.model` or
        `vocab.txt` does not say whether text was lower-cased or stripped of accents before it. So
        the text is lower-cased and stripped where no token has upper case or accents.
        """
        path = hub.locate(path, tokenizer_only=True, error=DataError)
        if path.is_dir():
            inner = path / "tokenizer"
            folder = inner if (path / "recipe.json").is_file() and inner.is_dir() else path
            engine, config = _open_folder(folder)
            _refuse_mixture(folder, engine, config)
            side: Any = config.get("truncation_side", "right")
            if side not in ("right", "left"):
                raise DataError(
                    f"{folder / 'tokenizer_config.json'} has truncation_side {side!r}; write right "
                    "or left"
                )
            return cls(_add_tokens_of(folder, engine, config), side)
        if not path.is_file() or path.suffix not in _LOADERS:
            raise DataError(
                f"there is no tokenizer at {path}; make one with litebert tokenizer train, or give "
                "a folder, *.model, vocab.txt or tokenizer.json"
            )
        return cls(_LOADERS[path.suffix](path, {}))


@contextmanager
def explain_surrogates(texts: Sequence[str]) -> Iterator[None]:
    """Name the fault where a library refuses a text: a surrogate, left by a wrong decoding."""
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


_SAVED = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    *chain.from_iterable(kind.files for kind in KINDS.values()),
}


def check_folder(folder: str | Path) -> None:
    """Refuse to write a tokenizer into a folder that holds anything else."""
    folder = Path(folder)
    parent_folder = next(
        parent for parent in Path(os.path.realpath(folder)).parents if parent.exists()
    )
    if parent_folder.is_dir() and not os.access(parent_folder, os.W_OK):
        raise DataError(
            f"{folder} cannot be made, because {parent_folder} may not be written to; "
            "choose another folder"
        )
    if not folder.exists():
        if not parent_folder.is_dir():
            raise DataError(
                f"{folder} cannot be made, because {parent_folder} is a file; choose another folder"
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


def _add_tokens_of(folder: Path, engine: Engine, config: dict[str, Any]) -> Engine:
    """Add the tokens that older programs keep beside a vocabulary, in `added_tokens.json` and in
    `tokenizer_config.json`. A `tokenizer.json` has them itself.
    """
    if (folder / "tokenizer.json").is_file():
        return engine
    added: dict[int, dict[str, Any]] = {}
    special: set[Any] = set()
    map_file, key = folder / "special_tokens_map.json", "additional_special_tokens"
    try:
        settings = read_json(map_file, DataError) if map_file.is_file() else {}
        named = (config.get(f"{role}_token") for role in SPECIAL_NAMES)
        for token in (*named, *config.get(key, ()), *settings.get(key, ())):
            special.add(token["content"] if isinstance(token, dict) else token)
        if (file := folder / "added_tokens.json").is_file():
            for token, i in read_json(file, DataError).items():
                is_special = token in special
                added[int(i)] = {
                    "content": token,
                    "special": is_special,
                    "normalized": not is_special,
                }
        for i, token in config.get("added_tokens_decoder", {}).items():
            added[int(i)] = {**token, "content": str(token["content"])}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(
            f"{folder} has added tokens that are no pairs of a token and its id ({error}); save "
            "the tokenizer again"
        ) from None
    size = len(engine.tokens)
    for i in sorted(added):
        if i > size or i < 0 or (i < size and engine.tokens[i] != added[i]["content"]):
            raise DataError(
                f"{folder} gives the added token {added[i]['content']!r} the id {i}, which does "
                "not follow the others or is another token's; save the tokenizer again"
            )
        size = max(size, i + 1)
    new = [
        {**_NOT_SPECIAL, **added[i], "id": i}
        for i in sorted(added)
        if i not in engine.roles.values() and i not in engine.special_ids
    ]
    return _with_added_tokens(engine, new, str(folder)) if new else engine


_NOT_SPECIAL = {**PLAIN_TOKEN, "special": False}


def _with_added_tokens(engine: Engine, tokens: list[dict[str, Any]], name: str) -> Engine:
    spec = json.loads(json.dumps(engine.to_portable()))
    new = {token["id"] for token in tokens}
    others = [token for token in spec.get("added_tokens", []) if token["id"] not in new]
    spec["added_tokens"] = sorted([*others, *tokens], key=lambda token: token["id"])
    return TokenizersEngine(json.dumps(spec), name)


def add_named_tokens(tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """Add tokens such as [USR], which a text then has where it spells them, behind all others."""
    known = {*tokenizer.engine.tokens}
    for token in tokens:
        if not token or token != token.strip():
            raise DataError(
                f"the token {token!r} is empty or has spaces at its ends; name it without"
            )
        if token in known:
            raise DataError(f"the tokenizer has the token {token!r} already; leave it out")
        known.add(token)
    first = tokenizer.vocab_size
    added = [{**_NOT_SPECIAL, "content": token, "id": first + i} for i, token in enumerate(tokens)]
    engine = _with_added_tokens(tokenizer.engine, added, "the tokenizer")
    return Tokenizer(engine, tokenizer.truncation_side)


def _refuse_mixture(folder: Path, engine: Engine, config: dict[str, Any]) -> None:
    """Refuse a folder that holds files of two tokenizers.

    In a folder of another program, only files of two kinds are refused.
    """
    other = [
        kind.files[-1]
        for kind in KINDS.values()
        if kind.files and not isinstance(engine.kind, kind) and (folder / kind.files[-1]).is_file()
    ]
    if isinstance(engine, PortableUnigram):
        if not engine.is_of_model():
            other.append("tokenizer.json")
    elif _ENGINE_KEY in config and isinstance(engine, TokenizersEngine):
        files = {
            name: content.decode()
            for name, content in engine.make_files().items()
            if (folder / name).is_file()
        }
        other += [
            name
            for name, text in files.items()
            if _parse_vocabulary(folder / name) != _parse_vocabulary(folder / name, text)
        ]
    elif _ENGINE_KEY in config and (portable := folder / "tokenizer.json").is_file():
        model = read_json(portable, DataError, "save the tokenizer again").get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        entries = vocabulary if isinstance(vocabulary, list) else []
        tokens = [entry[0] if isinstance(entry, list) and entry else None for entry in entries]
        if tokens != engine.tokens:
            other.append(portable.name)
    if other:
        raise DataError(
            f"{folder} mixes two tokenizers: {other[0]} does not belong to the {engine.kind.name} "
            "tokenizer there; delete the folder and save the tokenizer again"
        )


def _parse_vocabulary(path: Path, text: str | None = None) -> Any:
    """Return the content of a vocabulary file, independent of its layout.

    `text` replaces the content of the file.
    """
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
    is_litebert = config.get(_ENGINE_KEY) == SentencePieceEngine.__name__
    # Another program's tokenizer.json may hold more than its model file, such as lower-casing, so
    # it is preferred; ours is the same.
    if portable.is_file() and not (is_litebert and models):
        return _load_json(portable, config), config
    if portable.is_file() and find_spec("sentencepiece") is None:
        text, proto = _read_text(portable), _read_bytes(models[0])
        return PortableUnigram(text, str(portable), proto), config
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
    text = [token for i, token in enumerate(engine.tokens) if i not in engine.special_ids]
    lower = config.get("do_lower_case", not _has_upper(text))
    strip = not config.get(
        "keep_accents", not lower or any(strip_marks(token) != token for token in text)
    )
    # The model's own normalizer may do these steps already.
    steps = ["strip"] * (strip and engine.normalize("é") != "e") + ["lower"] * (
        lower and engine.normalize("A") != "a"
    )
    if not steps:
        return engine
    model = import_model_types().ModelProto.FromString(proto)
    model.normalizer_spec.name = STEPS_PREFIX + ",".join(steps)
    return SentencePieceEngine(model.SerializeToString(deterministic=True), str(path))


def _load_vocabulary(path: Path, config: dict[str, Any]) -> Engine:
    lines = _read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for i, token in enumerate(lines):
        if token in vocabulary:
            fault = f"the token {token!r} stands on line {vocabulary[token] + 1} too"
            raise DataError(f"{path}:{i + 1}: {fault}; remove one")
        vocabulary[token] = i
    lower = config.get(
        "do_lower_case", not _has_upper(token for token in vocabulary if not token.startswith("["))
    )
    normalizer = normalizers.BertNormalizer(
        lowercase=lower,
        # None strips accents together with lower-casing, as in the original.
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    return build_wordpiece_engine(vocabulary, normalizer, str(path))


def _load_merges(folder: Path, config: dict[str, Any]) -> Engine:
    try:
        vocabulary, merges = BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        return build_byte_engine(
            vocabulary, merges, config.get("add_prefix_space", False), str(folder)
        )
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


def _has_upper(tokens: Iterable[str]) -> bool:
    return any(token != token.lower() for token in tokens)


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path)
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
