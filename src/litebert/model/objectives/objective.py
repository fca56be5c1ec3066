"""The bases of the objectives: all that the rest of the program asks of one, and how its scores are
shown.

Shapes: N predictions, C classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from litebert.base.errors import require
from litebert.base.registry import OBJECTIVES
from litebert.config import PAIR_FORMATS, Config, EncoderConfig
from litebert.config.serialization import from_dict
from litebert.data import IGNORED

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.data.segments import SentenceTask
    from litebert.model.encoder import Encoder, EncoderOutput


@dataclass(frozen=True)
class Loss:
    """The outcome of one objective on one batch; sums, so that micro-batches and ranks add up
    exactly.

    `total` is the summed negative log likelihood in nats (with a gradient) of `count` predictions,
    of which `correct` were right; `extras` are other sums over them, for a row of metrics.
    `eval_tensors`, in evaluation mode alone, is what `Objective.scores` needs beyond sums.
    """

    total: Tensor
    count: Tensor
    correct: Tensor | None
    """None where nothing is right or wrong."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    eval_tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def cpu(self) -> Loss:
        extras, tensors = (
            {name: tensor.cpu() for name, tensor in named.items()}
            for named in (self.extras, self.eval_tensors)
        )
        correct = None if self.correct is None else self.correct.cpu()
        return Loss(self.total.cpu(), self.count.cpu(), correct, extras, tensors)


@dataclass(frozen=True)
class Context:
    network: Any
    """The module that `Objective.build` made for this objective."""
    encoder: Encoder
    layers: int | None = None
    """Depth of the pass; None is the configured one."""
    teacher: Any | None = None
    """A teacher's outputs for the batch (`model.teacher.Lesson`), in no state dict, or None."""
    shared: dict[str, Tensor] = field(default_factory=dict)
    """Tensors that the losses of one pass share; each puts there what those after it may need."""


@dataclass(frozen=True)
class ShownScore:
    """A held-out score of a run as text, for a table or a headline."""

    title: str
    value: str
    error: str
    """Its standard error; empty if unknown."""
    baseline: str
    """The score of a prediction without learning; empty if there is no such prediction."""
    remark: str
    """The name of the baseline; without a baseline, what the score is a share of."""
    size: str
    """How many predictions it is about, such as "496 pairs"; empty if unknown."""
    is_compared: bool = False
    """True where comparisons of runs show it."""

    @property
    def text(self) -> str:
        error = f" ± {self.error}" if self.error else ""
        remark = f"{self.remark}: {self.baseline}" if self.baseline else self.remark
        return self.value + error + (f" ({remark})" if remark else "")


@dataclass(frozen=True)
class Score:
    """One held-out score to read. Keys are those of `Objective.scores`, without a name before."""

    key: str
    title: str
    """`{NAME}` in it stands for the name of the objective, in capitals."""
    form: str = ".1%"
    """How the number is formatted."""
    baseline: str = ""
    """Key of what guessing would give."""
    remark: str = ""
    """The name of the baseline; without a baseline, what the score is a share of."""
    error: str = ""
    """Key of the standard error."""
    size: str = ""
    """Key of how many predictions the score is about."""
    unit: str = "predictions"
    """The name of these predictions."""

    def number(self, key: str, scores: Mapping[str, float], name: str) -> str:
        """The score under a key of objective `name`, formatted; empty where there is none."""
        value = scores.get(f"{name}_{key}")
        return "" if value is None else f"{value:{self.form if abs(value) < 1e6 else '.1e'}}"

    def show(self, scores: Mapping[str, float], name: str) -> ShownScore | None:
        """The score of objective `name` as text; None if `scores` does not hold it."""
        value = self.number(self.key, scores, name)
        baseline = self.number(self.baseline, scores, name)
        if not value:
            return None
        return ShownScore(
            title=self.title.format(NAME=name.upper()),
            value=value,
            error=self.number(self.error, scores, name),
            baseline=baseline,
            remark=(self.remark or "guessing")
            if baseline
            else ""
            if self.baseline
            else self.remark,
            size=self.describe_size(scores, name),
        )

    def describe_size(self, scores: Mapping[str, float], name: str) -> str:
        """How many predictions of objective `name` it is about, such as "496 pairs", if known."""
        count = scores.get(f"{name}_{self.size}")
        return "" if count is None else f"{count:,.0f} {self.unit}"


ACCURACY = Score(
    "accuracy",
    "{NAME} accuracy",
    baseline="majority",
    remark="majority",
    error="standard_error",
    size="predictions",
)


