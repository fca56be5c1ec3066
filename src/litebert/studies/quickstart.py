"""The main job in minutes: from raw text to a pretrained small ALBERT, its scores and a report. The
same command continues an interrupted quickstart.
"""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from litebert.analysis import report
from litebert.analysis.run_report import arrange_sections, make_pretraining_headline, read_metrics
from litebert.answer.masks import minimal_pairs
from litebert.answer.masks.reading import MaskReader, collect_examples
from litebert.answer.model import load
from litebert.base.errors import ConfigError, RunError
from litebert.base.json_reader import read_json
from litebert.base.progress import task
from litebert.base.storage import lock_folder, write_json
from litebert.config import Config, cost, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.data.prepare import PrepareConfig, prepare
from litebert.data.shards import Shards
from litebert.finetuning.results import Finetuned
from litebert.interop import read_folder
from litebert.judge.baselines import advise
from litebert.model.objectives import list_shown_scores, score_rows
from litebert.model.pretrainer import Pretrainer
from litebert.parts import describe_input
from litebert.recipes.files import recipe
from litebert.studies import packages
from litebert.text.files import expand
from litebert.text.sentences import check_language
from litebert.text.sources import read_documents
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import check_size, train_tokenizer
from litebert.train import device as devices
from litebert.train.evaluate import evaluate_pretrained
from litebert.train.measure import make_batch, measure, measure_steps
from litebert.train.pretrain import Pretrained, pretrain

log = logging.getLogger("litebert")

RECORD = "quickstart.json"
RECIPE = "albert-next-tiny"
VOCABULARY = 8192
"""The size of the vocabulary, unless the text is too short for it."""
MEASURE_SECONDS = 6.0
"""The seconds for which the speed of each model is measured."""
SHORT_SECONDS = 120
"""A shorter budget may buy too few steps, so it is checked before the text is read."""


@dataclass(frozen=True)
class Quickstart:
    out: Path
    source: tuple[str, ...] = ("python-docs",)
    """Sources of text, as in `prepare`."""
    language: str = "en"
    vocab_size: int | None = None
    """Tokens in the vocabulary; None takes `VOCABULARY`, or as many as a smaller text allows."""
    budget: str = "4m"
    blimp: str | None = None
    """A file or folder of good and bad sentences, as in `evaluate_blimp`, to score too."""
    device: str = "auto"
    seed: int = 0
    """The seed of everything that is drawn at random in pretraining."""


def quickstart(request: Quickstart, show: Callable[..., None], program: str = "litebert") -> int:
    """Run all steps, and return the exit status. `show` prints a table of columns, rows and title;
    `program` is how a shell calls litebert, in the commands shown at the end.
    """
    start, folder, device = time.monotonic(), request.out, request.device
    has_classifier = request.source == ("python-docs",)
    paradigms = None if request.blimp is None else minimal_pairs.read_paradigms(request.blimp)
    _check(request)
    with lock_folder(folder, RunError):
        _begin(request)
        log.info("1/6  tokenizer")
        _train_tokenizer(request)

        log.info(f"2/6  {', '.join(request.source)} to token shards")
        shards = prepare(
            request.source,
            folder / "data",
            tokenizer=folder / "tokenizer",
            config=PrepareConfig(language=request.language, heldout=0.05),
        )
        log.info(
            f"     {shards.train.tokens:,} tokens to train on, {shards.heldout.tokens:,} held out"
        )

        log.info(
            f"3/6  pretraining {RECIPE} for {request.budget}; Ctrl-C saves, and the same command "
            "continues"
        )
        config = recipe(RECIPE)
        train = replace(config.train, budget=request.budget, seed=request.seed)
        with _indent_messages():
            config = replace(config, train=train)
            run = pretrain(config, folder / "data", folder / RECIPE, device=device)
        if not run.outcome.finished:
            log.info(
                f"saved at step {run.outcome.step} of {run.steps}; run the same command to continue"
            )
            return 128 + (run.outcome.signal or 0)

        log.info("4/6  held-out scores, and the same shape without sharing")
        scores = evaluate_pretrained(run.folder, folder / "data", sequences=4096, device=device)
        with task("filling in masked words"):
            reader = MaskReader.of(read_folder(run.folder))
            guesses = collect_examples(reader, shards.heldout)
        shape = run.config.encoder
        shape = replace(shape, sharing="none", embedding_size=shape.hidden_size)
        unshared = replace(
            run.config,
            name="the same, nothing shared",
            encoder=shape,
            train=replace(run.config.train, depth_schedule=()),
        )
        tables = [_make_score_table(scores, shards), compare([run.config, unshared])]
        if paradigms is not None:
            pair_scores = minimal_pairs.score_paradigms(load(run.folder), paradigms)
            pairs_table = report.Table(
                title="Good and bad sentences",
                columns=minimal_pairs.COLUMNS,
                rows=tuple(tuple(map(str, row)) for row in pair_scores.rows()),
                note="How often the good sentence of a pair is likelier than the bad sentence. The "
                "model masks one token at a time. Chance is one half.",
            )
            tables.insert(1, pairs_table)
        columns = ("sentence", "word", "guesses")
        tables.append(report.Table("Masked words of held-out sentences", columns, tuple(guesses)))

        if has_classifier:
            log.info(
                "5/6  a classifier: which package does a docstring come from, compared "
                "with a baseline that counts words"
            )
            with _indent_messages():
                classifier, classes = packages.classify(run.folder, folder, device)
            if not classifier.outcome.finished:
                log.info("saved; run the same command to continue")
                return 128 + (classifier.outcome.signal or 0)
            tables.append(_make_classifier_table(classifier, classes))
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
    minutes = (time.monotonic() - start) / 60
    log.info(f"wrote {path}, with the curves, in {minutes:.1f} minutes. Next:\n")

    longer = folder / "longer"
    commands: list[tuple[str | Path, ...]] = [
        ("pretrain", RECIPE, "--shards", folder / "data", "--out", longer, "--budget", "1h"),
        ("compare", run.folder, longer),
    ]
    if has_classifier:
        rows = ("--input", folder / "packages" / "dev.csv", "--text-column", packages.TEXT)
        commands.insert(0, ("predict", folder / "classifier", *rows))
    for words in commands:
        log.info(f"  {program} {shlex.join(map(str, words))}")
    log.info(f"\nWith text of your own: {program} quickstart --source FILES_OR_FOLDERS --out mine")
    return 0


