"""The methods of `fit`: what each learns from some rows, and answers to others.

    tfidf        a linear model on words and characters, weighed by TF-IDF
    frozen       a linear model on the vectors of an encoder that stays as it is, and on what the
                 labels are called; of pairs, on the vectors of both texts, each read alone
    contrastive  the encoder is trained to bring texts of one class together (supervised contrastive
                 loss, Khosla et al. 2020), and another as by finetune; then a linear model on
                 the vectors of their mean (Wortsman et al. 2022)
    finetune     all of the network is trained, from the linear model on

Shapes: N rows, H hidden size, C numbers of the head, B rows of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from litebert.base import progress
from litebert.base.machine import count_threads
from litebert.config import Config, SequenceConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.heads import LinearHead, fit_head
from litebert.finetuning.initial import InitialModel, build_task_model
from litebert.finetuning.setup import Setup, scale_rate
from litebert.finetuning.trainable import make_loop
from litebert.fitting.tfidf import write_tfidf
from litebert.interop import LoadedModel, save_litebert
from litebert.judge.baselines import FittedBaseline, fit_baseline
from litebert.kernels.network import Network, find_refusal
from litebert.model.heads import pool
from litebert.model.objectives import Loss
from litebert.model.task_model import TaskModel
from litebert.tasks.rows import PaddedRows, group_by_length
from litebert.tasks.scoring import EVALUATION_TOKENS
from litebert.tasks.similarity import compare_vectors
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import Number, OneClass
from litebert.tasks.values import EncodedPart, Item, Logits, TaskBatch
from litebert.train.device import Device

if TYPE_CHECKING:
    from torch import Tensor

MethodName = Literal["tfidf", "frozen", "contrastive", "finetune"]
CONTRAST_BATCH, NETWORK_BATCH = 64, 16
LEAST_STEPS, FEWEST_STEPS, NETWORK_EPOCHS = 200, 50, 3
"""Steps of the network on few rows, on the fewest, and passes over many."""
_TIMED, _SPARE = 8, 0.9
"""Steps whose time tells how many fit, and the share of these that is planned."""
_CONTRAST_TOKENS = 4096
"""Tokens of a batch whose texts are contrasted, at most: a MiniLM keeps 0.4 MB for each."""
_PASS = 512  # tokens that are read together, so that they stay in the cache


class OutOfTime(Exception):
    """A method would take longer than is left."""


@dataclass(frozen=True)
class Material:
    """Rows to learn from, as every method reads them."""

    task: Task[Any]
    examples: Sequence[Any]
    start: InitialModel | None = None
    """The encoder; None of TF-IDF alone."""
    length: int = 128
    items: Mapping[int, Item] = field(default_factory=dict)
    """The tokens of the rows that the encoder has read, by their places: all of few rows."""
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """(N, H): the mean states of these rows, of length 1; of pairs (N, 4H), as `compare_vectors`
    lays them out. Nothing at other places."""
    names: NDArray[np.float32] | None = None
    """(C, H): vectors of what the labels are called."""
    source: str = ""
    machine: Device | None = None
    seed: int = 0
    folder: Path = Path()
    """For what training writes meanwhile."""
    deadline: float = float("inf")
    """On the clock of `time.monotonic`."""

    def select(self, places: Sequence[int]) -> list[int]:
        """The places that the encoder has read."""
        return [place for place in places if place in self.items]


class Learned:
    """What a method learned."""

    def logits(self, places: Sequence[int]) -> Logits:
        """Of rows of the material by their places, in the form of `Output.of_item`."""
        raise NotImplementedError

    def write(self, folder: Path, about: Mapping[str, Any], temperature: float, card: str) -> None:
        """Write the model folder; `about` are further fields of its task.json."""
        raise NotImplementedError


@dataclass(frozen=True)
class LearnedTfidf(Learned):
    material: Material
    fitted: FittedBaseline

    def logits(self, places: Sequence[int]) -> Logits:
        return self.fitted.logits([self.material.examples[place] for place in places])

    def write(self, folder: Path, about: Mapping[str, Any], temperature: float, card: str) -> None:
        write_tfidf(self.fitted, folder, card, about, temperature)


@dataclass(frozen=True)
class LearnedNetwork(Learned):
    """An encoder, as it was or trained, under a linear head."""

    material: Material
    start: InitialModel
    head: LinearHead
    vectors: NDArray[np.float32] | None
    """Those of all rows, where the encoder stayed as it was."""

    def logits(self, places: Sequence[int]) -> Logits:
        if self.vectors is None:
            items = [self.material.items[place] for place in places]
            vectors = read_vectors(self.start, items, self.material.machine)
        else:
            vectors = self.vectors[list(places)]
        return self.head.logits(vectors)

    def write(self, folder: Path, about: Mapping[str, Any], temperature: float, card: str) -> None:
        material, output = self.material, self.head.output
        config = FinetuneConfig(length=material.length, head_reads="unit")
        task = replace(material.task, output=output)
        model = build_task_model(self.start, task, config, self.head.tensors()).eval()
        if isinstance(output, Number):
            settled = output.settle(model.head)
            if settled.is_far:
                about = {**about, "offset": settled.mean}
        model.head.classifier.weight.data.div_(temperature)
        model.head.classifier.bias.data.div_(temperature)
        whole = Config(
            name=task.name,
            encoder=model.encoder.config,
            sequences=SequenceConfig(length=material.length),
            objectives=("mlm",),
        )
        record = {
            "task": task.name,
            "kind": output.head,
            "problem": output.name,
            "length": material.length,
            **task.settings(),
            **about,
        }
        words, labels = self.start.tokenizer, output.labels
        loaded = LoadedModel(model, whole, words, folder, labels, task=record, card=card)
        save_litebert(loaded, folder)


# ------------------------------------------------------------------------------------- the methods


def learn_tfidf(material: Material, places: Sequence[int]) -> Learned:
    chosen = [material.examples[place] for place in places]
    return LearnedTfidf(material, fit_baseline(material.task, chosen))


def learn_frozen(material: Material, places: Sequence[int]) -> Learned:
    assert material.start is not None
    places = material.select(places)
    head = _fit_head(material, places, material.vectors[places])
    return LearnedNetwork(material, material.start, head, material.vectors)


def learn_contrastive(material: Material, places: Sequence[int]) -> Learned:
    """Train the encoder until equal labels are near each other, average it with a trained network
    (better than either, and one model to answer); then fit a head."""
    start, output = material.start, material.task.output
    assert start is not None
    places = material.select(places)
    temperature = 0.3 if output.width == 2 else 0.1
    steps = int(np.clip(40 * (len(places) / 128) ** 0.33, 30, 100))
    batch = min(CONTRAST_BATCH, len(places), _CONTRAST_TOKENS // material.length)
    batch = max(NETWORK_BATCH, batch)
    contrast = replace(material.task, output=Contrast((), temperature=temperature))
    model, config = _build(material, contrast, batch)
    items = [material.items[place] for place in places]
    half = replace(material, deadline=(time.monotonic() + material.deadline) / 2)
    _train(half, contrast, model, config, items, steps, batch)
    state = network = model.encoder.state_dict()
    with suppress(OutOfTime):  # then the contrast alone
        network = learn_network(material, places).start.state or network
    mean = {name: (one + network[name]) / 2 for name, one in state.items()}
    trained = replace(start, state=mean)
    vectors = read_vectors(trained, items, material.machine)
    # What labels are called was near texts of the encoder as it was.
    head = _fit_head(replace(material, names=None), places, vectors)
    return LearnedNetwork(material, trained, head, None)


def learn_network(material: Material, places: Sequence[int]) -> LearnedNetwork:
    """Train all of the network, from the head that frozen vectors have."""
    start, task = material.start, material.task
    assert start is not None
    places = material.select(places)
    head = _fit_head(material, places, material.vectors[places])
    task = replace(task, output=head.output)
    items = [
        replace(material.items[place], target=target)
        for place, target in zip(
            places, head.scale([material.items[place].target for place in places]), strict=True
        )
    ]
    batch = NETWORK_BATCH if len(items) < 5000 else 2 * NETWORK_BATCH
    passes = len(items) / batch  # more than 25 over the fewest rows are worse
    steps = int(max(np.clip(25 * passes, FEWEST_STEPS, LEAST_STEPS), NETWORK_EPOCHS * passes))
    model, config = _build(material, task, batch, head)
    _train(material, task, model, config, items, steps, batch)
    trained = replace(start, state=model.encoder.state_dict())
    classifier = model.head.classifier
    weight, bias = (
        tensor.detach().float().cpu().numpy() for tensor in (classifier.weight, classifier.bias)
    )
    return LearnedNetwork(material, trained, replace(head, weight=weight, bias=bias), None)


Learn = Callable[[Material, Sequence[int]], Learned]
METHODS: dict[MethodName, Learn] = {
    "tfidf": learn_tfidf,
    "frozen": learn_frozen,
    "contrastive": learn_contrastive,
    "finetune": learn_network,
}
"""From cheap to dear."""
TRAINED: tuple[MethodName, ...] = ("contrastive", "finetune")
"""The methods that train a network, which are judged by a part of the rows only."""


@dataclass(frozen=True)
class Contrast(OneClass):
    """Vectors of texts, near those of the same class and far from others. A target is the class."""

    temperature: float = 0.1
    reads_cls = False

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        """The mean cross-entropy of the rows of the same class, among all others of the batch."""
        vectors_BH = pool(logits.float(), batch.attention_mask, "unit")
        alike = vectors_BH @ vectors_BH.T / self.temperature
        itself = torch.eye(len(alike), dtype=torch.bool, device=alike.device)
        likely = F.log_softmax(alike.masked_fill(itself, -torch.inf), -1).masked_fill(itself, 0)
        same = (batch.targets[:, None] == batch.targets) & ~itself
        losses = -(likely * same).sum(-1) / same.sum(-1).clamp(min=1)
        return Loss(losses.sum(), torch.full((), batch.predictions, device=alike.device), None)


def _fit_head(
    material: Material, places: Sequence[int], vectors: NDArray[np.float32]
) -> LinearHead:
    plain = material.task.plain_items([material.examples[place] for place in places])
    return fit_head(material.task.output, vectors, plain, material.names, material.task.apart)


def _build(
    material: Material, task: Task[Any], batch: int, head: LinearHead | None = None
) -> tuple[TaskModel, FinetuneConfig]:
    start, base = material.start, FinetuneConfig().train
    assert start is not None
    train = replace(
        base,
        batch=f"{batch} sequences",
        micro_batch=batch,  # a contrast needs all of them together
        seed=material.seed,
        optimizer=replace(
            base.optimizer, learning_rate=scale_rate(start.encoder), weight_decay=0.01
        ),
    )
    config = FinetuneConfig(length=material.length, head_reads="unit", train=train)
    model = build_task_model(start, task, config, None if head is None else head.tensors())
    assert material.machine is not None
    return model.to(material.machine.device).train(), config


def _train(
    material: Material,
    task: Task[Any],
    model: TaskModel,
    config: FinetuneConfig,
    items: Sequence[Item],
    steps: int,
    batch: int,
) -> None:
    """Take steps, as many of them as the time that is left allows.

    Raises:
        OutOfTime: it allows too few to learn anything.
    """
    start, machine = material.start, material.machine
    assert start is not None
    assert machine is not None
    task, least = replace(task, dev=("dev",)), min(steps, LEAST_STEPS) // 2
    part = EncodedPart("train", [], list(items))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    while steps >= least:
        setup = Setup(material.source, task, {}, start, replace(config, steps=steps), part, (), ())
        _, loop = make_loop(setup, model, task.output, items, material.folder, machine)
        began = time.monotonic()
        with progress.task("training", total=steps, unit="steps") as bar:
            while loop.step < steps:
                loop.train_step()
                bar.advance(1)
                if loop.step == _TIMED:
                    now = time.monotonic()
                    left = (material.deadline - now) / (now - began) * _TIMED
                    if left < steps - _TIMED:
                        break
            else:
                model.eval()
                return
        # The rate falls over the steps of a run, so a shorter one begins anew.
        model.load_state_dict(state)
        steps = int(_SPARE * left)
    raise OutOfTime


# ------------------------------------------------------------------------------------------ reading


def read_vectors(
    start: InitialModel, items: Sequence[Item], machine: Device | None
) -> NDArray[np.float32]:
    """Read the mean of the last states of each item's row, of length 1, (N, H); or of items of two
    rows, what both vectors say together, (N, 4H)."""
    shape = replace(start.encoder, pooler=False)
    assert start.state is not None
    rows = [row for item in items for row in item.rows]
    vectors = np.zeros((len(rows), shape.hidden_size), np.float32)
    on_gpu = machine is not None and machine.device.type != "cpu"
    lengths, pad = [len(row.ids) for row in rows], start.tokenizer.pad_id
    if on_gpu or find_refusal(shape):
        task = TaskModel(shape, False, 0)
        fresh = task.encoder.state_dict()
        task.encoder.load_state_dict({name: start.state[name] for name in fresh})
        device = torch.device("cpu") if machine is None else machine.device
        task = task.to(device).eval()
        for places in group_by_length(lengths, EVALUATION_TOKENS):
            padded = PaddedRows([rows[i] for i in places], pad, shape.max_positions)
            ids, types, mask = (torch.from_numpy(array).to(device) for array in padded)
            with torch.no_grad():
                states = task(ids, types, mask).float()
            vectors[places] = pool(states, mask, "unit").cpu().numpy()
        return compare_vectors(vectors) if len(rows) > len(items) else vectors
    weights = {
        name: tensor.detach().float().cpu().numpy()
        for name, tensor in start.state.items()
        if not name.startswith("pooler.")
    }
    head = Network(shape, weights).head("unit")
    with progress.task("reading with the encoder", total=len(rows), unit="texts") as bar:
        for places in group_by_length(lengths, 8 * _PASS):
            padded = PaddedRows([rows[i] for i in places], pad, shape.max_positions)
            vectors[places] = head.of(padded.end_to_end, count_threads())
            bar.advance(len(places))
    return compare_vectors(vectors) if len(rows) > len(items) else vectors
