"""The two libraries that split text into tokens, behind one small interface, `Engine`.

`SentencePieceEngine` runs a unigram model in the `sentencepiece` library. That is one C++ call for
a batch, several times as fast on one thread as the same model in `tokenizers`. `TokenizersEngine`
runs whatever a `tokenizer.json` describes: WordPiece, byte-level BPE, and unigram models whose
normalizer SentencePiece cannot express. Both encode on the calling thread only, because preparing
text runs several processes. Both add no special tokens and never find one in raw text.

SentencePiece applies a model's character table by longest match, `tokenizers` by grapheme. The two
disagree on marks that do not compose. So the models trained here read NFKC text, on both sides
(plain ASCII skips the step). Their table maps single characters only in ways that the normalizers
of `tokenizers` can repeat.
"""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from litebert.base.errors import DataError, naming_extras
from litebert.base.json_reader import parse_json
from litebert.tokenizer.kinds import KINDS, Unigram
from litebert.tokenizer.words import WORD_MARK

STEPS_PREFIX = "litebert:"
"""Prefix of the normalizer names in our models. A name `litebert:a,b` names the `STEPS` that run on
a text before SentencePiece. In `litebert:a|c,d` the model's own character table does those after
the bar.
"""

# Controls that the character table of our models drops or reads as spaces: SentencePiece's nmt
# rules, and soft hyphens dropped.
DROPPED_CHARACTERS = (*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F, 0xAD)
SPACE_CHARACTERS = tuple(
    map(ord, "\t\n\f\r\u061c\u1680\u200b\u200c\u200e\u200f\u2028\u2029\u2581\ufeff")
)

SPECIAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Names of each role. The first that the vocabulary holds is used."""


def find_roles(tokens: Sequence[str], name: str) -> dict[str, int]:
    id_of = {token: i for i, token in enumerate(tokens)}
    roles: dict[str, int] = {}
    for role, names in SPECIAL_NAMES.items():
        ids = [id_of[candidate] for candidate in names if candidate in id_of]
        if not ids:
            raise DataError(
                f"{name} has no token {' or '.join(names)}; add it, or train another tokenizer"
            )
        roles[role] = ids[0]
    return roles


# ------------------------------------------------------------------------------------ SentencePiece


def strip_marks(text: str) -> str:
    """Return the text without non-spacing marks. Decomposed letters (Hangul) are composed again."""
    stripped = "".join(
        char for char in unicodedata.normalize("NFKD", text) if unicodedata.category(char) != "Mn"
    )
    return unicodedata.normalize("NFC", stripped)


STEPS: dict[str, tuple[Callable[[str], str], list[Any]]] = {
    "nfkc": (lambda text: unicodedata.normalize("NFKC", text), [normalizers.NFKC()]),
    "lower": (str.lower, [normalizers.Lowercase()]),
    "strip": (
        strip_marks,
        [normalizers.NFKD(), normalizers.Replace(Regex(r"\p{Mn}"), ""), normalizers.NFC()],
    ),
}
_ASCII_UNCHANGED = ("nfkc", "strip")


def import_model_types() -> Any:
    """Import the protobuf types of SentencePiece models, which no other tokenizer needs. They are
    made at run time, unknown to type checkers.
    """
    with naming_extras():
        from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2


def digest_unigram(proto: bytes) -> str:
    """The sha256 (hex) of what decides the ids of a SentencePiece model: its pieces, its normalizer
    and three settings, as protobuf writes them alone. The training record also has paths, seeds and
    thread counts. It is read without protobuf, which answers do without.
    """
    end = 0
    while end < len(proto) and proto[end] == 0x0A:  # the pieces, field 1, stand first
        size, end = _read_number(proto, end + 1)
        end += size
    settings: dict[int, Any] = {3: 1, 24: 0, 35: 0}  # type, suffixes, byte fallback; below 128
    normalizer = b"\x1a\0"
    for number, value, written in _list_fields(proto[end:]):
        if number == 2:
            settings |= {key: item for key, item, _ in _list_fields(value) if key in settings}
        elif number == 3:
            normalizer = written
    kind, suffixes, fallback = settings.values()
    trainer = bytes([0x12, 8, 0x18, kind, 0xC0, 1, suffixes, 0x98, 2, fallback])
    return hashlib.sha256(proto[:end] + trainer + normalizer).hexdigest()


def _list_fields(message: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """The fields of a protobuf message: number, value, and all of its bytes."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _read_number(message, at)
        value: Any
        if key & 7 in (0, 2):
            value, at = _read_number(message, at)
        if key & 7:
            size = {1: 8, 5: 4}.get(key & 7) or value
            value, at = message[at : at + size], at + size
        yield key >> 3, value, message[begin:at]


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := data[at]) > 0x7F:
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | byte << shift, at + 1


