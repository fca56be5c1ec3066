"""One part of each kind of one's own, all in one run, from text to answers without a change in
litebert.

A source of text, an objective, a kind of positions, a task with a new kind of output, and an
engine: each is defined here or in toys/nearby.py, and registered in one line. One recipe names the
objective and the positions, and the verbs of the command line do the rest.
"""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import litebert
from litebert.base.errors import DataError, require
from litebert.base.registry import ENGINES, OBJECTIVES, OUTPUTS, POSITIONS, SOURCES, TASKS
from litebert.cli import main
from litebert.config import Config, cost
from litebert.model.objectives import Context, Curves, Loss, Objective, Score
from litebert.tasks.outputs import Output
from litebert.tasks.predictions import write_records
from litebert.tasks.rows import build_row
from litebert.tasks.task import Row, Task, TaskFiles, TaskOptions
from litebert.tasks.values import Answer, Item
from litebert.text.records import Notes, RowSource, read_records
from litebert.text.sources import Reading
from litebert.tokenizer import Tokenizer
from litebert.train import metrics
from litebert.train.measure import make_batch
from toys.finetuning import write_ranges
from toys.nearby import ByNumpy, Nearby
from toys.refusals import names

pytestmark = pytest.mark.thorough


Told = tuple[int, str, str]
"""The result of a command line: its status, standard output and standard error."""


# --------------------------------------------------------------------------------- a source of text


def tales(name: str, reading: Reading) -> Iterator[tuple[str, str]]:
    """Made-up documents, `tales:200` of two hundred, whose words alliterate: any word tells the
    others.
    """
    if not name.isdigit():
        raise DataError(f"tales:{name} names no number of documents; write tales:200")
    draw = random.Random(0)
    for number in range(int(name)):
        letter = draw.choice("bdfgklmn")
        topic = [letter + vowel for vowel in "aeiou"]
        sentences = (
            " ".join(draw.choices(topic, k=draw.randint(3, 8))) for _ in range(draw.randint(4, 12))
        )
        yield ". ".join(sentences).capitalize() + ".", f"tale {number}"


# ------------------------------------------------------------------------------------- an objective


