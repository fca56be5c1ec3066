"""The encoder of `fit`: which one, how many tokens it reads, and what it makes of labels' names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import hub
from litebert.base import progress
from litebert.base.errors import ConfigError, LitebertError
from litebert.config import cost, replace
from litebert.demo import ENCODER as PACKAGED
from litebert.demo import locate
from litebert.finetuning.initial import InitialModel, load_initial
from litebert.fitting.methods import Material, read_vectors
from litebert.interop import read_folder
from litebert.tasks.rows import build_single_rows
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import OneClass
from litebert.tasks.values import Item
from litebert.train import device as devices

log = logging.getLogger("litebert")

ENCODER = "hf:sentence-transformers/all-MiniLM-L6-v2"
MULTILINGUAL = "hf:sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
"""For texts that are not English."""
TEMPLATE = "This text is about {}."
"""The sentence around a name, nearer to texts than the name alone: without labels, SST-2 has 66.2
with it and 64.3 without, topics of SQuAD 69.2 and 66.9 (MiniLM)."""
_LOOKED_AT = 2000
"""Texts that tell the language."""
_ENGLISH = re.compile(r"\b(the|of|and|that|it|for|with|you|are|this|not|be|my|have|to|is|i)\b")
# Of German, Dutch, French, Spanish, Portuguese, Italian, Polish, Swedish and Turkish.
_OTHERS = re.compile(
    r"\b(der|die|und|das|ist|nicht|ich|ein|eine|zu|mit|auf|für|het|een|van|niet|ik|dat|voor|met"
    r"|le|les|des|est|et|un|une|que|pas|je|pour|dans|du|el|los|las|es|por|con|una|lo|mi|os|da|um|uma"
    r"|não|com|il|di|che|è|non|per|sono|nie|jest|się|na|och|att|det|som|är|inte|jag|bir|ve|bu|için)\b"
)


def open_encoder(
    material: Material,
    model: str | Path | None,
    described: Mapping[str, Sequence[str]],
    device: str,
    notes: list[str],
) -> Material:
    """Open the encoder, and read what labels are called."""
    task, examples = material.task, material.examples
    if model is None:
        model, note = find_encoder(examples)
        notes.append(note)
        log.info(note)
    start = load_initial(model, None, None)
    if start.state is None:
        raise ConfigError(f"{model} is the recipe of an untrained network; name a trained model")
    length = _choose_length(task, examples, start)
    machine = devices.choose("auto", device)
    names = None
    if reads_names(task):
        english = is_english(example.text for example in examples)
        template = TEMPLATE if english else "{}"
        names = _read_names(task.output.labels, described, template, start, machine, length)
    source = str(model)
    return replace(
        material, start=start, length=length, names=names, source=source, machine=machine
    )


def find_encoder(examples: Sequence[Any]) -> tuple[str | Path, str]:
    """Return the encoder that suits the texts and can be had, and a sentence that says so."""
    english = is_english(example.text for example in examples)
    wanted = ENCODER if english else MULTILINGUAL
    why = "" if english else ", because the texts do not look English"
    try:
        with progress.task(f"looking for {wanted}"):
            hub.locate(wanted)
        return wanted, f"the encoder is {wanted}{why}; --model names another"
    except LitebertError as error:
        log.debug(error)
    name = wanted.rpartition("/")[2]
    weak = "" if english else ", which tells little of texts in other languages"
    return PACKAGED, (
        f"the encoder is '{PACKAGED}', the small one of the package{weak}: {name} is not in the "
        "cache of the Hub, and cannot be fetched now; --model names another"
    )


def find_student(texts: Sequence[str], parameters: int) -> str:
    """The package's encoder, if it reads these texts and has no more parameters; otherwise ""."""
    encoder = read_folder(locate(PACKAGED), lazy=True).config.encoder
    fits = sum(cost.encoder_parameters(encoder).values()) <= parameters
    return PACKAGED if fits and is_english(texts) else ""


def is_english(texts: Iterable[str]) -> bool:
    """Most letters are those of ASCII, and the commonest words of English no rarer than others'."""
    text = " ".join(islice(texts, _LOOKED_AT)).lower()
    letters = sum(map(str.isalpha, text))
    if sum(character.isalpha() for character in text if character.isascii()) < 0.7 * letters:
        return False
    return len(_ENGLISH.findall(text)) >= len(_OTHERS.findall(text))


def reads_names(task: Task[Any]) -> bool:
    return isinstance(task.output, OneClass) and task.output.exclusive and not task.pair


def _choose_length(task: Task[Any], examples: Sequence[Any], start: InitialModel) -> int:
    """Tokens that read 95% of the texts whole, between 64 and 256."""
    lengths = task.lengths(examples[:: 1 + len(examples) // 10_000], start.tokenizer)
    whole = 256 if lengths is None else int(np.ceil(np.quantile(lengths, 0.95) / 8)) * 8
    return min(start.encoder.max_positions, max(64, min(256, whole)))


def _read_names(
    labels: Sequence[str],
    described: Mapping[str, Sequence[str]],
    template: str,
    start: InitialModel,
    machine: devices.Device,
    length: int,
) -> NDArray[np.float32] | None:
    """Read what labels are called, (C, H); None where that says nothing, as of numbers or codes."""
    texts = [list(described.get(label, ())) or [template.format(_spell(label))] for label in labels]
    if not all(described.get(label) or says_something(label) for label in labels):
        return None
    flat = [text for several in texts for text in several]
    rows, _ = build_single_rows(start.tokenizer, flat, length)
    items = [Item(i, (row,), None) for i, row in enumerate(rows)]
    vectors = iter(read_vectors(start, items, machine))
    means = np.stack([np.mean([next(vectors) for _ in several], 0) for several in texts])
    scaled: NDArray[np.float32] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return scaled


def _spell(label: str) -> str:
    """`credit_card-lost` and `creditCardLost` as words."""
    return " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-./]+", " ", label).split())


def says_something(label: str) -> bool:
    return re.search(r"[^\W\d_]{3}", label) is not None or any(c > "\u2e80" for c in label)