class SentencePieceEngine:
    """A SentencePiece unigram model.

    `proto` is the content of a `spiece.model` file, and `name` appears in errors.
    """

    kind = Unigram({})
    pair_separators = Unigram.pair_separators

    def __init__(self, proto: bytes, name: str) -> None:
        with naming_extras():
            import sentencepiece
            from google.protobuf.message import DecodeError

        remedy = "give a unigram SentencePiece model"
        model_pb2 = import_model_types()
        try:
            model = model_pb2.ModelProto.FromString(proto)
            if not model.pieces:
                raise DataError(f"{name} holds no SentencePiece tokens; {remedy}")
            if model.trainer_spec.model_type != model_pb2.TrainerSpec.UNIGRAM:
                raise DataError(
                    f"{name} is a SentencePiece model of another type than unigram; {remedy}"
                )
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except (DecodeError, RuntimeError) as error:
            raise DataError(
                f"{name} is not a SentencePiece model or is damaged; {remedy}"
            ) from error
        self._proto = proto
        self.tokens = [piece.piece for piece in model.pieces]
        self.roles = find_roles(self.tokens, name)
        reserved = (
            i for i, p in enumerate(model.pieces) if p.type in (p.CONTROL, p.UNKNOWN, p.UNUSED)
        )
        # Special tokens are never drawn and never masked.
        self.special_ids = tuple(sorted({*self.roles.values(), *reserved}))
        normalizer = model.normalizer_spec.name
        before, bar, inside = normalizer.removeprefix(STEPS_PREFIX).partition("|")
        has_steps = normalizer.startswith(STEPS_PREFIX)
        self.steps = before.split(",") if has_steps else []
        self._table = [step for step in inside.split(",") if step] if has_steps and bar else None
        if unknown := sorted({*self.steps, *(self._table or ())} - set(STEPS)):
            raise DataError(
                f"{name} asks for the normalizer {unknown[0]!r}, written by a newer "
                "litebert; update it"
            )

    def _prepare(self, text: str) -> str:
        for step in self.steps:
            if not (text.isascii() and step in _ASCII_UNCHANGED):
                text = STEPS[step][0](text)
        return text

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        batch = [self._prepare(text) for text in texts] if self.steps else list(texts)
        ids: list[list[int]] = self._processor.encode(batch, out_type=int, num_threads=1)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._processor.decode(list(ids)))

    def normalize(self, text: str) -> str:
        return str(self._processor.normalize(self._prepare(text))).replace(WORD_MARK, " ").strip()

    def _parse_model(self) -> Any:
        return import_model_types().ModelProto.FromString(self._proto)

    def find_word_starts(self) -> np.ndarray | None:
        model = self._parse_model()
        if model.trainer_spec.treat_whitespace_as_suffix:
            return None
        starts = self.kind.find_starts(self.tokens)
        if starts is not None:
            for i, piece in enumerate(model.pieces):
                # The bytes of a character, except the first, continue it.
                if piece.type == piece.BYTE:
                    starts[i] = not 0x80 <= int(piece.piece[1:-1], 16) < 0xC0
        return starts

    def compute_digest(self) -> str:
        return digest_unigram(self._proto)

    def make_files(self) -> dict[str, bytes]:
        return {"spiece.model": self._proto}

    def make_settings(self) -> dict[str, Any]:
        return {}

    def to_portable(self) -> dict[str, Any]:
        """The same model for `tokenizers`.

        Where the two can still differ: SentencePiece adds scores in float32, so that of two cuts
        whose scores agree to seven digits either may win (as in `*****`); `tokenizers` does not
        know compatibility characters younger than its tables; a foreign model's character table is
        applied by longest match there and by grapheme here.
        """
        model = self._parse_model()
        spec, rules = model.normalizer_spec, []
        for step in self.steps:
            rules += STEPS[step][1]
        if self._table is not None:
            tables = (DROPPED_CHARACTERS, SPACE_CHARACTERS)
            dropped, spaces = (
                "".join(rf"\x{{{point:X}}}" for point in points) for points in tables
            )
            # The word mark goes before what begins the text; something dropped there must not count
            # as its beginning.
            leading = dropped + (r"\p{Mn}" if "strip" in self._table else "")
            for pattern, becomes in (
                (rf"\A[{leading}]+", " "),
                (f"[{dropped}]", ""),
                (f"[{spaces}]", " "),
            ):
                rules.append(normalizers.Replace(Regex(pattern), becomes))
            for step in self._table:
                rules += STEPS[step][1]
        elif spec.precompiled_charsmap:
            rules += [normalizers.NFC(), normalizers.Precompiled(spec.precompiled_charsmap)]
        if spec.remove_extra_whitespaces:
            rules += [
                normalizers.Replace(Regex(" {2,}"), " "),
                normalizers.Replace(Regex(r" +\z"), ""),
            ]
            if not spec.add_dummy_prefix:
                rules.append(normalizers.Replace(Regex(r"\A +"), ""))
        # User-defined tokens have no score of their own: SentencePiece gives them length * best -
        # 0.1.
        best = max((p.score for p in model.pieces if p.type == p.NORMAL), default=0.0)
        scores = [
            (p.piece, len(p.piece.encode()) * best - 0.1 if p.type == p.USER_DEFINED else p.score)
            for p in model.pieces
        ]
        unk_id = next((i for i, p in enumerate(model.pieces) if p.type == p.UNKNOWN), None)
        portable = tokenizers.Tokenizer(
            models.Unigram(scores, unk_id, model.trainer_spec.byte_fallback)
        )
        if rules:
            portable.normalizer = normalizers.Sequence(rules)
        scheme = "first" if spec.add_dummy_prefix else "never"
        portable.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        portable.decoder = decoders.Metaspace(prepend_scheme=scheme, split=False)
        portable.add_special_tokens(
            [AddedToken(self.tokens[i], normalized=False) for i in self.special_ids]
        )
        written: dict[str, Any] = json.loads(portable.to_str())
        return written


