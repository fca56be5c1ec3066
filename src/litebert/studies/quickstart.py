"""The main job in minutes: raw text to tokenizer, shards, a pretrained small ALBERT, scores, a
classifier and a report.

Every step is the function that the command line calls, and continues where an interrupted run
stopped.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from litebert import cost
from litebert.analysis import report
from litebert.analysis.run_report import arranged, pretraining_headline, recorded
from litebert.answer import minimal_pairs
from litebert.answer.masks import Example, MaskReader, examples
from litebert.answer.predictor import load
from litebert.config import Config, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.data.prepare import prepare
from litebert.data.shards import Shards
from litebert.errors import ConfigError, RunError
from litebert.finetuning.baselines import advise
from litebert.finetuning.run import Finetuned
from litebert.interop import read_folder
from litebert.json_reader import read_json
from litebert.model.objectives import score_rows, shown_scores
from litebert.model.pretrainer import Pretrainer
from litebert.progress import task
from litebert.recipes.files import recipe
from litebert.studies import packages
from litebert.text.sentences import check_language
from litebert.text.sources import read_documents
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.tokenizer.training import check_size
from litebert.train import device as devices
from litebert.train.budget import measured_steps
from litebert.train.evaluate import evaluate
from litebert.train.measure import measure, synthetic_batch
from litebert.train.pretrain import Run, pretrain

log = logging.getLogger("litebert")

RECIPE = "albert-next-tiny"
VOCABULARY = 8192
"""Pieces, where the text allows so many."""
MEASURE_SECONDS = 6.0
SHORT_SECONDS = 120
"""A shorter budget may buy too few steps: that is measured before the tokenizer is trained and the
text is read.
"""


def quickstart(
    out: str | Path,
    text: Sequence[str] = ("python-docs",),
    *,
    language: str = "en",
    vocab_size: int | None = None,
    budget: str = "4m",
    blimp: str | Path | None = None,
    show: Callable[..., None],
    program: str = "litebert",
) -> int:
    """Run it all in the folder `out`; the exit status.

    Args:
        text: sources of text, as in `prepare`.
        language: for sentence boundaries, as in `prepare`.
        vocab_size: pieces of the tokenizer; None takes `VOCABULARY`, or as many as a smaller text
            allows.
        budget: for pretraining.
        blimp: a file or folder of good and bad sentences, as in `evaluate_blimp`, to score too.
        show: prints a table: columns, rows and title.
        program: how a shell calls litebert, for the commands shown at the end.

    Raises:
        ConfigError, DataError: an argument that cannot be, before any work.
    """
    folder, began = Path(out), time.monotonic()
    _check(folder, text, language, vocab_size, budget)
    paradigms = None if blimp is None else minimal_pairs.read_paradigms(blimp)
    config = recipe(RECIPE)
    config = replace(config, train=replace(config.train, budget=budget))

    log.info("1/6  tokenizer")
    _tokenizer(folder, text, vocab_size)

    log.info(f"2/6  {', '.join(text)} to token shards")
    shards = prepare(
        text, folder / "data", tokenizer=folder / "tokenizer", language=language, heldout=0.05
    )
    log.info(f"     {shards.train.tokens:,} tokens to train on, {shards.heldout.tokens:,} held out")

    log.info(f"3/6  pretraining {RECIPE} for {budget}; Ctrl-C saves, the same command continues")
    with _indented():
        run = pretrain(config, folder / "data", folder / RECIPE)
    if not run.outcome.finished:
        log.info(
            f"saved at step {run.outcome.step} of {run.steps}; run the same command to continue"
        )
        return 128 + (run.outcome.signal or 0)

    log.info("4/6  held-out scores, and the same shape without sharing")
    scores = evaluate(run.folder, folder / "data", sequences=4096)
    with task("filling in masked words"):
        guesses = examples(
            MaskReader.of(read_folder(run.folder), torch.device("cpu")), shards.heldout
        )
    comparison = compare([run.config, _unshared(run.config)])

    tables = [_score_table(scores, shards), comparison, _guess_table(guesses)]
    if paradigms is not None:
        tables.insert(1, _pairs_table(minimal_pairs.score_paradigms(load(run.folder), paradigms)))
    if tuple(text) == ("python-docs",):
        log.info(
            "5/6  a classifier: which package does a docstring come from, beside a "
            "baseline that counts words"
        )
        with _indented():
            classifier, classes = packages.classify(run.folder, folder)
        if not classifier.outcome.finished:
            log.info("saved; run the same command to continue")
            return 128 + (classifier.outcome.signal or 0)
        tables.append(_classifier_table(classifier, classes))
    else:
        log.info(
            "5/6  no classifier: that step needs the docstrings of python-docs; see "
            "litebert finetune --help"
        )

    log.info("6/6  report")
    path = folder / "report.html"
    _write_report(path, run, shards, scores, tables[1:])
    for table in tables:
        show(table.columns, table.rows, title=table.title)
    log.info(
        f"wrote {path}, with the curves, in {(time.monotonic() - began) / 60:.1f} minutes. Next:\n"
    )
    longer = folder / "longer"
    following: list[tuple[str | Path, ...]] = [
        ("pretrain", RECIPE, "--data", folder / "data", "--out", longer, "--budget", "1h"),
        ("compare", run.folder, longer),
    ]
    if tuple(text) == ("python-docs",):
        asked = ("--input", folder / "packages" / "dev.csv", "--text", packages.TEXT)
        following.insert(0, ("predict", folder / "classifier", *asked))
    for words in following:
        log.info(f"  {program} {shlex.join(map(str, words))}")
    log.info(
        f"\nThe same with text of your own: {program} quickstart --text FILES_OR_FOLDERS --out mine"
    )
    return 0


def _unshared(config: Config) -> Config:
    """The twin with a block for each layer, and tables as wide as its states."""
    encoder = replace(config.encoder, sharing="none", embedding_size=config.encoder.hidden_size)
    train = replace(config.train, depth_schedule=())
    return replace(config, name="the same, nothing shared", encoder=encoder, train=train)


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


def _check(
    folder: Path, text: Sequence[str], language: str, vocab_size: int | None, budget: str
) -> None:
    """Refuse arguments that cannot be, before any work."""
    amount = parse_amount(budget, "--budget", BUDGET_UNITS)
    check_language(language)
    if "-" in text:
        raise ConfigError(
            "the quickstart reads its text twice, which standard input does not allow; "
            "give --text a file instead"
        )
    next(read_documents(text))  # raises where a source is not there, or holds no text
    if vocab_size is not None:
        check_size(vocab_size)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give --out a folder")
    if (begun := folder / RECIPE / "recipe.json").is_file():
        there = read_json(begun, RunError).get("train", {}).get("budget")
        if there != budget:
            raise ConfigError(
                f"{folder} holds a quickstart with --budget '{there}'; give that, or another --out"
            )
    if amount.unit == "time" and amount.value < SHORT_SECONDS and not (folder / RECIPE).exists():
        config = recipe(RECIPE)
        sized = replace(config.encoder, vocab_size=vocab_size or VOCABULARY)
        config = replace(config, encoder=sized, train=replace(config.train, budget=budget))
        measured_steps(config, devices.choose(config.train.precision))
    folder.mkdir(parents=True, exist_ok=True)


def _tokenizer(folder: Path, text: Sequence[str], vocab_size: int | None) -> None:
    """Train it unless it is there."""
    place = folder / "tokenizer"
    if not place.exists():
        texts = (document.text for document in read_documents(text))
        size = VOCABULARY if vocab_size is None else vocab_size
        trained = train_tokenizer(texts, kind="unigram", vocab_size=size, shrink=vocab_size is None)
        trained.write(place)
        log.info(f"     {trained.vocab_size} unigram pieces")
    elif (size := Tokenizer.load(place).vocab_size) != (vocab_size or size):
        raise ConfigError(
            f"{place} has {size} pieces and --vocab-size asks for {vocab_size}; give another --out"
        )


def compare(configs: Sequence[Config]) -> report.Table:
    """Parameters and measured speed of configs, one row each, at its own batch and full depth."""
    machine = devices.choose("auto")
    rows = []
    for config in configs:
        parts = cost.encoder_parameters(config.encoder)
        flat = replace(config, train=replace(config.train, depth_schedule=(), length_schedule=()))
        with task(f"measuring {config.name}"):
            rate, seconds = (
                measure(flat, machine, MEASURE_SECONDS),
                inference_seconds(config, machine),
            )
        tokens = config.batch_sequences * config.sequences.length
        rows.append(
            (
                config.name,
                f"{sum(parts.values()):,}",
                f"{4 * sum(parts.values()) / 2**20:.1f} MiB",
                f"{tokens / rate.mean_step_seconds:,.0f}",
                f"{seconds * 1000:.1f}",
            )
        )
    first = configs[0]
    return report.Table(
        title="The same shape, shared and not",
        columns=("model", "parameters", "float32 file", "training tokens/s", "ms per sequence"),
        rows=tuple(rows),
        note=f"Encoders with poolers. Training at {first.batch_sequences} x "
        f"{first.sequences.length} tokens and full "
        f"depth, inference one sequence of {first.sequences.length} at a time, on "
        f"{machine.describe()}.",
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
        note="Fixed masks at 15 % of the tokens of documents the model never saw; ± one "
        "standard error. The curves "
        "below were scored on fewer sequences, so their last points differ a little. A loss at the "
        f"unigram entropy, {shards.unigram_entropy:.3f} nats, has learned nothing but how "
        "frequent each piece is.",
    )


def _pairs_table(found: minimal_pairs.PairScores) -> report.Table:
    return report.Table(
        title="Good and bad sentences",
        columns=minimal_pairs.COLUMNS,
        rows=tuple(tuple(map(str, row)) for row in found.rows()),
        note="How often the good sentence of a pair is the likelier one, by masking one piece "
        "at a time; guessing gets "
        "half of them.",
    )


def _guess_table(guesses: Sequence[Example]) -> report.Table:
    return report.Table(
        title="Masked words of held-out sentences",
        columns=("sentence", "word", "guesses"),
        rows=tuple(guesses),
    )


def _classifier_table(classifier: Finetuned, classes: int) -> report.Table:
    accuracy, baseline = classifier.scores["accuracy"], classifier.baseline
    rows = [("pretrained here, then fine-tuned", accuracy)]
    if baseline is not None:
        rows.append((f"baseline: {baseline.name}", baseline.scores["accuracy"]))
    advice = advise("accuracy", accuracy, baseline)
    return report.Table(
        title="Which package does a docstring come from?",
        columns=("model", "accuracy"),
        rows=(
            *((name, f"{share:.1%}") for name, share in rows),
            ("guessing", f"{1 / classes:.1%}"),
        ),
        note=f"{classes} packages, {packages.TRAIN} docstrings of each to learn from and "
        f"{packages.DEV}, of other modules, to score on; the best of the epochs."
        + (f" {advice[0].upper()}{advice[1:]}." if advice else ""),
    )


def _write_report(
    path: Path,
    run: Run,
    shards: Shards,
    scores: Mapping[str, float],
    tables: Sequence[report.Table],
) -> None:
    """The page: the scores as large numbers, the curves, then the tables."""
    facts = read_json(run.folder / "run.json", RunError)
    shape = run.config.encoder
    lead = (
        f"{run.config.name}: {shape.layers} layers, hidden size {shape.hidden_size}, "
        "embedding size "
        f"{shape.embedding_size}, {sum(cost.encoder_parameters(shape).values()):,} "
        f"parameters; {run.outcome.tokens:,} "
        f"tokens in {run.outcome.seconds / 60:.1f} minutes on {facts['machine']}."
    )
    note = _score_table(dict(scores), shards).note
    headline = pretraining_headline("Held-out scores", shown_scores(scores), note)
    curves = report.run_sections(recorded(run.folder), unigram_entropy=shards.unigram_entropy)
    report.write(path, "litebert quickstart", lead, arranged([headline], curves, list(tables)))
