"""Tokenizers trained on a stream of texts of any size, within a memory budget, with the same result
every time.

The stream is read once. A seeded reservoir keeps a uniform sample of its lines, so time and memory
depend on the budget and not on the corpus. Only rare words beyond the sample are lost. Unigram
models are trained by `sentencepiece` (`tokenizers` needs many times as long), WordPiece and
byte-level BPE by `tokenizers`. Both learn in a process of their own (child.py), so that Ctrl-C ends
them at once.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from litebert.base.errors import DataError, nearest
from litebert.base.progress import task, track
from litebert.base.storage import atomic_write
from litebert.text.records import check_texts
from litebert.text.sentences import LINE_CHARACTERS, split_lines
from litebert.tokenizer import child
from litebert.tokenizer.engines import (
    DROPPED_CHARACTERS,
    SPACE_CHARACTERS,
    STEPS_PREFIX,
    Engine,
    SentencePieceEngine,
    build_byte_engine,
    build_wordpiece_engine,
    import_model_types,
    strip_marks,
)
from litebert.tokenizer.kinds import KINDS
from litebert.tokenizer.tokenizer import Tokenizer

# ALBERT's layout (its README's spm_train command): ids 0 to 12 are these, learned tokens follow.
CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# RoBERTa's layout (fairseq's dictionary): ids 0 to 3 are these, learned tokens follow, the mask
# comes last.
BYTE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
BYTE_MASK = "<mask>"

log = logging.getLogger("litebert")

MAX_VOCABULARY = 1 << 24
_WHOLE_ALPHABET = 256
_TRAINING_THREADS = 16
"""Fixed, because another number of threads adds the same numbers in another order."""


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: Literal["unigram", "wordpiece", "bpe"],
    vocab_size: int,
    lower_case: bool | None = None,
    strip_accents: bool = False,
    memory: int = 64 << 20,
    seed: int = 0,
    shrink: bool = False,
) -> Tokenizer:
    """Learn `vocab_size` tokens, special ones included, from `texts` (documents or lines, read
    once).

    `unigram` has ALBERT's layout of ids, `wordpiece` BERT's. `bpe` is byte-level in RoBERTa's
    layout, and a text's first word is split as elsewhere. It keeps a text byte for byte, so it
    refuses `lower_case` and `strip_accents`. The others lower-case unless `lower_case` is False,
    and keep accents unless `strip_accents`. The same texts, options and seed give the same ids.

    Args:
        memory: budget in bytes for the sample of lines that training reads.
        shrink: learn fewer tokens from a text too small for `vocab_size`, instead of refusing it.
    """
    check_size(vocab_size)
    if memory < 1:
        raise DataError(
            f"the memory for the sample of text is {memory} bytes; give at least one MiB"
        )
    lower = lower_case is not False
    trainers: dict[str, Callable[[list[str], int], Engine]] = {
        "unigram": lambda lines, size: _train_unigram(lines, size, lower, strip_accents),
        "wordpiece": lambda lines, size: _train_wordpiece(lines, size, lower, strip_accents),
        "bpe": _train_bpe,
    }
    if kind not in trainers:
        raise DataError(f"there is no tokenizer kind {kind!r}; {nearest(kind, trainers)}")
    if KINDS[kind].is_bytes and (lower_case or strip_accents):
        raise DataError(
            "a bpe tokenizer keeps text byte for byte, so it neither lower-cases nor strips "
            "accents; leave both out, or train a unigram or wordpiece tokenizer"
        )
    with track(check_texts(texts), "reading text for the tokenizer", unit="documents") as read:
        lines = sample_lines((line for text in read for line in split_lines(text)), memory, seed)
    if not lines:
        raise DataError(
            "the corpus holds no text to train a tokenizer on; give files with text in them"
        )
    size = vocab_size
    with task(f"training a {kind} tokenizer"):
        while True:
            try:
                engine = trainers[kind](lines, size)
                break
            except _TooLarge as error:
                # A smaller vocabulary may keep fewer characters, so its own limit may be lower.
                (size,) = error.args
    if size < vocab_size:
        fault = f"the text is too small for a vocabulary of {vocab_size}"
        if not shrink:
            raise DataError(f"{fault}; give at most {size}, or add text")
        log.info(f"{fault} tokens, so the tokenizer has as many as it allows, {size}")
    return Tokenizer(engine)


def check_size(vocab_size: int) -> None:
    if not 1 <= vocab_size <= MAX_VOCABULARY:
        raise DataError(
            f"the vocabulary size is {vocab_size}; give one from 1 to {MAX_VOCABULARY}, e.g. 8192"
        )


class _TooLarge(Exception):
    """Raised with the most tokens that the text fills."""


def sample_lines(lines: Iterable[str], memory: int, seed: int) -> list[str]:
    """Return a uniform sample of the lines that fits `memory` bytes, in their order; all lines if
    they fit.

    Each line draws a number. Those below the highest limit that fits the budget stay (a bottom-k
    sample).
    """
    draw = random.Random(seed).random
    # Entries are (-draw, position, line), so that the highest draw is dropped first.
    heap: list[tuple[float, int, str]] = []
    used, limit = 0, 1.0
    for position, line in enumerate(lines):
        number = draw()
        if number >= limit:
            continue
        heapq.heappush(heap, (-number, position, line))
        used += sys.getsizeof(line) + _ENTRY_BYTES
        while used > memory and len(heap) > 1:
            evicted, _, dropped = heapq.heappop(heap)
            limit = -evicted
            used -= sys.getsizeof(dropped) + _ENTRY_BYTES
    return [line for _, _, line in sorted(heap, key=lambda entry: entry[1])]


_ENTRY_BYTES = sys.getsizeof((0.0, 0, "")) + sys.getsizeof(0.5) + sys.getsizeof(1) + 8


# ------------------------------------------------------------------------------------------ unigram


@cache
def build_character_rules(lower_case: bool, strip_accents: bool) -> dict[str, str]:
    """Return the characters that the normalizer changes, with what it makes of them.

    A key may be a base with its marks. The rules are NFKC per character, SentencePiece's nmt rules
    for controls and spaces, and soft hyphens dropped. With `lower_case` they lower-case as Unicode
    does, without case folding, which would turn a German sharp s into ss. With `strip_accents` they
    drop marks.
    """

    def normalize(text: str) -> str:
        text = unicodedata.normalize("NFKC", text)
        text = "".join(char.lower() for char in text) if lower_case else text
        return strip_marks(text) if strip_accents else text

    rules = {}
    for code in range(1, sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in ("Cn", "Co", "Cs"):
            continue
        decomposed = unicodedata.normalize("NFD", char)
        for key in (char, decomposed):
            # Hangul composes before the model sees it, and eleven thousand more keys would slow
            # down its table.
            if len(key) > 1 and "HANGUL" in unicodedata.name(key[0], ""):
                continue
            if (value := normalize(key)) != key:
                rules[key] = value
    rules.update({chr(code): "" for code in DROPPED_CHARACTERS})
    rules.update({chr(code): " " for code in SPACE_CHARACTERS})
    return rules


def _train_unigram(
    lines: list[str], vocab_size: int, lower_case: bool, strip_accents: bool
) -> Engine:
    types = import_model_types()
    rules = build_character_rules(lower_case, strip_accents)
    steps = ["lower"] * lower_case + ["strip"] * strip_accents
    lines = [line if line.isascii() else unicodedata.normalize("NFKC", line) for line in lines]
    room = vocab_size - 2 - len(CONTROL_SYMBOLS) - len(USER_DEFINED_SYMBOLS)
    # A character takes one token, and room stays for one token of several characters.
    lines, _ = _limit_alphabet(lines, lambda char: rules.get(char, char), room, lambda char: 2)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rules.tsv"
        codes = [
            (" ".join(f"{ord(c):04X}" for c in text) for text in rule) for rule in rules.items()
        ]
        with atomic_write(table) as file:
            file.write("".join(f"{key}\t{value}\n" for key, value in codes).encode("ascii"))
        options = {
            "model_type": "unigram",
            "vocab_size": vocab_size,
            "character_coverage": 1.0,
            "normalization_rule_tsv": str(table),
            "pad_id": 0,
            "unk_id": 1,
            "bos_id": -1,
            "eos_id": -1,
            "control_symbols": list(CONTROL_SYMBOLS),
            "user_defined_symbols": list(USER_DEFINED_SYMBOLS),
            "max_sentence_length": 4 * LINE_CHARACTERS + 4,
            "num_threads": _TRAINING_THREADS,
            "minloglevel": 3,
        }
        try:
            proto = _run_child("unigram", lines=lines, options=options)
        except _LibraryError as error:
            report = " ".join(str(error).split())
            if largest := re.search(r"value <= (\d+)", report):
                raise _TooLarge(int(largest[1])) from error
            if smallest := re.search(r"required_chars\D*\d+ vs (\d+)", report):
                raise DataError(_TOO_SMALL.format(vocab_size, smallest[1])) from error
            raise DataError(
                f"a vocabulary of {vocab_size} could not be trained ({report}); change its size or "
                "the text"
            ) from error
    model = types.ModelProto.FromString(proto)
    model.normalizer_spec.name = f"{STEPS_PREFIX}nfkc|{','.join(steps)}"
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    model.trainer_spec.ClearField("model_prefix")
    return SentencePieceEngine(model.SerializeToString(deterministic=True), "the trained model")


_TOO_SMALL = "a vocabulary of {} is too small for this text; the smallest possible is {}"


# ---------------------------------------------------------------------------------------- wordpiece


def _train_wordpiece(
    lines: list[str], vocab_size: int, lower_case: bool, strip_accents: bool
) -> Engine:
    normalizer = normalizers.BertNormalizer(lowercase=lower_case, strip_accents=strip_accents)
    splitter = pre_tokenizers.BertPreTokenizer()

    def is_inside_words(char: str) -> bool:
        return len(splitter.pre_tokenize_str(normalizer.normalize_str(f"a{char}a"))) == 1

    # A character inside words takes two tokens, and room stays for two longer ones. A character
    # that is always a word takes one.
    room = vocab_size - len(WORDPIECE_SPECIALS)
    lines, alphabet = _limit_alphabet(
        lines, normalizer.normalize_str, room, lambda char: 4 if is_inside_words(char) else 1
    )
    # The trainer numbers continuing letters in the order of a hash map, which differs in every run,
    # and breaks ties by number. Special tokens get the same numbers each time, so they are passed
    # as such.
    continuing = [f"##{char}" for char in alphabet if is_inside_words(char)]
    portable = tokenizers.Tokenizer(WordPiece(unk_token="[UNK]"))
    portable.normalizer, portable.pre_tokenizer = normalizer, splitter
    options = {
        "vocab_size": vocab_size,
        "special_tokens": [*WORDPIECE_SPECIALS, *continuing],
        "initial_alphabet": alphabet,
        "limit_alphabet": len(alphabet),
    }
    trained = _train_portable(portable, lines, "WordPieceTrainer", options)
    return build_wordpiece_engine(
        _require_size(trained.get_vocab(), vocab_size), normalizer, "the trained model"
    )


def _require_size(vocabulary: dict[str, int], vocab_size: int) -> dict[str, int]:
    if len(vocabulary) > vocab_size:
        raise DataError(_TOO_SMALL.format(vocab_size, len(vocabulary)))
    if len(vocabulary) < vocab_size:
        raise _TooLarge(len(vocabulary))
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


# ----------------------------------------------------------------------------------- byte-level BPE


def _train_bpe(lines: list[str], vocab_size: int) -> Engine:
    portable = tokenizers.Tokenizer(BPE())
    portable.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    options = {
        "vocab_size": vocab_size - 1,
        "special_tokens": list(BYTE_SPECIALS),
        # Every byte has a token, so no text is unknown.
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
    }
    trained = _train_portable(portable, lines, "BpeTrainer", options)
    vocabulary = trained.get_vocab()
    vocabulary = _require_size({**vocabulary, BYTE_MASK: len(vocabulary)}, vocab_size)
    merges = json.loads(trained.to_str())["model"]["merges"]
    return build_byte_engine(vocabulary, map(tuple, merges), True, "the trained model")


def _train_portable(
    portable: tokenizers.Tokenizer, lines: list[str], trainer: str, options: dict[str, Any]
) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(
            _run_child(
                "portable",
                lines=lines,
                options=options,
                untrained=portable.to_str(),
                trainer=trainer,
            )
        )
    except _LibraryError as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"a vocabulary of {options['vocab_size']} could not be trained ({reason})"
        ) from error


# ---------------------------------------------------------------------------------------- a process


class _LibraryError(Exception):
    """The library's report of why it cannot learn."""


