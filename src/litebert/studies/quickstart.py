"""The main job in minutes: raw text to tokenizer, shards, a pretrained small ALBERT, scores, a classifier and a report.

Every step is the same function the command line calls, and every step continues where an interrupted run stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from litebert import cost
from litebert.analysis import report
from litebert.analysis.fill import Guess, examples
from litebert.config import Config, replace
from litebert.data.prepare import prepare
from litebert.data.shards import Shards
from litebert.errors import ConfigError, RunError
from litebert.interop import load
from litebert.model.objectives import score_rows
from litebert.model.pretrainer import Pretrainer
from litebert.recipes.files import recipe
from litebert.storage import read_json, written_whole
from litebert.studies import packages
from litebert.text.sources import documents
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.evaluate import evaluate
from litebert.train.loop import Loop
from litebert.train.measure import measure, synthetic_batch
from litebert.train.pretrain import Run, pretrain

log = logging.getLogger("litebert")

RECIPE, TWIN = "albert-tiny", "bert-tiny"
MEASURE_SECONDS = 6.0


def quickstart(
    out: str | Path,
    text: Sequence[str] = ("python-docs",),
    *,
    language: str = "en",
    vocab_size: int = 8192,
    budget: str = "8m",
    show: Callable[..., None],
    on_step: Callable[[Loop[Any]], None] | None = None,
) -> int:
    """Run it all in the folder `out`; the exit status."""
    folder, began = Path(out), time.monotonic()
    config = recipe(RECIPE)

    log.info(f"1/6  tokenizer: {vocab_size} unigram pieces")
    _tokenizer(folder, text, vocab_size)

    log.info(f"2/6  {', '.join(text)} to token shards")
    shards = prepare(text, folder / "data", tokenizer=folder / "tokenizer", language=language, heldout=0.05)
    log.info(f"     {shards.train.tokens:,} tokens to train on, {shards.heldout.tokens:,} held out")

    log.info(f"3/6  pretraining {RECIPE} for {budget}; Ctrl-C saves, the same command continues")
    config = replace(config, train=replace(config.train, budget=budget))
    with _indented():
        run = pretrain(config, folder / "data", folder / RECIPE, on_step=on_step)
    if not run.outcome.finished:
        log.info(f"saved at step {run.outcome.step} of {run.steps}; run the same command to continue")
        return 128 + (run.outcome.signal or 0)

    log.info("4/6  held-out scores, and the same shape without sharing")
    scores = evaluate(run.folder, folder / "data", sequences=4096)
    model = load(run.folder).model
    assert isinstance(model, Pretrainer)
    guesses = examples(model, shards.tokenizer, shards.heldout)
    twin = recipe(TWIN)
    sized = replace(twin.encoder, vocab_size=shards.tokenizer.vocab_size)
    comparison = compare([run.config, replace(twin, encoder=sized)])

    tables = [_score_table(scores, shards), comparison, _guess_table(guesses)]
    if tuple(text) == ("python-docs",):
        log.info("5/6  a classifier: which package does a docstring come from, with this pretraining and without")
        with _indented():
            bought = packages.compare(run.folder, RECIPE, folder / "tokenizer", folder, on_step=on_step)
        if bought.signal is not None:
            log.info("saved; run the same command to continue")
            return 128 + bought.signal
        tables.append(_classifier_table(bought))
    else:
        log.info("5/6  no classifier, for it is about the docstrings of python-docs; see litebert finetune --help")

    log.info("6/6  report")
    path = folder / "report.html"
    _write_report(path, run, shards, tables)
    for table in tables:
        show(table.columns, table.rows, title=table.title)
    log.info(f"{path} holds the curves. Done in {(time.monotonic() - began) / 60:.1f} minutes. Next:\n")
    log.info(f"  litebert plan {RECIPE} --measure")
    if tuple(text) == ("python-docs",):
        asked = f"--input {folder / 'packages' / 'dev.csv'} --text {packages.TEXT}"
        log.info(f"  litebert predict {folder / 'classifier'} {asked}")
    log.info(f"  litebert prepare YOUR_FOLDER --tokenizer {folder / 'tokenizer'} --out your-data")
    log.info(f"  litebert pretrain {RECIPE} --data {folder / 'data'} --out longer --budget 1h")
    return 0


@contextmanager
def _indented() -> Iterator[None]:
    """What is logged meanwhile stands under the line of its step."""

    def indent(record: logging.LogRecord) -> bool:
        record.msg, record.args = f"     {record.getMessage()}", ()
        return True

    log.addFilter(indent)
    try:
        yield
    finally:
        log.removeFilter(indent)


def _tokenizer(folder: Path, text: Sequence[str], vocab_size: int) -> None:
    """Train it unless it is there; it appears whole or not at all."""
    place = folder / "tokenizer"
    if not place.exists():
        texts = (document.text for document in documents(text))
        trained = train_tokenizer(texts, kind="unigram", vocab_size=vocab_size)
        with written_whole(place) as aside:
            trained.save(aside)
    elif (size := Tokenizer.load(place).vocab_size) != vocab_size:
        raise ConfigError(f"{place} has {size} pieces and --vocab-size asks for {vocab_size}; give another --out")


def compare(configs: Sequence[Config]) -> report.Table:
    """Parameters and measured speed of configs, one row each, at its own batch and full depth."""
    machine = devices.choose("auto")
    rows = []
    for config in configs:
        parts = cost.encoder_parameters(config.encoder)
        flat = replace(config, train=replace(config.train, depth_schedule=()))
        rate = measure(flat, machine, MEASURE_SECONDS)
        tokens = config.batch_sequences * config.sequences.length
        rows.append((
            config.name,
            f"{sum(parts.values()):,}",
            f"{4 * sum(parts.values()) / 2**20:.1f} MiB",
            f"{tokens / rate.mean_step_seconds:,.0f}",
            f"{inference_seconds(config, machine) * 1000:.1f}",
        ))  # fmt: skip
    first = configs[0]
    return report.Table(
        title="The same shape, shared and not",
        columns=("model", "parameters", "float32 file", "training tokens/s", "ms per sequence"),
        rows=tuple(rows),
        note=f"Encoders with poolers. Training at {first.batch_sequences} x {first.sequences.length} tokens and full "
        f"depth, inference one sequence of {first.sequences.length} at a time, on {machine.describe()}.",
    )


def inference_seconds(config: Config, machine: devices.Device, repeats: int = 30) -> float:
    """Median seconds to encode one full sequence."""
    torch.manual_seed(0)
    model = Pretrainer(config).to(machine.device).eval()
    batch = synthetic_batch(config, 1).to(machine.device)
    seconds = []
    with torch.no_grad(), machine.autocast_context():
        for _ in range(repeats):
            start = time.perf_counter()
            model.encoder(batch.input_ids).last.sum().item()
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repeats // 2]


def _score_table(scores: dict[str, float], shards: Shards) -> report.Table:
    return report.Table(
        title="Held-out scores",
        columns=("score", "model (without learning)"),
        rows=tuple(score_rows(scores)),
        note="Fixed masks at 15 % of the tokens of documents the model never saw; ± one standard error. A loss at the "
        f"unigram entropy, {shards.unigram_entropy:.3f} nats, has learned nothing but how frequent each piece is.",
    )


def _guess_table(guesses: Sequence[Guess]) -> report.Table:
    return report.Table(
        title="Masked words of held-out sentences",
        columns=("sentence", "word", "guesses"),
        rows=tuple(guesses),
    )


def _classifier_table(bought: packages.Comparison) -> report.Table:
    kinds = (("pretrained", bought.pretrained), ("the same, untrained", bought.untrained))
    return report.Table(
        title="Which package does a docstring come from?",
        columns=("network", "accuracy", "guessing"),
        rows=tuple((name, f"{scores['accuracy']:.1%}", f"{1 / bought.classes:.1%}") for name, scores in kinds),
        note=f"{bought.classes} packages, {packages.TRAIN} docstrings of each to learn from and {packages.DEV}, of "
        "other modules, to score on; the best of the epochs.",
    )


def _write_report(path: Path, run: Run, shards: Shards, tables: Sequence[report.Table]) -> None:
    facts = read_json(run.folder / "run.json", RunError)
    shape = run.config.encoder
    lead = (
        f"{run.config.name}: {shape.layers} layers, hidden size {shape.hidden_size}, embedding size "
        f"{shape.embedding_size}, {sum(cost.encoder_parameters(shape).values()):,} parameters; {run.outcome.tokens:,} "
        f"tokens in {run.outcome.seconds / 60:.1f} minutes on {facts['machine']}."
    )
    rows = metrics.read(run.folder / "metrics.jsonl")
    sections = [*tables, *report.run_sections(rows, unigram_entropy=shards.unigram_entropy)]
    report.write(path, "litebert quickstart", lead, sections)
