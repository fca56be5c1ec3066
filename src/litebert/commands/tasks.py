"""`litebert finetune` and `export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from litebert.base import launch
from litebert.base.errors import ConfigError, require
from litebert.base.machine import keep_freed_memory
from litebert.commands import console
from litebert.commands.console import DeviceName, Json, ModelPath, ModelTokenizer, VectorSize
from litebert.commands.options import (
    Arg,
    Short,
    ShortForms,
    list_changes,
    require_beside,
    spell_name,
)
from litebert.commands.task_options import (
    READING,
    LabeledFiles,
    collect_options,
    join_source,
    parse_with_task,
    read_unlabeled,
)
from litebert.config.finetuning import FinetuneConfig, HeadName
from litebert.hub import PREFIX
from litebert.recipes import HUB_NAMES, RECIPES
from litebert.recipes.files import is_recipe_name

if TYPE_CHECKING:
    from litebert.finetuning.results import Finetuned
    from litebert.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class FinetuneArguments:
    """Fine-tune a model on a task. The same command again continues; Ctrl-C saves and stops."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert finetune hf:albert/albert-base-v2 --data train.csv --out classifier",
        "litebert finetune RUN --task squad --data SQUAD --out answers --epochs 2",
        "litebert finetune MODEL --data train.csv --label-column topic --out topics",
    )

    common: ClassVar[str] = (
        "task dev test text-column pair-column label-column separator delimiter word-column "
        "tag-column epochs lr batch-size max-length seeds early-exits teacher overwrite "
        "device"
    )
    model: ModelPath
    task: str = "table"
    """table, tagging, pairs, choices, squad, race, rerank, or one of GLUE; each has its options."""
    data: tuple[str, ...]
    """Training files, or the folder of a benchmark."""
    out: Path
    """Folder of the run."""
    preset: str | None = None
    """Hyper-parameters of a paper, such as albert or electra; by default litebert chooses."""
    from_scratch: bool = False
    """Train the network of the recipe that MODEL names, with --tokenizer."""
    tokenizer: ModelTokenizer = None
    teacher: Annotated[tuple[str, ...], Arg("MODEL")] = ()
    """Models to learn from, or the word baseline."""
    unlabeled: tuple[str, ...] = ()
    """Files of further texts, which the teacher answers."""
    overwrite: bool = False
    """Delete the run in --out and start again."""
    device: DeviceName = "auto"
    json: Json = False
    short: Short = field(default_factory=ShortForms)


def finetune(words: list[str]) -> int:
    arguments, options, rest = _parse_finetune(words)
    with console.loading():
        from litebert.analysis.run_report import write_run
        from litebert.finetuning.run import finetune_seeds, list_folders
        from litebert.finetuning.setup import change_config
        from litebert.recipes.finetuning import finetune_preset
        from litebert.tasks.registry import open_task
        from litebert.train import metrics
        from litebert.train.trackers import keep_artifacts

    keep_freed_memory()
    console.refuse_lessons(rest, arguments.teacher or None)
    is_recipe = is_recipe_name(arguments.model)
    require(
        is_recipe or not arguments.from_scratch,
        f"--from-scratch trains the network of a recipe, and {arguments.model} is none; leave it "
        "out",
    )
    published = HUB_NAMES.get(arguments.model)
    require(
        arguments.from_scratch or arguments.model not in RECIPES,
        f"{arguments.model} is the recipe of an untrained network; "
        + (f"for the published weights give {PREFIX}{published}, and " if published else "")
        + "to train it without pretraining add --from-scratch",
    )

    def change(default: FinetuneConfig) -> FinetuneConfig:
        if not rest:
            return default
        verb = f"finetune {arguments.model}"
        config = console.parse(FinetuneConfig, rest, verb, default=default)
        require(
            config.early_exits or config.early_exits_max_drop == default.early_exits_max_drop,
            "--early-exits-max-drop is what early exits may cost; give --early-exits too",
        )
        return config

    asked = change(FinetuneConfig())  # an unknown option is told before a fault of the files
    remarks: list[str] = []
    with console.group() as ranks:
        with metrics.collect_remarks(remarks):
            files = open_task(arguments.task, join_source(arguments.data), **options)
            if arguments.teacher:
                files = files.with_task(files.task.with_teacher())
            task = files.task
            files = files.with_unlabeled(read_unlabeled(task, arguments.unlabeled, options))
        files.remarks = remarks
        config: FinetuneConfig | Callable[[FinetuneConfig], FinetuneConfig] = change
        if arguments.preset is not None:
            config = change_config(finetune_preset(arguments.preset, task.point), change)
        seeds, out = asked.seeds, arguments.out
        if arguments.overwrite:
            ranks.decide(lambda: console.confirm_overwrite(*list_folders(out, seeds)))
        runs = finetune_seeds(
            arguments.model,
            files,
            out,
            config,
            tokenizer=arguments.tokenizer,
            teacher=arguments.teacher,
            overwrite=arguments.overwrite,
            device=arguments.device,
        )
        for run in runs if ranks.main else ():
            write_run(run.folder)
            keep_artifacts(run.folder, asked.tracker, run.outcome.step)
    last = runs[-1].outcome
    if not last.finished or len(runs) < seeds:
        console.say("saved; run the same command to continue")
        return 128 + (last.signal or 0)
    if not launch.main_process():  # the others may have no run folder
        return 0
    _show_finetuned(arguments, asked, task, runs)
    folder, (inputs, answers) = runs[0].folder, task.predicted_files
    console.ending(
        f"{out}; its curves are in {folder / 'report.html'}",
        ("predict", folder, "--input", inputs, "--out", answers),
    )
    return 0