def _run_child(name: str, **task: Any) -> Any:
    """Return the result of `LEARN[name](**task)` of child.py, from a process that ends with this
    call.
    """
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            [sys.executable, child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((name, task), process.stdin)
            process.stdin.flush()
            succeeded, result = pickle.load(process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            status = process.wait()
            messages.seek(0)
            last_line = messages.read().decode(errors="replace").strip().rpartition("\n")[2]
            reason = last_line or (f"signal {-status}" if status < 0 else f"status {status}")
            raise DataError(
                f"the process that trains the tokenizer died ({reason}); if memory is short, "
                "use a smaller sample of text (--sample-mib) or a smaller vocabulary"
            ) from None
        finally:
            process.kill()  # the result is here, or it is no longer needed
            process.communicate()
    if not succeeded:
        raise _LibraryError(result)
    return result


# ----------------------------------------------------------------------------------------- alphabet


def _limit_alphabet(
    lines: list[str], image: Callable[[str], str], room: int, cost: Callable[[str], int]
) -> tuple[list[str], list[str]]:
    """Replace each character that is too rare for a token by a space.

    An alphabet of up to 256 characters is kept whole. Beyond that, the characters that make up
    99.995% of the text are kept, while the sum of `cost` fits `room`. So a script of thousands of
    characters does not take every token of a small vocabulary. (SentencePiece's own
    character_coverage leaves out 2% of the text at most.)

    Args:
        image: returns what the normalizer makes of a character.

    Returns the lines, and the characters that get a token.
    """
    raw: Counter[str] = Counter()
    for line in lines:
        raw.update(line)
    images = {char: "".join(image(char).split()) for char in raw}
    counts: Counter[str] = Counter()
    for char, count in raw.items():
        counts.update(dict.fromkeys(images[char], count))
    ranked = sorted(counts, key=lambda char: (-counts[char], char))
    if len(ranked) > _WHOLE_ALPHABET:
        covered = list(accumulate(counts[char] for char in ranked))
        spent = list(accumulate(cost(char) for char in ranked))
        count_kept = min(bisect_left(covered, 0.99995 * covered[-1]) + 1, bisect_right(spent, room))
        ranked = ranked[: max(count_kept, _WHOLE_ALPHABET)]
    alphabet = set(ranked)
    rare = {ord(char): " " for char in raw if not alphabet.issuperset(images[char])}
    return [line.translate(rare) for line in lines] if rare else lines, sorted(alphabet)
