"""`litebert pretrain`, `evaluate`, `compare`, `convert` and `quickstart`.

Arguments are read before torch is imported, so that help and errors appear at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from litebert import progress
from litebert.commands import console
from litebert.commands.console import Json, ModelPath, RecipeName
from litebert.config import Config, Sharing, replace
from litebert.config.finetuning import HeadName
from litebert.errors import ConfigError, RunError, require
from litebert.machine import keep_freed_memory
from litebert.model.objectives import score_rows
from litebert.storage import check_output

log = logging.getLogger("litebert")


@dataclass
class PretrainArguments:
    """Train a recipe on token shards. The same command again continues; Ctrl-C and SIGTERM save and
    stop.

    Every field of the recipe is an option too, as in --encoder.layers 6; RECIPE --help lists them.
    Without RECIPE, --from MODEL trains that model further: with its own shape, objectives and
    settings, a learning rate that rises again over the first twentieth of the run, and --budget.
    """

    recipe: RecipeName
    data: Path
    """A folder written by litebert prepare."""
    out: Path
    """The run folder."""
    budget: str | None = None
    """How long to train: 30m, 1h30m, 5000 steps or 300M tokens; by default the recipe's own budget.
    A time that buys fewer than twenty steps is refused."""
    extend: tuple[str, ...] = ()
    """Extend a finished run by a further budget, such as 30m. In the first twentieth of it the
    learning rate rises again, to the value it would have in a run planned at the full length, and
    then decays as in that run. The same command continues this extension; to extend the run once
    more, list all extensions: --extend 30m 1h."""
    from_model: Annotated[Path | None, tyro.conf.arg(name="from", metavar="MODEL")] = None
    """Start from the weights of another run or model folder (litebert or Hugging Face) of the same
    shape and tokenizer: its encoder, and each objective that fits. Parts that stay untrained are
    listed. Of a run with the same optimizer, its state is used too."""
    watch: Annotated[Path | None, tyro.conf.arg(metavar="DATA")] = None
    """Also score the model on the held-out part of this prepared text, before the first step and at
    each evaluation, to see what it forgets; prepare it with the same tokenizer."""
    teacher: Annotated[Path | None, tyro.conf.arg(metavar="MODEL")] = None
    """Learn from a pretrained model with the tokenizer of the data, of any size: its guesses, and
    with --distill.states and --distill.relations its states and how its tokens relate
    (docs/distillation.md)."""
    teacher_answers: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Keep the teacher's guesses in this folder, and use those that are there: runs with the same
    data, masks, batch and seed ask the teacher once. Needs --distill.top-k, such as 32."""
    overwrite: bool = False
    """Delete the run in --out and start again. On a terminal, litebert asks first."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac; auto takes a GPU or mps where there is one."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard."""
    json: Json = False


def pretrain(words: list[str]) -> int:
    """litebert pretrain RECIPE --data D --out R"""
    arguments, config = console.parse_with_recipe(
        PretrainArguments, words, "pretrain", _recipe_of_model
    )
    with console.loading():
        from litebert.analysis.run_report import recorded, watched_table, write_run
        from litebert.train.pretrain import pretrain as run
        from litebert.train.pretrain import run_folder

    keep_freed_memory()
    console.refuse_lessons(words, arguments.teacher)
    if arguments.budget is not None:
        config = replace(config, train=replace(config.train, budget=arguments.budget))
    with console.group() as ranks:
        if arguments.overwrite:
            ranks.decide(lambda: console.confirm_overwrite(run_folder(arguments.out)))
        done = run(
            config,
            arguments.data,
            arguments.out,
            from_model=arguments.from_model,
            watch=arguments.watch,
            teacher=arguments.teacher,
            teacher_answers=arguments.teacher_answers,
            extend=arguments.extend,
            overwrite=arguments.overwrite,
            device=arguments.device,
            tensorboard=arguments.tensorboard,
        )
        outcome = done.outcome
        if ranks.main:
            write_run(done.folder)
    if not outcome.finished:
        console.say(
            f"saved at step {outcome.step:,} of {done.steps:,}; run the same command to continue"
        )
        return 128 + (outcome.signal or 0)
    rows = recorded(done.folder)
    if arguments.json:
        watched = [row for row in rows if row["kind"] == "watch"]
        console.print_json(
            {
                "run": str(done.folder),
                "steps": done.steps,
                "tokens": outcome.tokens,
                "seconds": outcome.seconds,
                "heldout": outcome.scores,
                **({"watched": watched} if watched else {}),
            }
        )
    else:
        console.table(("held out", done.folder.name), score_rows(outcome.scores))
        if found := watched_table(rows):
            console.table(*found)
    console.ending(
        f"{done.folder}; its curves are in {done.folder / 'report.html'}",
        ("evaluate", done.folder, "--data", arguments.data),
        ("finetune", done.folder, "--task", "table", "--data", "TABLE.csv", "--out", "CLASSIFIER"),
    )
    return 0