def _parse_finetune(words: list[str]) -> tuple[FinetuneArguments, dict[str, Any], list[str]]:
    """Read the options of the verb and of its task.

    Returns:
        The arguments of the verb; the options of the task that are set; and the other words, which
        are fields of the recipe.
    """
    option_names = {word.partition("=")[0] for word in words}
    table = next((word for word in words[:1] if Path(word).is_file()), "")
    require(
        not table or "--data" in option_names or is_recipe_name(table),
        f"{table} is a file and no model; litebert fit {table} makes the best model of a table, "
        f"and litebert finetune MODEL --data {table} --out PATH trains one network",
    )
    arguments, options, rest = parse_with_task(FinetuneArguments, words, "finetune")
    if not all(arguments.data or [""]):
        raise ConfigError("data is empty; name the folder of the benchmark, or the training files")
    return arguments, collect_options(options, option_names), rest


def _show_finetuned(
    arguments: FinetuneArguments, config: FinetuneConfig, task: Task[Any], runs: Sequence[Finetuned]
) -> None:
    from litebert.analysis.run_report import make_exit_tables
    from litebert.judge.seeds import describe_noise, summarize
    from litebert.tasks.scoring import name_metric

    scores, metric = [run.scores for run in runs], name_metric(task)
    summary, baseline = summarize(scores), runs[0].baseline
    baseline_scores = {} if baseline is None else baseline.scores
    if arguments.json:
        console.print_json(
            {
                "run": str(arguments.out),
                "metric": metric,
                "scores": scores,
                "seeds": summary,
                "restarted": [number for number, run in enumerate(runs) if run.restarted],
                "collapsed": [number for number, run in enumerate(runs) if run.collapsed],
                **({} if baseline is None else {"baseline": asdict(baseline)}),
                **({"exits": [run.exits for run in runs]} if config.early_exits else {}),
            }
        )
        return
    if config.seeds == 1:
        single = {name: (value,) for name, value in scores[0].items()}
        console.table(*_with_baseline(("dev", arguments.out.name), single, baseline_scores))
        for title, columns, cells in make_exit_tables(runs[0].folder):
            console.table(columns, cells, title)
    else:
        several = {name: tuple(figures.values()) for name, figures in summary.items()}
        columns = ("dev", "median", "mean", "standard deviation", "lowest", "highest")
        console.table(*_with_baseline(columns, several, baseline_scores))
        full, values = 100.0 if task.percent else 1.0, [score[metric] for score in scores]
        console.say(describe_noise(metric, values, runs[0].dev_rows, full))
    if baseline is not None:
        console.say(f"baseline: {baseline.note}")


