"""`litebert evaluate`: the scores of any model, on prepared text or on labeled files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from litebert.base.errors import ConfigError, require
from litebert.base.storage import write_json
from litebert.commands import console
from litebert.commands.console import DataPath, Json, VectorSize
from litebert.commands.engines import AnswerOptions
from litebert.commands.options import Arg, require_beside
from litebert.commands.task_options import READING, LabeledFiles
from litebert.remote.names import shorten
from litebert.remote.output import check_output_file, open_output_file

if TYPE_CHECKING:
    from litebert.answer.evaluation import Scored
    from litebert.answer.retrieval import RetrievalScores

MOST_COLUMNS = 10
"""Classes of a confusion matrix that is printed, at most."""


@dataclass(kw_only=True)
class EvaluateArguments(LabeledFiles, AnswerOptions):
    """Score a model: a fine-tuned one on labeled files, a pretrained one on prepared text with
    fixed masks, or one of sentence vectors on retrieval.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert evaluate classifier --data test.csv --mistakes 10",
        "litebert evaluate run --shards data",
        "litebert evaluate MODEL --retrieval BEIR/scifact",
    )

    common: ClassVar[str] = (
        "data shards blimp retrieval text-column label-column predictions mistakes slice-columns "
        "min-precision dtype device out json"
    )

    shards: DataPath | None = None
    """Folder of litebert prepare with the tokenizer of the model."""
    data: tuple[str, ...] = ()
    """Labeled files, or a folder of them."""
    predictions: DataPath | None = None
    """Answers of litebert predict to score, instead of computing them."""
    blimp: Path | None = None
    """Pairs of a good and a bad sentence, in JSON Lines or a folder of them."""
    retrieval: Annotated[str | None, Arg("FOLDER")] = None
    """Documents, queries and judgments in the layout of BEIR."""
    qrels: Annotated[str | None, Arg("NAME")] = None
    """Judgments of --retrieval, such as dev; by default test, or the only ones."""
    vector_size: VectorSize = None
    top: int | None = None
    """Documents of each query that a reranker ranks; by default 100."""
    retriever: Annotated[str | None, Arg("MODEL")] = None
    """Model that finds the documents for a reranker; by default BM25."""
    max_pairs: int | None = None
    """Most pairs of each paradigm of --blimp."""
    sequences: int | None = None
    """Most sequences of --shards; by default 2,048."""
    length: int | None = None
    """Tokens of a sequence of --shards; by default as in training."""
    min_precision: float | None = None
    """Score only the answers that litebert predict would give with it."""
    mistakes: int = 0
    """Number of mistakes to list, the surest first."""
    slice_columns: Annotated[tuple[str, ...], Arg("COLUMN")] = ()
    """Columns by whose values the rows are also scored one by one."""
    out: DataPath | None = None
    """JSON file to write the report to."""
    json: Json = False


def evaluate(words: list[str]) -> int:
    arguments = console.parse(EvaluateArguments, words, "evaluate")
    _check_options(arguments)
    if arguments.retrieval is not None:
        return _evaluate_retrieval(arguments, Path(arguments.retrieval))
    with console.loading():
        from litebert.answer.evaluation import evaluate as run
        from litebert.answer.masks import minimal_pairs
        from litebert.answer.model import load

    report: dict[str, Any] = {"model": arguments.model}
    paradigms = None
    if arguments.blimp is not None:  # read first, because a mistake in a file ends the command
        paradigms = minimal_pairs.read_paradigms(arguments.blimp, arguments.max_pairs)
    if arguments.shards is not None or arguments.data or paradigms is None:
        model: Any = arguments.model
        options = arguments.reading_options()
        if arguments.data:
            model = arguments.load(arguments.model, min_precision=arguments.min_precision)
        for option in ("sequences", "length"):
            if (value := getattr(arguments, option)) is not None:
                options[option] = value
        scored = run(
            model,
            shards=_read_set(arguments.shards),
            data=arguments.data or None,
            predictions=arguments.predictions,
            mistakes=arguments.mistakes,
            slice_columns=arguments.slice_columns,
            device=arguments.device,
            **options,
        )
        measured_on = {"data": list(arguments.data)} if arguments.data else {}
        shards = {} if arguments.shards is None else {"shards": str(arguments.shards)}
        report |= {**measured_on, **shards, **asdict(scored)}
        if not arguments.json:
            _show_scores(arguments, scored)
    if paradigms is not None:
        model = load(arguments.model, device=arguments.device)
        scores = minimal_pairs.score_paradigms(model, paradigms)
        report["blimp"] = asdict(scores)
        if not arguments.json:
            console.table(minimal_pairs.COLUMNS, scores.rows())
    _write_report(arguments, report)
    if not arguments.data:
        console.ending(None, console.suggest_finetuning(arguments.model))
    return 0


def _evaluate_retrieval(arguments: EvaluateArguments, folder: Path) -> int:
    with console.loading():
        from litebert.answer.retrieval import evaluate_retrieval

    scored = evaluate_retrieval(
        arguments.load(arguments.model),
        folder,
        split=arguments.qrels,
        vector_size=arguments.vector_size,
        top=arguments.top,
        retriever=arguments.retriever,
        device=arguments.device,
    )
    report = {"model": arguments.model, "retrieval": str(folder), **asdict(scored)}
    _write_report(arguments, report)
    if not arguments.json:
        _show_retrieval(arguments, scored)
    return 0