def _recipe_of_model(arguments: PretrainArguments) -> Config:
    """The recipe where none is named."""
    assert arguments.from_model is not None
    with console.loading():
        from litebert.train.start import recipe_of
    return recipe_of(arguments.from_model)


@dataclass
class EvaluateArguments:
    """Score a model on held-out text, with fixed masks at 15 % whatever it trained with, so that
    models compare.

    Objectives rtd and sbo are scored on the masks that the model was trained with. With --blimp,
    also or only score how often the model finds the grammatical one of two sentences likelier,
    which needs no labels and no training.
    """

    model: ModelPath
    data: Path | None = None
    """A folder written by litebert prepare with the same tokenizer."""
    blimp: Path | None = None
    """A folder of BLiMP's files, or any JSON Lines of sentence pairs (sentence_good,
    sentence_bad)."""
    pairs: int | None = None
    """Most pairs of each paradigm of --blimp to score; all by default. A file without UIDs is one
    paradigm.
    """
    sequences: int | None = None
    """Most held-out sequences to score; 2,048 by default."""
    length: int | None = None
    """Tokens per sequence; by default the length that the model was trained with."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac; auto takes a GPU or mps where there is one."""
    json: Json = False


def evaluate(words: list[str]) -> int:
    """litebert evaluate MODEL --data D --blimp FOLDER"""
    arguments = console.parse(EvaluateArguments, words, "evaluate")
    if arguments.data is None and arguments.blimp is None:
        raise ConfigError(
            "nothing to score on is given; name prepared text with --data, sentence pairs "
            "with --blimp"
        )
    if arguments.blimp is None and arguments.pairs is not None:
        raise ConfigError(
            "--pairs limits the sentence pairs of --blimp; give --blimp too, or leave it out"
        )
    for option in ("sequences", "length"):
        told = arguments.data is not None or getattr(arguments, option) is None
        require(
            told,
            f"--{option} is of the held-out text of --data; give --data too, or leave "
            f"--{option} out",
        )
    with console.loading():
        from litebert.answer import minimal_pairs
        from litebert.answer.predictor import load
        from litebert.train.evaluate import evaluate as run

    report: dict[str, Any] = {}
    paradigms = (
        None
        if arguments.blimp is None
        else minimal_pairs.read_paradigms(arguments.blimp, arguments.pairs)
    )
    if arguments.data is not None:
        report = run(
            arguments.model,
            arguments.data,
            sequences=2048 if arguments.sequences is None else arguments.sequences,
            length=arguments.length or None,
            device=arguments.device,
        )
        if not arguments.json:
            console.table(("held out", arguments.model), score_rows(report))
    if paradigms is not None:
        found = minimal_pairs.score_paradigms(
            load(arguments.model, device=arguments.device), paradigms
        )
        report["blimp"] = asdict(found)
        if not arguments.json:
            console.table(minimal_pairs.COLUMNS, found.rows())
    if arguments.json:
        console.print_json(report)
    console.ending(
        None,
        (
            "finetune",
            arguments.model,
            "--task",
            "table",
            "--data",
            "TABLE.csv",
            "--out",
            "CLASSIFIER",
        ),
    )
    return 0


