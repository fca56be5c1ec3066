"""Train a tokenizer on a stream of texts of any size, within a memory budget, with the same result
every time.

The stream passes once. A seeded reservoir keeps a uniform sample of its lines, so time and memory
depend on the budget and not on the corpus: what is lost is the tail of rare words beyond the
sample. Unigram models are trained by `sentencepiece` (`tokenizers` needs many times as long),
WordPiece and byte-level BPE by `tokenizers`. Both learn in a process of their own (child.py), so
that Ctrl-C ends them at once.
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

from litebert.errors import DataError, nearest
from litebert.progress import task, tracked
from litebert.storage import atomic_write
from litebert.text.sentences import LINE_CHARACTERS, split_lines
from litebert.tokenizer import child
from litebert.tokenizer.engines import (
    DROPPED_CHARACTERS,
    SPACE_CHARACTERS,
    STEPS_PREFIX,
    Engine,
    SentencePieceEngine,
    byte_engine,
    model_pb2,
    strip_marks,
    wordpiece_engine,
)
from litebert.tokenizer.tokenizer import Tokenizer

# ALBERT's layout (its README's spm_train command): ids 0 to 12 are these, learned pieces follow.
CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# RoBERTa's layout (fairseq's dictionary): ids 0 to 3 are these, learned pieces follow, the mask
# comes last.
BYTE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
BYTE_MASK = "<mask>"

log = logging.getLogger("litebert")

MOST_PIECES = 1 << 24
"""Of any vocabulary; far more than a model can use."""
_WHOLE_ALPHABET = 256
_TRAINING_THREADS = (
    16  # fixed: sums of floats split over another number of threads would end elsewhere
)


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
    """Learn `vocab_size` pieces, special ones included, from `texts` (documents or lines, any
    number, read once).

    `unigram` has ALBERT's layout of ids, `wordpiece` BERT's. `bpe` is byte-level in RoBERTa's
    layout; a text's first word is cut as elsewhere. It keeps a text byte for byte, so `lower_case`
    and `strip_accents` are refused with it. The others lower-case unless `lower_case` is False, and
    keep accents unless `strip_accents`.

    `memory` is the budget in bytes for the sample of lines that training sees. The same texts,
    options and seed give the same ids. A text too small for `vocab_size` pieces is refused, or,
    with `shrink`, gets as many as it allows.

    Raises DataError when there is no text, and, naming the limit, when `vocab_size` does not fit
    the text.
    """
    check_size(vocab_size)
    if memory < 1:
        raise DataError(
            f"the memory for the sample of text is {memory} bytes; give at least one MiB"
        )
    lower = lower_case is not False
    trainers_of: dict[str, Callable[[list[str], int], Engine]] = {
        "unigram": lambda lines, size: _train_unigram(lines, size, lower, strip_accents),
        "wordpiece": lambda lines, size: _train_wordpiece(lines, size, lower, strip_accents),
        "bpe": _train_bpe,
    }
    if kind not in trainers_of:
        raise DataError(f"there is no tokenizer kind {kind!r}; {nearest(kind, trainers_of)}")
    if kind == "bpe" and (lower_case or strip_accents):
        keeps = (
            "a bpe tokenizer keeps text byte for byte, so it neither lower-cases nor strips accents"
        )
        raise DataError(f"{keeps}; leave both out, or train a unigram or wordpiece tokenizer")
    with tracked(texts, "reading text for the tokenizer", unit="documents") as read:
        lines = sample_lines((line for text in read for line in split_lines(text)), memory, seed)
    if not lines:
        raise DataError(
            "the corpus holds no text to train a tokenizer on; give files with text in them"
        )
    most = vocab_size
    with task(f"training a {kind} tokenizer"):
        while True:
            try:
                engine = trainers_of[kind](lines, most)
                break
            except (
                _TooLarge
            ) as error:  # a smaller vocabulary may keep fewer characters, and so reach less
                (most,) = error.args
    if most < vocab_size:
        small = f"the text is too small for a vocabulary of {vocab_size}"
        if not shrink:
            raise DataError(f"{small}; give at most {most}, or add text")
        log.info(f"{small} pieces, so the tokenizer has as many as it allows, {most}")
    return Tokenizer(engine)


def check_size(vocab_size: int) -> None:
    """Refuse a size that no vocabulary has.

    Raises:
        DataError: it does not lie between 1 and `MOST_PIECES`.
    """
    if not 1 <= vocab_size <= MOST_PIECES:
        raise DataError(
            f"the vocabulary size is {vocab_size}; give one from 1 to {MOST_PIECES}, such as 8192"
        )


class _TooLarge(Exception):
    """The text fills no more pieces than the number that this is raised with."""


def sample_lines(lines: Iterable[str], memory: int, seed: int) -> list[str]:
    """A uniform sample of the lines that fits `memory` bytes, in their order; all of them where
    they fit.

    Each line draws a number, and those below the highest limit that fits the budget stay (a
    bottom-k sample).
    """
    draw = random.Random(seed).random
    heap: list[
        tuple[float, int, str]
    ] = []  # (-draw, position, line): the highest draw leaves first
    held, limit = 0, 1.0
    for position, line in enumerate(lines):
        number = draw()
        if number >= limit:
            continue
        heapq.heappush(heap, (-number, position, line))
        held += sys.getsizeof(line) + _ENTRY_BYTES
        while held > memory and len(heap) > 1:
            evicted, _, gone = heapq.heappop(heap)
            limit = -evicted
            held -= sys.getsizeof(gone) + _ENTRY_BYTES
    return [line for _, _, line in sorted(heap, key=lambda entry: entry[1])]


_ENTRY_BYTES = sys.getsizeof((0.0, 0, "")) + sys.getsizeof(0.5) + sys.getsizeof(1) + 8


# ------------------------------------------------------------------------------------------ unigram


@cache
def character_rules(lower_case: bool, strip_accents: bool) -> dict[str, str]:
    """What the normaliser makes of characters, those it leaves alone not listed; keys may be base
    and marks.

    NFKC per character, SentencePiece's nmt rules for controls and spaces, soft hyphens dropped,
    and, as asked, lower case (Unicode's, not case folding, which would turn a German sharp s into
    ss) and no marks.
    """

    def image(text: str) -> str:
        text = unicodedata.normalize("NFKC", text)
        text = "".join(c.lower() for c in text) if lower_case else text
        return strip_marks(text) if strip_accents else text

    rules = {}
    for point in range(1, sys.maxunicode + 1):
        char = chr(point)
        if unicodedata.category(char) in ("Cn", "Co", "Cs"):
            continue
        decomposed = unicodedata.normalize("NFD", char)
        for key in (char, decomposed):
            # Hangul composes before the model sees it; eleven thousand more keys would only slow
            # its table down.
            if (
                not (len(key) > 1 and "HANGUL" in unicodedata.name(key[0], ""))
                and (value := image(key)) != key
            ):
                rules[key] = value
    rules.update({chr(point): "" for point in DROPPED_CHARACTERS})
    rules.update({chr(point): " " for point in SPACE_CHARACTERS})
    return rules


def _train_unigram(
    lines: list[str], vocab_size: int, lower_case: bool, strip_accents: bool
) -> Engine:
    rules = character_rules(lower_case, strip_accents)
    steps = ["lower"] * lower_case + ["strip"] * strip_accents
    lines = [line if line.isascii() else unicodedata.normalize("NFKC", line) for line in lines]
    learned = vocab_size - 2 - len(CONTROL_SYMBOLS) - len(USER_DEFINED_SYMBOLS)
    # A character takes one piece, and leaves room for one of several characters.
    lines, _ = _limit_alphabet(lines, lambda char: rules.get(char, char), learned, lambda char: 2)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rules.tsv"
        points = [
            (" ".join(f"{ord(c):04X}" for c in text) for text in rule) for rule in rules.items()
        ]
        with atomic_write(table) as file:
            file.write("".join(f"{key}\t{value}\n" for key, value in points).encode("ascii"))
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
            proto = _learned("unigram", lines=lines, options=options)
        except _Refused as error:
            raise _size_error(str(error), vocab_size) from error
    model = model_pb2.ModelProto.FromString(proto)
    model.normalizer_spec.name = f"{STEPS_PREFIX}nfkc|{','.join(steps)}"
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    model.trainer_spec.ClearField("model_prefix")
    return SentencePieceEngine(model.SerializeToString(deterministic=True), "the trained model")


def _size_error(report: str, vocab_size: int) -> Exception:
    """SentencePiece knows the limits of a text and names them in its reports."""
    if most := re.search(r"value <= (\d+)", report):
        return _TooLarge(int(most[1]))
    if least := re.search(r"required_chars\D*\d+ vs (\d+)", report):
        return DataError(_TOO_SMALL.format(vocab_size, least[1]))
    reason = " ".join(report.split())
    return DataError(
        f"a vocabulary of {vocab_size} could not be trained ({reason}); change its size or the text"
    )


_TOO_SMALL = "a vocabulary of {} is too small for this text; the smallest possible is {}"


# ---------------------------------------------------------------------------------------- wordpiece


def _train_wordpiece(
    lines: list[str], vocab_size: int, lower_case: bool, strip_accents: bool
) -> Engine:
    normalizer = normalizers.BertNormalizer(lowercase=lower_case, strip_accents=strip_accents)
    splitter = pre_tokenizers.BertPreTokenizer()

    def inside(char: str) -> bool:
        return len(splitter.pre_tokenize_str(normalizer.normalize_str(f"a{char}a"))) == 1

    # A character inside words takes two pieces and leaves room for two longer ones; one that stands
    # alone takes one.
    room = vocab_size - len(WORDPIECE_SPECIALS)
    lines, alphabet = _limit_alphabet(
        lines, normalizer.normalize_str, room, lambda char: 4 if inside(char) else 1
    )
    # The trainer numbers continuing letters in the order of a hash map, which differs in every run,
    # and breaks ties by number. Given in advance, as if they were special, they get the same
    # numbers each time.
    continuing = [f"##{char}" for char in alphabet if inside(char)]
    portable = tokenizers.Tokenizer(WordPiece(unk_token="[UNK]"))
    portable.normalizer, portable.pre_tokenizer = normalizer, splitter
    options = {
        "vocab_size": vocab_size,
        "special_tokens": [*WORDPIECE_SPECIALS, *continuing],
        "initial_alphabet": alphabet,
        "limit_alphabet": len(alphabet),
    }
    trained = _trained(portable, lines, "WordPieceTrainer", options)
    return wordpiece_engine(
        _filled(trained.get_vocab(), vocab_size), normalizer, "the trained model"
    )


def _filled(vocabulary: dict[str, int], vocab_size: int) -> dict[str, int]:
    """The vocabulary in the order of its ids, once it has the size asked for."""
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
        # every byte, so that no text is unknown
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
    }
    trained = _trained(portable, lines, "BpeTrainer", options)
    vocabulary = trained.get_vocab()
    vocabulary = _filled({**vocabulary, BYTE_MASK: len(vocabulary)}, vocab_size)
    merges = json.loads(trained.to_str())["model"]["merges"]
    return byte_engine(vocabulary, map(tuple, merges), True, "the trained model")


def _trained(
    portable: tokenizers.Tokenizer, lines: list[str], trainer: str, options: dict[str, Any]
) -> tokenizers.Tokenizer:
    """What `portable` becomes when a trainer of `tokenizers` has seen the lines."""
    try:
        return tokenizers.Tokenizer.from_str(
            _learned(
                "portable",
                lines=lines,
                options=options,
                untrained=portable.to_str(),
                trainer=trainer,
            )
        )
    except _Refused as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"a vocabulary of {options['vocab_size']} could not be trained ({reason})"
        ) from error


# ---------------------------------------------------------------------------------------- a process


class _Refused(Exception):
    """The library's report of why it cannot learn."""