@contextmanager
def _indent_messages() -> Iterator[None]:
    """Indent messages, so that they stand under the line of their step."""

    def indent(record: logging.LogRecord) -> bool:
        record.msg, record.args = f"     {record.getMessage()}", ()
        return True

    log.addFilter(indent)
    try:
        yield
    finally:
        log.removeFilter(indent)


def _check(request: Quickstart) -> None:
    folder, budget = request.out, request.budget
    amount = parse_amount(budget, "--budget", BUDGET_UNITS)
    check_language(request.language)
    if "-" in request.source:
        raise ConfigError(
            "the quickstart reads its text twice, which standard input does not allow; "
            "give --source a file instead"
        )
    for source in request.source:
        if Path(os.path.realpath(source)) in Path(os.path.realpath(folder)).parents:
            raise ConfigError(f"--out {folder} lies in the source {source}; give another folder")
    next(read_documents(request.source))  # raises if a source does not exist, or holds no text
    if request.vocab_size is not None:
        check_size(request.vocab_size)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give --out a folder")
    devices.choose("auto", request.device)
    if amount.unit == "time" and amount.value < SHORT_SECONDS and not (folder / RECIPE).exists():
        config = recipe(RECIPE)
        encoder = replace(config.encoder, vocab_size=request.vocab_size or VOCABULARY)
        config = replace(config, encoder=encoder, train=replace(config.train, budget=budget))
        measure_steps(config, devices.choose(config.train.precision, request.device))


def _begin(request: Quickstart) -> None:
    wanted = {
        "--source": list(request.source),
        "--language": request.language,
        "--vocab-size": request.vocab_size,
        "--budget": request.budget,
        "--seed": request.seed,
        "content of --source": describe_input(expand(request.source))["names_and_contents"],
    }
    folder, record = request.out, request.out / RECORD
    saved = read_json(record, RunError) if record.exists() else wanted
    for name, value in wanted.items():
        if saved.get(name) != value:
            there = "" if "content" in name else f", {saved.get(name)}"
            reason = f"holds a quickstart with another {name}{there}"
            raise ConfigError(f"{folder} {reason}; give that, or another --out")
    write_json(record, wanted)


def _train_tokenizer(request: Quickstart) -> None:
    path, vocab_size = request.out / "tokenizer", request.vocab_size
    if path.exists():
        size = Tokenizer.load(path).vocab_size
        if vocab_size and size != vocab_size:
            raise ConfigError(
                f"{path} has {size} tokens and --vocab-size asks for {vocab_size}; give "
                "another --out"
            )
        return
    texts = (document.text for document in read_documents(request.source))
    size = VOCABULARY if vocab_size is None else vocab_size
    tokenizer = train_tokenizer(texts, kind="unigram", vocab_size=size, shrink=vocab_size is None)
    tokenizer.write(path)
    log.info(f"     {tokenizer.vocab_size} unigram tokens")