@dataclass
class CompareArguments:
    """Show runs in one table: parameters, tokens, speed and last held-out scores, and the settings
    that differ.

    For fine-tuning runs, the table has a row for each task and a column for each run.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders, all of pretraining or all of fine-tuning."""
    data: Path | None = None
    """Score all pretraining runs again, on the held-out part of this folder written by litebert
    prepare.
    """
    page: Path | None = None
    """Also write this page, with the held-out curves of the pretraining runs against steps, tokens,
    FLOPs and time.
    """
    device: str = "auto"
    """Where --data is computed: auto, cpu, cuda, cuda:N, or mps on a Mac."""
    markdown: bool = False
    """Print the table as GitHub's Markdown."""
    json: Json = False


def compare(words: list[str]) -> int:
    """litebert compare RUN..."""
    arguments = console.parse(CompareArguments, words, "compare")
    with console.loading():
        from litebert.analysis import compare as runs
        from litebert.analysis import compare_tasks as tasks
        from litebert.analysis.curves import charts, points
        from litebert.analysis.differences import parts, short_names
        from litebert.analysis.report import write

    if arguments.json and arguments.markdown:
        raise ConfigError(
            "--json and --markdown are two formats of one table; give only one of them"
        )
    if not arguments.runs:
        raise RunError("name the folder of at least one run")
    required = arguments.data is not None or arguments.device == "auto"
    require(
        required, "--device says where --data is computed; give --data too, or leave --device out"
    )
    rows: Sequence[Any]
    finetuned = tasks.finetunings(Path(arguments.runs[0]))
    if finetuned and arguments.page is not None:
        raise RunError("--page draws pretraining runs; leave it out for fine-tuning runs")
    if arguments.page is not None:
        check_output(arguments.page, "--page")
    if finetuned and arguments.data is not None:
        raise RunError(
            "--data scores pretraining runs; leave it out for fine-tuning runs, and see "
            "litebert score"
        )
    with progress.task("reading the runs"):
        if finetuned:
            rows = tasks.compare_tasks(arguments.runs)
            shown, settings, remarks, keys = (
                tasks.task_table(rows),
                tasks.task_differences(rows),
                [],
                2,
            )
        else:
            rows = runs.compare(arguments.runs, arguments.data, arguments.device)
            shown, settings, remarks, keys = (
                runs.table(rows),
                runs.settings_table(rows),
                runs.differences(rows),
                1,
            )
    if arguments.json:
        differing = [setting for setting, *_ in settings.rows]
        console.print_json([{**asdict(row), "differing": differing} for row in rows])
    elif arguments.markdown:
        console.print_markdown(shown.columns, shown.rows, shown.note)
        if settings.rows:
            console.show("")
            console.print_markdown(
                settings.columns, settings.rows, "The settings in which the runs differ."
            )
    else:
        width = console.width()
        for part in parts(shown, width, keys):
            console.table(part.columns, part.rows)
        console.show(shown.note)
        for part in parts(settings, width) if settings.rows else ():
            console.table(part.columns, part.rows, title=settings.title)
    for remark in remarks:
        log.warning(remark)
    if arguments.page is not None:
        details = [settings] if settings.rows else []
        lead = " ".join(f"{remark[0].upper()}{remark[1:]}." for remark in remarks)
        named = dict(
            zip(short_names(arguments.runs), map(points, map(Path, arguments.runs)), strict=True)
        )
        write(
            arguments.page,
            "Runs side by side",
            lead,
            [replace(shown, title="Scores and costs"), *charts(named), *details],
        )
        console.say(f"wrote {arguments.page}")
    if finetuned:
        first = Path(arguments.runs[0])
        seeds = sorted(first.glob("seed-*/finetune.json"))  # of which one answers
        console.ending(None, ("predict", seeds[0].parent if seeds else first, "--input", "FILE"))
    else:
        console.ending(
            None,
            (
                "finetune",
                arguments.runs[0],
                "--task",
                "table",
                "--data",
                "TABLE.csv",
                "--out",
                "CLASSIFIER",
            ),
        )
    return 0