def _with_baseline(
    columns: tuple[str, ...], scores: Mapping[str, tuple[float, ...]], baseline: Mapping[str, float]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Add a last column for the baseline, where there is one."""
    rows = [(name, *(f"{value:.4g}" for value in values)) for name, values in scores.items()]
    if not baseline:
        return columns, rows
    last = [f"{baseline[row[0]]:.4g}" if row[0] in baseline else "-" for row in rows]
    return (*columns, "baseline"), [(*row, cell) for row, cell in zip(rows, last, strict=True)]


@dataclass(kw_only=True)
class ExportArguments(LabeledFiles):
    """Write a folder that answers on CPUs, with weights in 8 bits that processes share.

    --format onnx writes a graph for ONNX Runtime and OpenVINO, checked against PyTorch.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert export classifier --data test.csv --out exported",
        "litebert export classifier --format onnx --out graph",
        "litebert export hf:sentence-transformers/all-MiniLM-L6-v2 --static --out table",
    )

    common: ClassVar[str] = (
        "dtype format data max-drop static head vector-size text-column label-column json"
    )

    out: Path
    """Folder to write."""
    dtype: Literal["float32", "bfloat16", "int8"] | None = None
    """Type of the weights: int8 by default, and float32 of ONNX."""
    format: Literal["litebert", "onnx"] = "litebert"
    """What opens the folder: litebert, or what reads ONNX."""
    head: HeadName | None = None
    """Head to export, by default the model's own; backbone gives states."""
    static: bool = False
    """Write a table of token vectors, which NumPy alone can read."""
    data: tuple[str, ...] = ()
    """Labeled files to score the model on before and after."""
    max_drop: float | None = None
    """Write nothing if the score falls by more points; by default 0.5."""
    vector_size: VectorSize = None
    json: Json = False


def _export_static(arguments: ExportArguments) -> int:
    changes = list_changes(arguments)
    for name in ("head", "dtype", "format", "data", "max_drop", *READING):
        option = spell_name(name, changes.get(name))
        require(
            name not in changes,
            f"--static writes token vectors, which take no {option}; leave one out",
        )
    with console.loading():
        from litebert.answer.static import export_static

    out = export_static(arguments.model, arguments.out, size=arguments.vector_size)
    if arguments.json:
        console.print_json({"path": str(out), "static": True})
        return 0
    console.ending(out, f"in Python, litebert.load_static({str(Path(out).resolve())!r})")
    return 0


def export(words: list[str]) -> int:
    arguments = console.parse(ExportArguments, words, "export")
    if arguments.static:
        return _export_static(arguments)
    with console.loading():
        from litebert.answer.export import export as run

    require_beside("data", arguments, "max_drop", *READING)
    done = run(
        arguments.model,
        arguments.out,
        format=arguments.format,
        dtype=arguments.dtype,
        head=arguments.head,
        data=join_source(arguments.data),
        vector_size=arguments.vector_size,
        **({} if arguments.max_drop is None else {"max_drop": arguments.max_drop}),
        **arguments.reading_options(),
    )
    drop = done.drop
    console.warn(*done.notes)
    if done.dtype != "float32" and drop is None:
        console.warn(
            f"the scores of the {done.dtype} model were not measured; give labeled files with "
            "--data"
        )
    if arguments.json:
        scores = None if drop is None else {**asdict(drop), "points": drop.points}
        console.print_json({**asdict(done), "path": str(done.path), "drop": scores})
        return 0
    rows = [("weights", f"{done.dtype}, {done.size / 1e6:.1f} MB")]
    if done.difference is not None:
        rows = [("head", str(done.head)), *rows]
        rows += [("largest difference from PyTorch", f"{done.difference:.2g}")]
    if drop is not None:
        rows += [
            (f"{drop.metric} in float32", f"{drop.before:.2f}"),
            (f"{drop.metric} in {done.dtype}", f"{drop.after:.2f}"),
        ]
    console.table(("exported", done.path.name), rows)
    path = str(Path(arguments.out).resolve())
    opener = f"optimum.onnxruntime.{done.opened_by}.from_pretrained"
    opener = opener if done.opened_by else "litebert.load"
    console.ending(arguments.out, ("serve", arguments.out), f"in Python, {opener}({path!r})")
    return 0