def compare(configs: Sequence[Config]) -> report.Table:
    """Make a table of parameters and measured speed of configs, at full batch and full depth."""
    machine = devices.choose("auto")
    rows = []
    for config in configs:
        parameters = sum(cost.encoder_parameters(config.encoder).values())
        flat = replace(config, train=replace(config.train, depth_schedule=(), length_schedule=()))
        with task(f"measuring {config.name}"):
            rate = measure(flat, machine, MEASURE_SECONDS)
            seconds = measure_inference(config, machine)
        speed = config.batch_sequences * config.sequences.length / rate.mean_step_seconds
        size = f"{4 * parameters / 2**20:.1f} MiB"
        times = f"{speed:,.0f}", f"{seconds * 1000:.1f}"
        rows.append((config.name, f"{parameters:,}", size, *times))
    batch, length = configs[0].batch_sequences, configs[0].sequences.length
    return report.Table(
        title="The same shape, shared and not",
        columns=("model", "parameters", "float32 file", "training tokens/s", "ms per sequence"),
        rows=tuple(rows),
        note=f"Encoders with poolers. Training at {batch} x {length} tokens and full depth, "
        f"inference one sequence of {length} at a time, on {machine.describe()}.",
    )


def measure_inference(config: Config, machine: devices.Device, repeats: int = 30) -> float:
    """Measure the median seconds to encode a full sequence."""
    torch.manual_seed(0)
    model = Pretrainer(config).to(machine.device).eval()
    batch = make_batch(config, 1).to(machine.device)
    seconds = []
    with torch.no_grad(), machine.autocast_context():
        for _ in range(repeats):
            start = time.perf_counter()
            model.encoder(batch.input_ids).last.sum().item()
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repeats // 2]


def _make_score_table(scores: dict[str, float], shards: Shards) -> report.Table:
    return report.Table(
        title="Held-out scores",
        columns=("score", "model (without learning)"),
        rows=tuple(score_rows(scores)),
        note="Fixed masks at 15% of the tokens of documents that the model never saw; ± is the "
        "standard error. The curves below were scored on fewer sequences, so their last points "
        "differ a little. A model whose loss is the unigram entropy, "
        f"{shards.unigram_entropy:.3f} nats, has learned only the frequency of each token.",
    )


def _make_classifier_table(classifier: Finetuned, classes: int) -> report.Table:
    accuracy, baseline = classifier.scores["accuracy"], classifier.baseline
    shares = {"pretrained here, then fine-tuned": accuracy}
    if baseline is not None:
        shares[f"baseline: {baseline.name}"] = baseline.scores["accuracy"]
    shares["guessing"] = 1 / classes
    advice = advise("accuracy", [accuracy], baseline, classifier.dev_rows)
    return report.Table(
        title="Which package does a docstring come from?",
        columns=("model", "accuracy"),
        rows=tuple((name, f"{share:.1%}") for name, share in shares.items()),
        note=f"{classes} packages, {packages.TRAIN} docstrings of each to learn from and "
        f"{packages.DEV}, of other modules, to score on; the best of the epochs."
        + (f" {advice[0].upper()}{advice[1:]}." if advice else ""),
    )


def _write_report(
    path: Path,
    run: Pretrained,
    shards: Shards,
    scores: Mapping[str, float],
    tables: Sequence[report.Table],
) -> None:
    facts = read_json(run.folder / "run.json", RunError)
    shape = run.config.encoder
    parameters = sum(cost.encoder_parameters(shape).values())
    lead = (
        f"{run.config.name}: {shape.layers} layers, hidden size {shape.hidden_size}, embedding "
        f"size {shape.embedding_size}, {parameters:,} parameters; {run.outcome.tokens:,} tokens "
        f"in {run.outcome.seconds / 60:.1f} minutes on {facts['machine']}."
    )
    note = _make_score_table(dict(scores), shards).note
    headline = make_pretraining_headline("Held-out scores", list_shown_scores(scores), note)
    rows = read_metrics(run.folder)
    curves = report.run_sections(rows, unigram_entropy=shards.unigram_entropy)
    sections = arrange_sections([headline], curves, list(tables))
    report.write(path, "litebert quickstart", lead, sections)