class Gist(Objective):
    """Tell the masked tokens of a sequence from its pooled [CLS] state alone, which so learns what
    the text is about.

    Shapes: B sequences, S tokens, K masked tokens, V vocabulary.
    """

    first = 10
    """Pieces among which the token is to be."""
    hits = Score(
        "found", "{NAME} in the first ten", baseline="frequent", remark="most frequent ten"
    )
    shown = (Objective.shown[0], hits)
    compared: ClassVar = {"{NAME} in the first ten (most frequent ten)": "found"}
    lines = (("training", "train", "accuracy"), ("held out", "heldout", "found"))
    curves = (Curves("Masked pieces told from [CLS]", lines, baseline="frequent"),)

    def check(self) -> None:
        super().check()
        require(
            self.config.encoder.pooler,
            f"objective {self.name} reads the pooled state; set encoder.pooler=True",
        )

    def parameters(self) -> dict[str, int]:
        return {
            "gist head": cost.linear(
                self.config.encoder.hidden_size, self.config.encoder.vocab_size
            )
        }

    def flops(self, length: int) -> float:
        return 2 * self.config.encoder.hidden_size * self.config.encoder.vocab_size / length

    def head(self) -> nn.Module:
        return nn.Linear(self.config.encoder.hidden_size, self.config.encoder.vocab_size)

    def loss(self, output: Any, batch: Any, context: Context) -> Loss:
        likely_BV = context.network.head(output.pooled).float().log_softmax(-1)
        likely_KV = likely_BV[batch.masked_positions // batch.input_ids.shape[1]]
        labels_K = batch.masked_labels
        total = F.nll_loss(likely_KV, labels_K, reduction="sum")
        hits = (likely_KV.topk(self.first).indices == labels_K[:, None]).any(-1).sum()
        count = torch.tensor(len(labels_K), device=total.device)
        return Loss(
            total,
            count,
            hits,
            eval_tensors={} if context.network.training else {"labels": labels_K},
        )

    def count(self, batch: Any) -> int:
        return int(batch.masked_labels.numel())

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        scores = super().scores(losses)
        if not scores:
            return {}
        often = (
            torch.cat([loss.eval_tensors["labels"] for loss in losses])
            .bincount()
            .sort(descending=True)
            .values
        )
        frequent = float(often[: self.first].sum() / often.sum())
        return {"loss": scores["loss"], "found": scores["accuracy"], "frequent": frequent}


# ----------------------------------------------------------------- a task with a new kind of output


class Between(Output):
    """A number of which only a range is known. A target is (low, high); the head gives a middle and
    a log of a spread.

    The number is taken to be logistic, and the loss is how unlikely that makes the range.
    """

    name, head = "between", "sequence"
    classes, targets, task = 2, np.float32, "ranges"
    scores = ("inside",)

    def total(  # type: ignore[override]  # no weights of rows
        self, logits: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        middle_B, spread_B = logits[:, 0], logits[:, 1].exp()
        low_B, high_B = ((targets[:, end] - middle_B) / spread_B for end in (0, 1))
        likely_B = (
            F.logsigmoid(high_B) + F.logsigmoid(-low_B) + torch.log(-torch.expm1(low_B - high_B))
        )
        return -likely_B.sum(), ((low_B <= 0) & (high_B >= 0)).sum()

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        return [Answer((float(middle), math.exp(spread)), np.empty(0)) for middle, spread in logits]

    def record(self, answer: Answer) -> dict[str, Any]:
        middle, spread = answer.value
        return {"prediction": middle, "from": middle - 2.2 * spread, "to": middle + 2.2 * spread}


class Ranged(NamedTuple):
    """A text and the range of its number, None where it is not known."""

    text: str
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class RangeOptions(TaskOptions):
    """The options of ranges."""

    dev: tuple[str, ...] = ()
    """The file to score on."""
    widest: float = math.inf
    """Widest range that is learned."""


class RangeFiles(TaskFiles[Ranged]):
    """Texts with ranges from JSON Lines: `text`, `low` and `high`."""

    def __init__(self, task: Task[Ranged], data: Any, dev: Any, widest: float = math.inf) -> None:
        self.task, self.paths, self.widest = task, {"train": data, "dev": dev}, widest

    @classmethod
    def open(cls, task_class: Any, name: str, data: Any, **options: Any) -> RangeFiles:
        require("dev" in options, f"task {name} needs a file to score on; give --dev")
        return cls(task_class(Between(), dev=("dev",)), data, **options)

    def read(self, split: str, notes: Notes | None = None) -> list[Ranged]:
        rows = read_records(self.paths[split], ("text", "low", "high"), notes or Notes())
        ranges = [Ranged(text, (float(low), float(high))) for _, (text, low, high), _ in rows]
        widest = self.widest if split == "train" else math.inf
        return [row for row in ranges if np.ptp(row.limits or ()) <= widest]

    @classmethod
    def stream(
        cls, source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[Ranged]]:
        for line, (words,), extras in read_records(source, (text,), notes):
            yield Row(Ranged(words), extras, str(source), line)


class Ranges(Task[Ranged]):
    """The task of ranges, which is scored by how often the answer lies inside."""

    name, suffix, inputs = "ranges", ".jsonl", "give a text"
    files, options = RangeFiles, RangeOptions

    def example(self, value: Any, name: str) -> Ranged:
        if not isinstance(value, str):
            raise TypeError
        return Ranged(value)

    def encode(
        self, examples: Sequence[Ranged], tokenizer: Tokenizer, length: int, notes: Any
    ) -> list[Item]:
        rows = (
            build_row(tokenizer, ids, length=length)
            for ids in tokenizer.encode([example.text for example in examples])
        )
        return [
            Item(i, (row,), example.limits)
            for i, (row, example) in enumerate(zip(rows, examples, strict=True))
        ]

    def score(self, examples: Sequence[Ranged], answers: Sequence[Answer]) -> dict[str, float]:
        judged = [
            (example.limits, answer.value[0])
            for example, answer in zip(examples, answers, strict=True)
            if example.limits
        ]
        return {
            "inside": float(
                np.mean([limits[0] <= middle <= limits[1] for limits, middle in judged])
            )
        }

    def write(self, examples: Sequence[Ranged], answers: Sequence[Answer], path: Path) -> None:
        with open(path, "w", encoding="utf-8") as file:
            write_records(map(self.record, examples, answers), file, "jsonl")


# -------------------------------------------------------------------------------------- all of them


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    SOURCES.add("tales:", tales)
    OBJECTIVES.add("gist", Gist)
    POSITIONS.add("nearby", Nearby)
    TASKS.add("ranges", Ranges)
    OUTPUTS.add("between", Between)
    ENGINES.add("numpy", ByNumpy)


RECIPE = """
objectives = ["mlm", "gist"]
masking = { rate = 0.125 }
sequences = { length = 32, short_probability = 0.0 }
encoder = { vocab_size = 72, embedding_size = 16, hidden_size = 32, layers = 2, heads = 2, \
            intermediate_size = 64, max_positions = 64, activation = "gelu", positions = "nearby" }
train = { budget = "120 steps", batch = "32 sequences", evaluate_every = "50%", \
          evaluate_sequences = 32, precision = "float32", optimizer = { learning_rate = 1e-2 } }
"""


class Work(NamedTuple):
    """A recipe, what it was trained on, and two runs of it."""

    recipe: Path
    data: Path
    runs: tuple[Path, Path]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Text of the source, through the command line, to two pretrained runs that differ by their
    seed.
    """
    folder = tmp_path_factory.mktemp("everything")
    recipe, data, tokenizer = folder / "own.toml", folder / "data", folder / "tokenizer"
    recipe.write_text(RECIPE)
    train = ["tokenizer", "train", "tales:200", "--kind", "wordpiece", "--vocab-size", "72"]
    prepare = ["prepare", "tales:200", "--tokenizer", str(tokenizer), "--out", str(data)]
    assert main([*train, "--out", str(tokenizer)]) == 0
    assert main([*prepare, "--heldout", "0.2", "--processes", "1"]) == 0
    runs = (folder / "first", folder / "second")
    for seed, run in enumerate(runs):
        words = ["pretrain", str(recipe), "--train.seed", str(seed), "--shards", str(data)]
        assert main([*words, "--out", str(run), "--device", "cpu"]) == 0
    return Work(recipe, data, runs)


def test_plan_counts_what_is_built(work: Work, run: Callable[..., Told]) -> None:
    plan = json.loads(run("plan", work.recipe, "--json")[1])
    model: Any = litebert.load(work.runs[0]).model
    config: Config = litebert.recipe(str(work.recipe))
    built = {
        "gist head": model.objectives["gist"],
        "positions": model.encoder.positions,
        "total": model,
    }
    for part, module in built.items():
        assert (
            plan["parameters"][part] == sum(weight.numel() for weight in module.parameters()) > 0
        ), part
    batch = make_batch(config, 8)
    assert len(batch.masked_labels) == config.masking.rate * batch.tokens
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch)
    assert plan["flops_per_token"]["forward"] == pytest.approx(
        counter.get_total_flops() / batch.tokens, rel=1e-6
    )


def test_what_is_learned_is_scored_under_its_name(work: Work, run: Callable[..., Told]) -> None:
    rows = metrics.read(work.runs[0] / "metrics.jsonl")
    learned = [row["gist_loss"] for row in rows if row["kind"] == "train"]
    assert np.mean(learned[-10:]) < 0.9 * np.mean(learned[:10])
    status, out, _ = run(
        "evaluate", work.runs[0], "--shards", work.data, "--device", "cpu", "--json"
    )
    scores = json.loads(out)["scores"]
    assert status == 0
    assert {"mlm_loss", "gist_loss", "gist_found", "gist_frequent"} <= scores.keys()
    assert scores["gist_found"] > scores["gist_frequent"] > 0.1, (
        "[CLS] knows more than what is frequent"
    )
    assert "gist_accuracy" not in scores
    _, out, _ = run("evaluate", work.runs[0], "--shards", work.data, "--device", "cpu")
    (line,) = (line for line in out.splitlines() if "GIST in the first ten" in line)
    assert f"{scores['gist_found']:.1%} (most frequent ten: {scores['gist_frequent']:.1%})" in line
    table: Any = litebert.load(work.runs[0]).model.encoder
    assert table.positions.table.abs().max() > 0.01, "positions are learned"


def test_two_runs_are_compared(work: Work, run: Callable[..., Told]) -> None:
    status, out, _ = run("compare", *work.runs, "--markdown")
    assert status == 0
    rows = out.partition("| setting |")[0].splitlines()
    columns, _, *lines = (
        [cell.strip() for cell in line.split("|")] for line in rows if line[:1] == "|"
    )
    place = columns.index("GIST in the first ten (most frequent ten)")
    assert [line[1] for line in lines] == ["first", "second"]
    for line, folder in zip(lines, work.runs, strict=True):
        last = metrics.read(folder / "metrics.jsonl")[-1]
        assert line[place] == f"{last['gist_found']:.1%} ({last['gist_frequent']:.1%})"


def test_it_converts_to_litebert_alone(
    work: Work, tmp_path: Path, run: Callable[..., Told]
) -> None:
    assert run("convert", work.runs[0], "--out", tmp_path / "own", "--to", "litebert")[0] == 0
    before, after = (
        litebert.load(folder).model.state_dict() for folder in (work.runs[0], tmp_path / "own")
    )
    assert (
        before.keys() == after.keys() >= {"encoder.positions.table", "objectives.gist.head.weight"}
    )
    assert all(torch.equal(before[name], after[name]) for name in before)
    status, out, err = run("convert", work.runs[0], "--out", tmp_path / "hf", "--to", "hf")
    assert (status, out, (tmp_path / "hf").exists()) == (2, "", False)
    names(err, "encoder.positions=nearby")


def test_a_task_is_learned_and_both_engines_answer(
    work: Work, tmp_path: Path, run: Callable[..., Told]
) -> None:
    train, dev = (
        write_ranges(tmp_path / "train.jsonl", 160, 0),
        write_ranges(tmp_path / "dev.jsonl", 40, 1),
    )
    tuned, answered = tmp_path / "tuned", tmp_path / "answers.csv"
    options = {
        "--task": "ranges",
        "--data": train,
        "--dev": dev,
        "--widest": "1e3",
        "--out": tuned,
        "--epochs": 8,
        "--length": 32,
        "--train.precision": "float32",
        "--train.optimizer.learning-rate": "1e-2",
        "--device": "cpu",
    }
    words = [word for option in options.items() for word in option]
    status, out, err = run("finetune", work.runs[0], *words, "--json")
    assert status == 0, err
    done = json.loads(out)
    assert (done["metric"], done["collapsed"]) == ("inside", [])
    assert done["scores"][0]["inside"] > 0.9
    losses = [
        row["task_loss"] for row in metrics.read(tuned / "metrics.jsonl") if row["kind"] == "train"
    ]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])

    status, _, err = run("predict", tuned, "--input", dev, "--out", answered, "--device", "cpu")
    assert status == 0, err
    written = list(csv.DictReader(answered.read_text(encoding="utf-8").splitlines()))
    dev_rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
    assert list(written[0]) == ["prediction", "from", "to"]
    inside = [
        dev_row["low"] <= float(row["prediction"]) <= dev_row["high"]
        for dev_row, row in zip(dev_rows, written, strict=True)
    ]
    assert np.mean(inside) == done["scores"][0]["inside"]

    before = ByNumpy.used
    model = litebert.load(tuned, engine="numpy")
    answers = model.predict([dev_row["text"] for dev_row in dev_rows])
    assert ByNumpy.used > before
    for written_row, answer in zip(written, answers, strict=True):
        assert answer["from"] < answer["prediction"] < answer["to"]
        assert answer == pytest.approx(
            {key: float(value) for key, value in written_row.items()}, abs=1e-5
        )