@dataclass
class ConvertArguments:
    """Convert a model folder or an original TensorFlow checkpoint to Hugging Face or litebert; or
    give a model more positions and windows.

    For longer texts, --positions 4096 stretches the positions, and --window 256 lets most layers
    attend to their neighbourhood only, so that time and memory hardly grow with the square of the
    length. Train the new model further at that length: litebert pretrain --from.
    """

    source: ModelPath
    destination: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DESTINATION")]
    """Folder to write."""
    to: str | None = None
    """The format to write, by a name in `FORMATS`: hf or litebert. Needed, except with the options
    for longer texts and for smaller models, which write litebert."""
    head: HeadName | None = None
    """To Hugging Face: the class to write, by default the one that holds most (mlm of a model
    trained with rtd is its generator). From Hugging Face or TensorFlow: what the classifier is for,
    if config.json does not say."""
    tokenizer: Path | None = None
    """The tokenizer of a SOURCE that lacks one, or whose tokenizer cannot be read: a folder,
    *.model, vocab.txt or tokenizer.json. It is written with the model."""
    positions: int | None = None
    """Longest text in tokens. Learned positions are repeated, rotary ones get a larger base."""
    window: int | None = None
    """Tokens that a token of a windowed layer reads, half of them on each side; 0 for no
    windows."""
    global_every: int | None = None
    """With a window, one layer in so many reads the whole text, beginning with the first; 0 for
    none, by default 3."""
    global_tokens: int | None = None
    """With a window, so many tokens at the beginning of a text, [CLS] first, read all of it in
    every layer and are read by all; 0 by default."""
    share: Sharing | None = None
    """Make the model smaller (docs/distillation.md): what its layers shall share, as in
    encoder.sharing. Blocks that become one are merged."""
    groups: int = 1
    """With --share groups, the number of blocks."""
    layers: int | None = None
    """Make the model smaller: the number of its layers."""
    embedding_size: int | None = None
    """Make the model smaller: the width of its embeddings, which are factorised by a truncated
    singular value decomposition."""
    merge: Literal["average", "first", "middle", "last"] = "average"
    """How blocks are merged: their mean, or the first, middle or last block."""
    hidden_size: int | None = None
    """New hidden size, a multiple of the head size. Keeps the heads and features that matter most
    on --data.
    """
    intermediate_size: int | None = None
    """New inner width of the feed-forward blocks. Keeps the units that matter most on --data."""
    data: Path | None = None
    """Score the model before and after it was made smaller on the held-out text of this folder.
    What matters to a narrower one is measured on its training text."""