def _learned(name: str, **task: Any) -> Any:
    """What `LEARN[name](**task)` of child.py returns, learned in a process that ends when this call
    does.

    Raises:
        _Refused: the library reports a fault.
        DataError: the process died.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((name, task), process.stdin)
            process.stdin.flush()
            done, result = pickle.load(process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            status = process.wait()
            said.seek(0)
            last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
            reason = last or (f"signal {-status}" if status < 0 else f"status {status}")
            raise DataError(
                f"the process that trains the tokenizer died ({reason}); if memory is "
                "short, use a smaller sample of "
                "text (--memory) or a smaller vocabulary"
            ) from None
        finally:
            process.kill()  # it has answered, or nobody waits for the answer any more
            process.communicate()
    if not done:
        raise _Refused(result)
    return result


# ----------------------------------------------------------------------------------------- alphabet


def _limit_alphabet(
    lines: list[str], image: Callable[[str], str], room: int, cost: Callable[[str], int]
) -> tuple[list[str], list[str]]:
    """The lines with a space for each character too rare for a piece of its own, and the characters
    that get one.

    An alphabet of up to 256 is kept whole. Beyond, what makes up 99.995 % of the text is kept,
    while the sum of `cost` fits `room`: a script of thousands of characters must not take every
    piece of a small vocabulary. (SentencePiece's own character_coverage leaves out 2 % of the text
    at most.) `image` is what the normaliser makes of a character.
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
        most = min(bisect_left(covered, 0.99995 * covered[-1]) + 1, bisect_right(spent, room))
        ranked = ranked[: max(most, _WHOLE_ALPHABET)]
    kept = set(ranked)
    rare = {ord(char): " " for char in raw if not kept.issuperset(images[char])}
    return [line.translate(rare) for line in lines] if rare else lines, sorted(kept)