@dataclass(frozen=True)
class Curves:
    """A chart of a run's report, by default of the accuracy, if the run has any of its lines."""

    title: str
    """The chart's title, with `{NAME}` as in `Score`."""
    lines: tuple[tuple[str, str, str], ...] = (
        ("training", "train", "accuracy"),
        ("held out", "heldout", "accuracy"),
    )
    """Each line's label, the kind of rows it is read from, and the key in them."""
    axis: str = "correct, %"
    scale: float = 100.0
    baseline: str = "majority"
    """Key of what guessing would give, drawn as a level; empty for none."""
    note: str = ""
    unigram_entropy: bool = False
    """True where the unigram entropy of the data is the level to get below."""

    @classmethod
    def of_loss(cls, title: str, axis: str, unigram_entropy: bool = False) -> Curves:
        lines = (("training", "train", "loss"), ("held out", "heldout", "loss"))
        return cls(title, lines, axis, 1.0, "", unigram_entropy=unigram_entropy)


def join_tensors(losses: Sequence[Loss], name: str) -> Tensor:
    """Join an evaluation tensor of all losses."""
    import torch

    return torch.cat([loss.eval_tensors[name] for loss in losses])


class Objective(ABC):
    """Base of the objectives. An instance knows its name and its config; the network that it builds
    is what is trained.

    Only `head`, `build`, `corrupt`, `loss` and `scores` may load torch, and they import it
    themselves.
    """

    sentence: ClassVar[SentenceTask | None] = None
    """The sentence-pair task that it needs from the data; None where any text will do."""
    head_of: ClassVar[str] = ""
    """The objective whose network it uses; empty where it has its own."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Objectives that come before it; while one of them is untrained, its scores mean nothing."""
    also_answers: ClassVar[tuple[str, ...]] = ()
    """Other objectives that its head can be scored on without having learned them."""
    taught: ClassVar[bool] = False
    """True where it learns from a teacher."""
    reads_states: ClassVar[bool] = False
    """True where its loss reads the state after each layer (`EncoderOutput.states`)."""
    reads_boundaries: ClassVar[bool] = False
    """True where it reads the tokens around masked spans (`Batch.masked_boundaries`)."""
    counted: ClassVar[str] = "predictions"
    """Key of its scores for how many predictions they are about."""
    scored_on_training_masks: ClassVar[bool] = False
    """Held-out scores come from the masking law and format of the run, not from fixed ones."""

    shown: ClassVar[tuple[Score, ...]] = (Score("loss", "{NAME} loss (nats)", ".3f"), ACCURACY)
    """Its held-out scores, for a table."""
    compared: ClassVar[Mapping[str, str]] = {"{NAME} accuracy (majority)": "accuracy"}
    """Columns of a comparison of runs: their titles, and the key of each score."""
    curves: ClassVar[tuple[Curves, ...]] = (Curves("Accuracy on {NAME}"),)
    """Its charts in a run's report."""
    owner_of: ClassVar[Mapping[str, str]] = {}
    """A prefix for another objective's titles if both are learned: `{"mlm": "generator's "}`."""
    note: ClassVar[str] = ""
    """A sentence below a comparison that shows it."""
    counted_in_print: ClassVar[str] = ""
    """The name of its head, where the paper counts it with the encoder."""

    foreign_part: ClassVar[str] = ""
    """The part of a foreign family that its head becomes (interop/hf/families.py), if any."""
    foreign_file: ClassVar[str] = ""
    """Else the file that holds its head beside a foreign model; empty where it is left out."""

    settings_class: ClassVar[type[Any] | None] = None
    """A frozen dataclass of settings of its own, which a config holds in `objective_settings`."""

    classifier: ClassVar[Literal["gelu"] | None] = None
    """The activation of the dense map on [CLS] in its paper's classifiers, if it has a say."""

    def __init__(self, name: str, config: Config) -> None:
        self.name, self.config = name, config

    def check(self) -> None:
        """Refuse a config in which it cannot be learned, by a ConfigError."""
        before = self.config.objectives[: self.config.objectives.index(self.name)]
        for need in self.needs:
            require(
                need in before,
                f"objective {self.name} builds on {need}; name {need} before {self.name}",
            )
        if self.sentence is None:
            return
        for name, other in self.config.build_objectives().items():
            require(
                other.sentence in (None, self.sentence),
                f"objectives has both {self.name} and {name}, which need different second "
                "segments; keep one of them",
            )
        layout = self.config.sequences.format
        require(
            layout in PAIR_FORMATS,
            f"objective {self.name} compares two segments, and sequences.format={layout} has one; "
            "set sequences.format=segment-pair",
        )

    @classmethod
    def assume_fields(
        cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> dict[str, Any]:
        """Guess fields of a config for weights of unknown training, from known ones and the tensors
        of its `foreign_file`, else those of the whole model.
        """
        return {}

    @cached_property
    def settings(self) -> Any:
        if self.settings_class is None:
            return None
        return from_dict(self.settings_class, self.config.settings_of(self.name), f"{self.name}.")

    @property
    def weight(self) -> float:
        return 1.0

    @property
    def generator(self) -> EncoderConfig | None:
        """A second encoder that it has propose tokens; None for most."""
        return None

    def parameters(self) -> dict[str, int]:
        return {}

    def flops(self, length: int) -> float:
        """Operations per token of a forward pass over sequences of `length`, encoders aside."""
        return 0.0

    def backward_bytes(self, width: int) -> float:
        """Count bytes per token for the backward pass, encoders aside, `width` for each number."""
        return 0.0

    @property
    def network_name(self) -> str:
        return f"{self.name} head"

    def head(self) -> nn.Module | None:
        """The network it puts on the encoder, freshly initialized; None if it needs none."""
        return None

    def build(self) -> nn.ModuleDict:
        """Its network, of the head by default; a checkpoint has it under `objectives.NAME.`."""
        from torch import nn

        head = self.head()
        return nn.ModuleDict({} if head is None else {"head": head})

    def prepare(self, batch: Batch) -> Batch:
        """The batch with what `corrupt`, `loss` and `count` need and the data alone decides, in
        `Batch.added`.

        It runs on the CPU ahead of the step: finding where a mask is true waits for an accelerator.
        """
        return batch

    def get_prepared(self, batch: Batch, name: str) -> Tensor:
        """Return what `prepare` adds under a name; it is made now where it was not made ahead."""
        return batch.added[name] if name in batch.added else self.prepare(batch).added[name]

    def corrupt(self, batch: Batch, context: Context) -> Batch:
        """The batch as the encoder should read it; `Batch.added` takes what `loss` needs of it."""
        return batch

    @abstractmethod
    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        """Score the encoder's output."""

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """How many predictions `loss` will sum, known before the forward pass."""

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Held-out scores of losses computed in evaluation mode, with a prediction at least.

        The standard error of the accuracy takes predictions for independent, with one right and one
        wrong more, so that a perfect score on three predictions is not called certain.
        """
        count = sum(int(loss.count) for loss in losses)
        right = [int(loss.correct) for loss in losses if loss.correct is not None]
        scores = {"loss": sum(float(loss.total) for loss in losses) / count}
        if right:
            smoothed = (sum(right) + 1) / (count + 2)
            error = math.sqrt(smoothed * (1 - smoothed) / count)
            scores |= {
                "accuracy": sum(right) / count,
                "standard_error": error,
                self.counted: float(count),
            }
        return scores


class Classification(Objective):
    """Base of the objectives whose loss is a cross-entropy."""

    @cached_property
    def cross_entropy(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """`operations.cross_entropy`, or the same compiled (model/pretrainer.py)."""
        from litebert.model.operations import cross_entropy

        return cross_entropy

    @abstractmethod
    def logits(
        self, output: EncoderOutput, batch: Batch, context: Context
    ) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,); a prediction with label IGNORED does not count."""

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        """Summed cross-entropy, in float32 whatever the autocast precision."""
        logits_NC, labels_N = self.logits(output, batch, context)
        total, correct = self.cross_entropy(logits_NC, labels_N, IGNORED)
        count = (labels_N != IGNORED).sum()
        return Loss(
            total,
            count,
            correct,
            eval_tensors={} if context.network.training else {"labels": labels_N},
        )

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Add the accuracy of always giving the commonest label."""
        labels = join_tensors(losses, "labels")
        labels = labels[labels != IGNORED]
        return {**super().scores(losses), "majority": int(labels.bincount().max()) / len(labels)}


class TokenPrediction(Classification):
    """Base of the objectives that choose one token of the vocabulary for a masked token."""

    shown: ClassVar[tuple[Score, ...]] = (
        Objective.shown[0],
        replace(ACCURACY, remark="most frequent token", unit="masked tokens"),
    )

    def backward_bytes(self, width: int) -> float:
        """The logits of the masked share, as computed, in float32, and normalized."""
        return self.config.masking.rate * (4 + 4 + width) * self.config.encoder.vocab_size

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        scores = super().scores(losses)
        return {**scores, "perplexity": math.exp(min(scores["loss"], 700.0))}


def list_shown_scores(scores: Mapping[str, float]) -> list[ShownScore]:
    """The held-out scores of a run in the order of its objectives, those that are in `scores`."""
    objectives = {
        name: kind
        for name, kind in OBJECTIVES.items()
        if {f"{name}_loss", f"{name}_accuracy"} & set(scores)
    }
    listed = []
    for name, objective in objectives.items():
        owner = "".join(other.owner_of.get(name, "") for other in objectives.values())
        for score in objective.shown:
            if shown := score.show(scores, name):
                is_compared = score.key in objective.compared.values()
                title = owner + shown.title
                listed.append(replace(shown, title=title, is_compared=is_compared))
    return listed


def score_rows(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    return [(score.title, score.text) for score in list_shown_scores(scores)]