# --------------------------------------------------------------------------------------- tokenizers


WORDS = 1 << 16
LONGEST_WORD = 32


class TokenizersEngine:
    """A WordPiece, byte-level BPE or unigram model of `tokenizers`.

    `text` is the content of a `tokenizer.json`, and `name` appears in errors.
    """

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        try:
            self._spec: dict[str, Any] = parse_json(text)
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
            model = self._spec["model"]
            # Old files have no type, so their fields tell it.
            type_name = model.get("type") or next(
                name for name, field in _TYPE_FIELDS.items() if field in model
            )
            separators = _count_pair_separators(self._spec.get("post_processor"))
        except Exception as error:  # the library raises plain Exception
            raise DataError(
                f"{name} is not a tokenizer.json file or is damaged ({error}); save it again"
            ) from error
        kind = KINDS.get(str(type_name).lower())
        self._bytes = (
            _find_part(self._spec.get("pre_tokenizer"), "ByteLevel")
            if kind is not None and kind.is_bytes
            else None
        )
        if kind is None or (kind.is_bytes and self._bytes is None):
            raise DataError(
                f"{name} holds a {type_name} tokenizer; use a WordPiece, Unigram, byte-level "
                "BPE or WordLevel one"
            )
        if kind.names_unknown and (unknown := model.get("unk_token")) not in model["vocab"]:
            raise DataError(
                f"{name} has no token {unknown!r}, which its unk_token names; add it to its vocab"
            )
        self.kind = kind(model)
        self.pair_separators = separators or kind.pair_separators
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[token] for token in self.tokens] != list(range(len(self.tokens))):
            raise DataError(
                f"the ids of {name} have gaps or repeat; renumber them from 0 without gaps"
            )
        self.roles = find_roles(self.tokens, name)
        added = {token["id"]: token for token in self._spec.get("added_tokens", [])}
        for i in self.roles.values():  # a file may not say that they are special
            added[i] = {
                **PLAIN_TOKEN,
                "id": i,
                "content": self.tokens[i],
                **added.get(i, {}),
                "special": True,
            }
        self._spec["added_tokens"] = [added[i] for i in sorted(added)]
        self.special_ids = tuple(i for i in sorted(added) if added[i].get("special"))
        has_others = not {*self.special_ids} <= {*self.roles.values()}
        # There, what stands between two spaces has its tokens whatever stands beside it.
        normalizer, splitter = self._spec.get("normalizer"), self._spec.get("pre_tokenizer")
        known = _find_part(normalizer, "BertNormalizer"), _find_part(splitter, "BertPreTokenizer")
        self._knows_words = (
            self.kind.takes_longest
            and splitter is not None
            and known == (normalizer, splitter)
            and {*added} <= {*self.roles.values()}
        )
        self._words: dict[str, list[int]] = {}
        if kind.finds_special or has_others:
            self._splitter = self._hide_roles()
        else:
            self._splitter = self._tokenizer
            self._splitter.encode_special_tokens = True  # "[MASK]" in a text is text

    def _hide_roles(self) -> tokenizers.Tokenizer:
        """Return a copy that reads "[MASK]" and the other roles in a text as text, and every other
        added token, also a special one, as the token that it is.
        """
        roles, model = {*self.roles.values()}, self._spec["model"]
        added = [{**token, "special": False} for token in self._spec["added_tokens"]]
        spec = {**self._spec, "post_processor": None, "truncation": None, "padding": None}
        if self.kind.finds_special:
            vocabulary = list(model["vocab"])
            for i in (i for i in roles if i < len(vocabulary)):
                vocabulary[i] = (f"\0 {self.tokens[i]}", vocabulary[i][1])
            spec["model"] = {**model, "vocab": vocabulary}
            spec["added_tokens"] = [token for token in added if token["id"] not in roles]
            return tokenizers.Tokenizer.from_str(json.dumps(spec))
        spec["added_tokens"] = [{**token, "special": token["id"] in roles} for token in added]
        splitter = tokenizers.Tokenizer.from_str(json.dumps(spec))
        splitter.encode_special_tokens = True
        return splitter

    def __reduce__(self) -> tuple[type[TokenizersEngine], tuple[Any, ...]]:
        # The library's pickling loses `encode_special_tokens`.
        return TokenizersEngine, (json.dumps(self._spec), "the tokenizer")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not self._knows_words:
            return [encoding.ids for encoding in self._encode_texts(texts)]
        encoded = []
        for text in texts:
            ids: list[int] = []
            for word in text.split(" "):
                known = self._words.get(word)
                ids += self._encode_word(word) if known is None else known
            encoded.append(ids)
        return encoded

    def _encode_word(self, word: str) -> list[int]:
        (encoding,) = self._encode_texts([word])
        ids: list[int] = encoding.ids
        if len(word) <= LONGEST_WORD:
            if len(self._words) >= WORDS:
                self._words.clear()
            self._words[word] = ids
        return ids

    def encode_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids, and the first and last character of each token as the library counts
        them.
        """
        (encoding,) = self._encode_texts([text])
        return encoding.ids, encoding.offsets

    def _encode_texts(self, texts: Sequence[str]) -> list[Any]:
        # A call for a batch lets other Python threads run. But it starts the library's own threads,
        # unless the environment forbids them, as in the workers of the service.
        try:
            if os.environ.get("TOKENIZERS_PARALLELISM") == "false":
                return list(self._splitter.encode_batch(list(texts), add_special_tokens=False))
            return [self._splitter.encode(text, add_special_tokens=False) for text in texts]
        except (TypeError, UnicodeEncodeError, MemoryError):
            raise
        except BaseException as error:  # a panic of the library is no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise DataError(
                f"{self._name} cannot split a text ({error}); give a tokenizer.json whose rules "
                "fit every text"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        return text.removeprefix(" ") if self._bytes and self._bytes["add_prefix_space"] else text

    def normalize(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        text = normalizer.normalize_str(text) if normalizer else text
        return " ".join(self.kind.remove_marks(text).split())

    def find_word_starts(self) -> np.ndarray | None:
        return self.kind.find_starts(self.tokens)

    def compute_digest(self) -> str:
        # The content of the file, for versions of the library write it differently.
        parts = {
            key: self._spec.get(key)
            for key in ("model", "normalizer", "pre_tokenizer", "added_tokens")
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def make_files(self) -> dict[str, bytes]:
        """The vocabulary as older programs read it."""
        return self.kind.make_files(self.tokens, self._spec["model"])

    def make_settings(self) -> dict[str, Any]:
        """The settings that a class of `transformers` needs if it builds its own normalizer or
        splitter.
        """
        if self._bytes:
            return {"add_prefix_space": self._bytes["add_prefix_space"]}
        normalizer = _find_part(self._spec.get("normalizer"), "BertNormalizer")
        if normalizer is None:
            return {}
        return {
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        }

    def to_portable(self) -> dict[str, Any]:
        return dict(self._spec)


class PortableUnigram(TokenizersEngine):
    """A SentencePiece model saved here, read from the tokenizer.json beside it, for where its own
    library is not installed.
    """

    def __init__(self, text: str, name: str, proto: bytes) -> None:
        super().__init__(text, name)
        self._proto = proto

    def is_of_model(self) -> bool:
        """True if the tokens stand in the model too, one after the other."""
        at = 0
        for token in self.tokens:
            at = self._proto.find(token.encode(), at)
            if at < 0:
                return False
            at += len(token.encode())
        return True

    def __reduce__(self) -> tuple[type[TokenizersEngine], tuple[Any, ...]]:
        return PortableUnigram, (json.dumps(self._spec), "the tokenizer", self._proto)

    def compute_digest(self) -> str:
        try:
            return digest_unigram(self._proto)
        except (IndexError, ValueError):
            raise DataError(f"the *.model beside {self._name} is damaged; copy it again") from None

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).replace(self.tokens[self.roles["unk"]], " ⁇ ")

    def make_files(self) -> dict[str, bytes]:
        return {"spiece.model": self._proto}


_TYPE_FIELDS = {"BPE": "merges", "WordPiece": "continuing_subword_prefix", "Unigram": "unk_id"}
PLAIN_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def _find_part(spec: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    if spec is None:
        return None
    steps = next(
        (spec[key] for key in ("normalizers", "pretokenizers", "processors") if key in spec), [spec]
    )
    return next((step for step in steps if step["type"] == kind), None)


def _count_pair_separators(processor: dict[str, Any] | None) -> int | None:
    """Count the separators that a `tokenizer.json` puts between two segments; None where it does
    not say.
    """
    for kind, count in (("RobertaProcessing", 2), ("BertProcessing", 1)):
        if _find_part(processor, kind):
            return count
    template = _find_part(processor, "TemplateProcessing")
    if template is None:
        return None
    names = [part["id"] for entry in template["pair"] for part in entry.values()]
    return max(
        1, sum(name in SPECIAL_NAMES["sep"] for name in names[names.index("A") : names.index("B")])
    )


def build_wordpiece_engine(
    vocabulary: dict[str, int], normalizer: Any, name: str
) -> TokenizersEngine:
    """Build WordPiece with greedy longest match over `vocabulary`, split at whitespace and
    punctuation.
    """
    unk = next((candidate for candidate in SPECIAL_NAMES["unk"] if candidate in vocabulary), None)
    if unk is None:
        raise DataError(
            f"{name} has no token {' or '.join(SPECIAL_NAMES['unk'])}; add it, or give another file"
        )
    portable = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unk))
    portable.normalizer = normalizer
    portable.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    portable.decoder = decoders.WordPiece()
    return _build_engine(portable, vocabulary, name)


def build_byte_engine(
    vocabulary: dict[str, int], merges: Iterable[tuple[str, str]], prefix: bool, name: str
) -> TokenizersEngine:
    """Build byte-level BPE, split as GPT-2 splits.

    With `prefix`, the first word of a text is split as elsewhere in it.
    """
    unk = next((candidate for candidate in SPECIAL_NAMES["unk"] if candidate in vocabulary), None)
    portable = tokenizers.Tokenizer(models.BPE(vocabulary, list(merges), unk_token=unk))
    portable.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    portable.decoder = decoders.ByteLevel()
    return _build_engine(portable, vocabulary, name, lstrip=SPECIAL_NAMES["mask"])


def _build_engine(
    portable: tokenizers.Tokenizer,
    vocabulary: dict[str, int],
    name: str,
    lstrip: Sequence[str] = (),
) -> TokenizersEngine:
    """Add the special tokens to a tokenizer, and build its engine.

    `lstrip` holds the special tokens that take the space before them, where `transformers` finds
    them in a text.
    """
    special = [token for names in SPECIAL_NAMES.values() for token in names if token in vocabulary]
    ordered = sorted(special, key=vocabulary.__getitem__)
    portable.add_special_tokens(
        [AddedToken(token, normalized=False, lstrip=token in lstrip) for token in ordered]
    )
    return TokenizersEngine(portable.to_str(), name)


Engine: TypeAlias = SentencePieceEngine | TokenizersEngine