def _write_report(arguments: EvaluateArguments, report: Mapping[str, Any]) -> None:
    if arguments.out is not None:
        with open_output_file(arguments.out) as path:
            write_json(path, report)
    if arguments.json:
        console.print_json(report)


def _show_retrieval(arguments: EvaluateArguments, scored: RetrievalScores) -> None:
    from litebert.judge.seeds import judge

    name = Path(arguments.model).name
    console.table(("score", name, *scored.list_columns()), scored.rows())
    console.say(
        f"{scored.queries:,} queries of qrels/{scored.split}.tsv, {scored.documents:,} documents"
    )
    for other, scores in scored.list_columns().items():
        both = [scores["ndcg_at_10"]], [scored.scores["ndcg_at_10"]]
        verdict = judge(*both, scored.queries)
        if verdict in ("better", "level"):
            counts = ", which counts words," if other == "BM25" else ""
            word = "better than" if verdict == "better" else "level with"
            console.say(f"{other}{counts} is {word} {name} by ndcg_at_10")


def _check_options(arguments: EvaluateArguments) -> None:
    if arguments.out is not None:
        check_output_file(arguments.out)
    if not all(arguments.data):
        raise ConfigError("data is empty; name one labeled file or more")
    require_beside("blimp", arguments, "max_pairs")
    if arguments.blimp is not None and arguments.data:
        raise ConfigError(
            "--blimp scores a pretrained model and --data a fine-tuned model; give one of them"
        )
    require_beside("retrieval", arguments, "qrels", "vector_size", "top", "retriever")
    if arguments.retrieval is None:
        require_beside("data", arguments, "engine", "dtype")
    else:
        empty = "retrieval is empty; name a folder in the layout of BEIR"
        require(arguments.retrieval != "", empty)
        others = {"shards": arguments.shards, "data": arguments.data, "blimp": arguments.blimp}
        for option, value in others.items():
            require(
                not value, f"--retrieval and --{option} are two things to score; give one of them"
            )
    if arguments.mistakes < 0:
        raise ConfigError(f"mistakes is {arguments.mistakes}; give 0 or more")
    computing = (arguments.engine, arguments.dtype, arguments.min_precision)
    require(
        arguments.predictions is None
        or (computing == (None,) * 3 and arguments.exit_confidence == "auto"),
        "--predictions are scored as they are; leave out --engine, --dtype, --exit-confidence and "
        "--min-precision",
    )
    require_beside("shards", arguments, "sequences", "length")
    scoring = "exit_confidence", "predictions", "min_precision", "mistakes", "slice_columns"
    require_beside("data", arguments, *READING, *scoring)


def _read_set(shards: str | Path | None) -> str | Path | None:
    from litebert.data.mixture import parse_weights

    if shards is not None and isinstance(weights := parse_weights([str(shards)]), dict):
        folder = shorten(next(iter(weights)))
        raise ConfigError(
            f"--shards {shorten(str(shards))} has a weight, and evaluate scores one set; give "
            f"--shards {folder}"
        )
    return shards


def _show_scores(arguments: EvaluateArguments, scored: Scored) -> None:
    from litebert.judge.seeds import compute_share_error
    from litebert.model.objectives import score_rows

    if not arguments.data:
        console.table(("held out", arguments.model), score_rows(scored.scores))
        return
    rows = [(name, f"{value:.4g}") for name, value in scored.scores.items()]
    accuracy = scored.scores.get("accuracy", math.inf)
    if scored.examples and scored.confusion is not None and accuracy <= 1:  # a share of the rows
        count = round(scored.examples * (1 if scored.coverage is None else scored.coverage))
        error = f"{accuracy:.4g} ± {compute_share_error(accuracy, count):.2g}"
        rows = [(name, error if name == "accuracy" else value) for name, value in rows]
    if scored.share is not None:
        rows.append(("share of the layers", f"{scored.share:.3f}"))
    if scored.coverage is not None:
        rows.append(("share of the rows answered", f"{scored.coverage:.3f}"))
    console.table(("score", Path(arguments.model).name), rows)
    if scored.classes:
        names = tuple(next(iter(scored.classes.values())))
        cells = [
            (name, *map(_format_figure, figures.values()))
            for name, figures in scored.classes.items()
        ]
        console.table(("class", *names), cells)
    _show_confusions(scored)
    for column, slices in scored.slices.items():
        names = ("count", *scored.scores)
        cells = [
            (value, *(_format_figure(scores[name]) if name in scores else "-" for name in names))
            for value, scores in slices.items()
        ]
        console.table((column, *names), cells)
    if scored.mistakes:
        cells = []
        for row in scored.mistakes:
            answer = (row.label, row.prediction, f"{row.probability:.3f}")
            cells.append((row.location, *answer, *row.inputs.values()))
        texts = tuple(scored.mistakes[0].inputs)
        console.table(("line", "label", "prediction", "probability", *texts), cells)


def _show_confusions(scored: Scored) -> None:
    """Print the confusion matrix, or of many classes the commonest confusions."""
    from litebert.judge.reliability import list_confusions

    labels = tuple(scored.classes)
    if scored.confusion is None or not labels:
        return
    if len(labels) <= MOST_COLUMNS:
        cells = [
            (label, *map(str, row)) for label, row in zip(labels, scored.confusion, strict=True)
        ]
        console.table(("label, answered as", *labels), cells)
        return
    confusions = list_confusions(labels, scored.confusion, MOST_COLUMNS)
    rows = [(label, answer, str(count)) for label, answer, count in confusions]
    console.table(("label", "answered as", "rows"), rows)


def _format_figure(value: float | int) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"