def convert(words: list[str]) -> int:
    """litebert convert SRC DST --to hf|litebert [--head mlm] [--share all --embedding-size 128]"""
    arguments = console.parse(ConvertArguments, words, "convert")
    with console.loading():
        from litebert.interop import convert as run
        from litebert.interop.models import config_of
        from litebert.interop.narrowing import widths
        from litebert.interop.shrinking import Shrinking
        from litebert.train.evaluate import evaluate as score
        from litebert.train.importance import measured_importance

    longer = {
        name: getattr(arguments, name)
        for name in ("positions", "window", "global_every", "global_tokens")
    }
    stretches = any(value is not None for value in longer.values())
    asked = (
        "share",
        "groups",
        "layers",
        "embedding_size",
        "merge",
        "hidden_size",
        "intermediate_size",
    )
    sizes = {name: getattr(arguments, name) for name in asked}
    measure = (
        None
        if arguments.data is None
        else partial(
            measured_importance, arguments.source, arguments.data, tokenizer=arguments.tokenizer
        )
    )
    shrinking = Shrinking(**sizes, importance=measure)
    to = arguments.to or ("litebert" if shrinking.asked or stretches else None)
    if to is None:
        raise ConfigError(
            "nothing says what to convert to; give --to hf or --to litebert, or see --help"
        )
    if arguments.data is not None and not shrinking.asked:
        raise ConfigError("--data scores a model before and after it is made smaller; leave it out")
    read = all(
        not Path(arguments.source, name).is_file() for name in ("recipe.json", "finetune.json")
    )
    told = arguments.head is None or to != "litebert" or read
    require(
        told,
        f"--head is of Hugging Face folders, and {arguments.source} has its own; leave --head out",
    )
    if shrinking.narrows:
        widths(
            config_of(arguments.source).encoder,
            arguments.source,
            shrinking.hidden_size,
            shrinking.intermediate_size,
        )
    before = None
    if arguments.data is not None:  # before anything is made, for it may find a mistake
        before = score(arguments.source, arguments.data, tokenizer=arguments.tokenizer)
    done = run(
        arguments.source,
        arguments.destination,
        to=to,
        head=arguments.head,
        shrinking=shrinking,
        tokenizer=arguments.tokenizer,
        **longer,
    )
    for note in done.notes:
        log.warning(note)
    if done.shrunk is not None:
        rows = done.shrunk.rows()
        if arguments.data is not None and before is not None:
            after = score(arguments.destination, arguments.data)
            rows += [
                (f"held-out {name.replace('_', ' ')}", f"{before[name]:.3f} -> {after[name]:.3f}")
                for name in after
                if name.endswith("_loss") and name in before
            ]
        console.table(("made smaller", Path(arguments.destination).name), rows)
    place = str(Path(arguments.destination).resolve())
    opened = (
        f"transformers.AutoModel.from_pretrained({place!r})"
        if to == "hf"
        else f"litebert.load({place!r})"
    )
    following: list[Sequence[object] | str] = [f"in Python, {opened}"]
    changed = stretches or done.shrunk is not None
    tuned = Path(arguments.destination, "task.json").is_file() or (
        done.shrunk is not None and done.shrunk.loaded.task
    )
    if changed and not tuned:
        length = () if arguments.positions is None else ("--sequences.length", arguments.positions)
        teacher = () if done.shrunk is None or stretches else ("--teacher", arguments.source)
        rest = ("--data", arguments.data or "DATA", "--out", "RUN", *length)
        following.insert(0, ("pretrain", "--from", arguments.destination, *teacher, *rest))
    console.ending(arguments.destination, *following)
    return 0


@dataclass
class QuickstartArguments:
    """Go from raw text to a pretrained model, held-out scores and a report, in minutes on two CPU
    cores.
    """

    out: Path = Path("quickstart")
    """Folder to write; the same command again continues."""
    text: tuple[str, ...] = ("python-docs",)
    """Sources of text, as in litebert prepare."""
    language: str = "en"
    """Language of the text, for sentence boundaries, as in litebert prepare."""
    vocab_size: int | None = None
    """Number of pieces of the tokenizer; by default 8192, or as many as a smaller text allows."""
    budget: str = "4m"
    """Budget of pretraining, as a time, steps or tokens, such as 30m, 5000 steps or 300M tokens."""
    blimp: str | None = None
    """Also score good and bad sentences: a file or folder of JSON Lines, as in litebert
    evaluate."""


def quickstart(words: list[str]) -> int:
    """litebert quickstart"""
    arguments = console.parse(QuickstartArguments, words, "quickstart")
    with console.loading():
        from litebert.studies.quickstart import quickstart as run

    keep_freed_memory()
    return run(**vars(arguments), show=console.table, program=console.program())
