"""`litebert finetune` and `predict`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TextIO, cast

import tyro

from litebert.commands.console import (
    Json,
    ModelPath,
    first,
    parse,
    print_json,
    say,
    table,
    training_progress,
)
from litebert.errors import ConfigError
from litebert.finetuning import FinetuneConfig


@dataclass
class FinetuneArguments:
    """Fine-tune a model on a task. The same command again continues; Ctrl-C and SIGTERM save and leave.

    Every field of the recipe is an option too, as in --epochs 5 or --train.optimizer.learning-rate 1e-4.
    """

    model: ModelPath
    task: str
    """sst2, cola, mnli, ... of GLUE; squad, race, choices, tagging; or table, for your own."""
    data: Path
    """The folder of the benchmark, or the training file."""
    out: Path
    """The run folder."""
    dev: Path | None = None
    """A file to score on; of a table, a tenth of the training rows by default."""
    test: Path | None = None
    """A file to answer."""
    text: str = "text"
    """Column of the text in a table."""
    pair: str | None = None
    """Column of a second text."""
    label: str = "label"
    """Column of what is to be learned."""
    target: Literal["auto", "class", "labels", "number"] = "auto"
    """What the label is."""
    separator: str | None = None
    """What stands between several labels in one cell."""
    metric: str | None = None
    """The score that chooses the best weights; the task's own by default."""
    order: Literal["context", "question"] = "context"
    """Of multiple choice: what comes first."""
    recipe: str = "small"
    """Hyper-parameters: small (ours), or those of albert, bert, roberta, electra, spanbert."""
    tokenizer: Path | None = None
    """Where MODEL is a recipe, an untrained network."""
    seeds: int = 1
    """Run with so many seeds, and report median, mean and spread."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: Json = False


def finetune(words: list[str]) -> int:
    """litebert finetune MODEL --task T --data D --out R"""
    if "-h" in words or "--help" in words:
        with suppress(SystemExit):
            parse(FinetuneArguments, ["--help"], "finetune")
        parse(FinetuneConfig, ["--help"], "finetune", default=FinetuneConfig(), description="Fields of the recipe.")
    arguments, rest = tyro.cli(
        FinetuneArguments, prog="litebert finetune", args=first(words), return_unknown_args=True,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    from litebert.finetuning import finetune_recipe
    from litebert.tasks.choose import recipe_key, task_of
    from litebert.tasks.seeds import finetune_seeds

    if arguments.seeds < 1:
        raise ConfigError(f"seeds is {arguments.seeds}; it must be at least 1")
    task = task_of(
        arguments.task, arguments.data, dev=arguments.dev, test=arguments.test, text=arguments.text,
        pair=arguments.pair, label=arguments.label, target=arguments.target, separator=arguments.separator,
        metric=arguments.metric, order=arguments.order,
    )  # fmt: skip
    config = finetune_recipe(arguments.recipe, recipe_key(task))
    if rest:
        config = parse(FinetuneConfig, rest, f"finetune {arguments.model}", default=config, config=())
    with training_progress() as on_step:
        result = finetune_seeds(
            arguments.model, task, arguments.out, config, seeds=arguments.seeds, tokenizer=arguments.tokenizer,
            device=arguments.device, say=say, on_step=on_step,
        )  # fmt: skip
    if result.interrupted is not None:
        say("saved; run the same command to continue")
        return 128 + result.interrupted
    if arguments.json:
        print_json({"run": str(arguments.out), "metric": task.metric, "scores": result.scores, "seeds": result.seeds})
    elif arguments.seeds == 1:
        table(("dev", arguments.out.name), [(name, f"{value:.4g}") for name, value in result.scores[0].items()])
    else:
        rows = [(name, *(f"{value:.4g}" for value in summary.values())) for name, summary in result.seeds.items()]
        table(("dev", "median", "mean", "deviation", "lowest", "highest"), rows)
        say(result.noise)
    return 0


@dataclass
class PredictArguments:
    """Answer every row of a file with a fine-tuned model, in order."""

    model: ModelPath
    input: str = "-"
    """CSV, TSV, JSONL, Parquet or plain text with one text a line; - is standard input."""
    output: str = "-"
    """A .csv or .jsonl file; - is standard output."""
    text: str = "text"
    """Column of the text."""
    pair: str | None = None
    """Column of a second text."""
    format: Literal["csv", "jsonl"] | None = None
    """Of the output; by its suffix, and csv on standard output."""
    input_format: Literal["csv", "tsv", "jsonl", "text"] | None = None
    """Of the input, where no suffix tells."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def predict(words: list[str]) -> int:
    """litebert predict MODEL --input F --output G"""
    arguments = parse(PredictArguments, words, "predict")
    from litebert.tasks.predict import load, predict_file

    form = arguments.format
    if form is None:
        form = "jsonl" if Path(arguments.output).suffix in (".jsonl", ".ndjson") else "csv"
    model = load(arguments.model, device=arguments.device)
    with _output(arguments.output) as out:
        count = predict_file(
            model, arguments.input, out, form=form, source_form=arguments.input_format, text=arguments.text,
            pair=arguments.pair, say=say,
        )  # fmt: skip
    say(f"{count:,} answers")
    return 0


@contextmanager
def _output(name: str) -> Iterator[TextIO]:
    """Standard output, or a file that is there when it is whole."""
    from litebert.data.shards import written_whole

    path = Path(name)
    if name == "-":
        yield sys.stdout
    elif not path.parent.is_dir() or path.is_dir():
        raise ConfigError(f"cannot write {name}; give --output a file in a folder that is there")
    elif path.exists() and not path.is_file():  # a pipe or a device
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
    else:
        with written_whole(path) as raw:
            text = io.TextIOWrapper(cast(BinaryIO, raw), encoding="utf-8", newline="")
            try:
                yield text
            finally:
                text.detach()
