"""Model cards: the `README.md` of a model folder, with the metadata that the Hugging Face Hub
reads.

All of a card comes from what the run recorded, and what is not known, such as the license, is left
out. Of a path only the last part is named, so that a card tells nothing about the machine it was
written on. Conversion keeps the card of the source, and writes only its end again, which is about
the files of the folder.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from litebert.base.errors import ModelError
from litebert.base.json_reader import parse_json, read_json, read_regular
from litebert.base.storage import hash_fault, newest_whole
from litebert.config import cost
from litebert.hub import find_origin, is_hub_name, parse_name
from litebert.interop.loaded import LoadedModel

CARD = "README.md"
_OWN_END = "<!-- litebert: what follows is about the files in this folder -->"
_FRONT = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)
_PIPELINES = {
    "sequence": "text-classification",
    "tokens": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
    "backbone": "feature-extraction",
    "discriminator": "feature-extraction",
}
"""The Hub's name of what a head does; `fill-mask` for the others."""
_KINDS = {
    "sequence": "reads a text, or a pair of texts, and answers with a label or a number",
    "tokens": "gives each word of a sentence a label",
    "span": "answers a question with a span of a given text",
    "choice": "chooses one of several answers to a question about a given text",
    "backbone": "gives a text a vector; the cosine of two vectors shows how similar their "
    "texts are",
}
_INPUTS = {
    "sequence": '"A text to classify."',
    "tokens": '["Some", "words", "to", "label"]',
    "span": '("Who wrote it?", "Ada wrote it.")',
    "choice": '("Ada wrote it.", "Who wrote it?", ["Ada did", "Bob did", "Eve did", "nobody did"])',
    "backbone": '("A first text.", "A second text.")',
}
_FIELDS = (
    *("length", "epochs", "steps", "dropout", "head_dropout", "layer_decay"),
    *("train.batch", "train.seed", "train.precision", "train.optimizer.name"),
    *("train.optimizer.learning_rate", "train.optimizer.weight_decay"),
    *("train.schedule.name", "train.schedule.warmup"),
)


# --------------------------------------------------------------------- what a run says of its model


def make_finetuned_card(
    kind: str,
    identity: Mapping[str, Any],
    sizes: Mapping[str, tuple[int, int]],
    scores: Mapping[str, float],
    dev: Sequence[str],
    restarted: bool = False,
    baseline: Mapping[str, Any] | None = None,
    standing: str = "",
) -> str:
    """The card of a fine-tuned model, without its end.

    `sizes` are the examples and tokens of each part. `dev` names the parts it was scored on; the
    first chose the weights. A `restarted` run learned at a third of the rate, after a first run
    that gave one answer to everything. `baseline` is that of scores.json, and `standing` says which
    differences are chance.
    """
    from huggingface_hub import EvalResult

    from litebert.recipes.files import is_recipe_name  # late, as answers need none

    task, source, metric = (identity[key] for key in ("task", "model", "metric"))
    files = {part: [Path(file).name for file in names] for part, names in identity["files"].items()}
    base, revision = _name_source(source), identity.get("model_revision")
    name, asked = f"{base} fine-tuned on {task}", _pipeline(kind, True)
    front = _front(
        base_model=base if "/" in base else None,  # a name of the Hub, and no local one
        base_model_revision=revision,
        metrics=[metric],
        model_name=name,
        eval_results=[
            EvalResult(asked, task, f"{task}, {dev[0]} part", score, round(value, 4))
            for score, value in scores.items()
            if math.isfinite(value)
        ],
    )
    start = f"the untrained network of the recipe {base}" if is_recipe_name(source) else f"`{base}`"
    if revision:
        start += f" of the Hugging Face Hub, at commit `{revision}`"
    parts = [
        (part, ", ".join(files.get(part, [])) or "held out", f"{examples:,}", f"{tokens:,}")
        for part, (examples, tokens) in sizes.items()
    ]
    config = _flat(identity["config"])
    config["epochs" if config.get("steps") else "steps"] = None  # which is not what ended it
    fields = _list_set((field, config.get(field)) for field in _FIELDS)
    again = (
        "The first run gave one answer to everything; this one learned at a third of the rate "
        "above.\n\n"
    )
    beside = baseline["scores"] if baseline else {}
    columns = ("score", "model", "baseline") if baseline else ("score", "value")
    rows = [
        (
            score,
            f"{value:.4g}",
            *([f"{beside[score]:.4g}" if score in beside else "-"] if baseline else []),
        )
        for score, value in scores.items()
    ]
    learned = "\nThe baseline learned from the same rows: "
    note = f"{learned}{_clean(baseline['name'])}.\n" if baseline else ""
    return front + (
        f"# {_clean(name)}\n\nA model that {_KINDS[kind]}. It started from {_clean(start)} and was "
        "fine-tuned with litebert.\n\n## "
        f"Data\n\n{_table(('part', 'files', 'examples', 'tokens'), parts)}\n## "
        f"Training\n\n{_table(('setting', 'value'), fields)}\n{again if restarted else ''}## "
        f"Scores\n\n{_table(columns, rows)}{note}\n`{metric}` on {sizes[dev[0]][0]:,} examples of "
        f"the part `{dev[0]}` chose the weights, so a new sample of the same kind will score a "
        f"little lower. {standing}\n\n## Limits\n\n- It reads {config['length']} tokens at most; "
        "what is longer is truncated or read in parts.\n- It was not tested on text of other "
        "kinds, other languages or another time than the data above.\n- It repeats the errors and "
        "the bias of its data.\n"
    )


def _pipeline(head: str, compares: bool) -> str:
    """The Hub's name of what a head does; the states of a model that compares texts are vectors."""
    compared = compares and head == "backbone"
    return "sentence-similarity" if compared else _PIPELINES.get(head, "fill-mask")


def _make_pretrained_card(loaded: LoadedModel) -> str:
    config, run, folder = loaded.config, _read(loaded.path / "run.json"), loaded.path
    newest, _ = newest_whole(folder / "checkpoints", lambda path: hash_fault(path, "state.json"))
    state = _read(newest / "state.json") if newest else {}
    named, language = _list_sources(run)
    base = str(run.get("from", ""))
    front = _front(
        datasets=[name.removeprefix("hf:") for name in named if name.startswith("hf:")] or None,
        language=language,
        base_model=_name_source(base) if is_hub_name(base) else None,
        base_model_revision=run.get("from_revision"),
    )
    text = [f"# {_clean(config.name)}\n"]
    shape, count = config.encoder, sum(cost.encoder_parameters(config.encoder).values())
    text.append(
        f"A pretrained encoder of text with {count:,} parameters: {shape.layers} layers of hidden "
        f"size {shape.hidden_size}, {shape.vocab_size:,} tokens in the vocabulary.\n"
    )
    if run:
        mixture = ", ".join(
            f"{_last(str(entry.get('data', '')))} ({entry['share']:.1%} of the sequences)"
            for entry in _list_sets(run)
            if isinstance(entry.get("share"), float)
        )
        data = mixture or ", ".join(named)
        data = data or _last(str(run.get("data", ""))) or "not recorded"
        tokens = f"{state['tokens']:,}" if isinstance(state.get("tokens"), int) else "not recorded"
        text.append(f"## Data\n\n{_clean(data)}. Tokens trained on: {tokens}.\n")
        train, table = config.train, str(run.get("table_from", ""))
        settings = [
            ("steps", run.get("steps")),
            ("objectives", " + ".join(config.objectives)),
            ("sequence length", str(config.sequences.length)),
            ("batch", train.batch),
            ("optimizer", train.optimizer.name),
            ("seed", str(train.seed)),
            ("learning rate", str(train.optimizer.learning_rate)),
            ("masked", f"{config.masking.rate:.0%} by {config.masking.unit}"),
            ("token table", f"started from {_name_source(table)}" if table else None),
        ]
        text.append(f"## Training\n\n{_table(('setting', 'value'), _list_set(settings))}")
        if heldout := _heldout(folder / "metrics.jsonl"):
            scores = [(name, f"{value:.4g}") for name, value in heldout.items()]
            text.append(
                "## Scores\n\nOn text that was held out of the training:\n\n"
                f"{_table(('score', 'value'), scores)}"
            )
    else:
        text.append("Its folder does not record what it was trained on.\n")
    text.append(
        f"## Limits\n\n- It reads {shape.max_positions} tokens at most; in training it saw "
        f"sequences of {config.sequences.length}.\n- It answers no questions as it stands: "
        "fine-tune it for a task.\n- It was not tested on text of other kinds or languages than "
        "its data, whose bias it repeats.\n"
    )
    return front + "\n".join(text)


def _list_sets(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    sets = run.get("sets")
    return [entry for entry in sets if isinstance(entry, dict)] if isinstance(sets, list) else []


def _list_sources(run: Mapping[str, Any]) -> tuple[list[str], str | None]:
    named: dict[str, None] = {}
    languages = set()
    folders = [entry.get("data") for entry in _list_sets(run)] or [run.get("data")]
    for folder in folders:
        index = _read(Path(str(folder)) / "index.json") if folder else {}
        settings = index["settings"] if isinstance(index.get("settings"), dict) else {}
        sources = settings.get("sources")
        for source in sources if isinstance(sources, list) else []:
            named[source if ":" in str(source) else _last(str(source))] = None
        languages.add(settings.get("language"))
    language = languages.pop() if len(languages) == 1 else None
    return list(named), language if isinstance(language, str) else None


def _list_set(settings: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [
        (name, str(value))
        for name, value in settings
        if value not in (None, "", "auto") and not (isinstance(value, (int, float)) and value < 0)
    ]


def _heldout(file: Path) -> dict[str, float]:
    """The newest held-out scores of a run; none where its log cannot be read."""
    with suppress(OSError, ValueError):
        for line in reversed(file.read_text("utf-8").splitlines()):
            with suppress(ValueError):  # a line that a kill has cut short
                if '"heldout"' in line and isinstance(row := parse_json(line), dict):
                    return {name: value for name, value in row.items() if isinstance(value, float)}
    return {}


# ----------------------------------------------------------------------------- the card of a folder


def read_card(folder: Path) -> str:
    """The card of a folder, empty where it has none that can be read."""
    try:
        return read_regular(folder / CARD, 1 << 24).decode("utf-8", errors="replace")
    except OSError:
        return ""


def make_card(
    loaded: LoadedModel,
    architecture: str = "",
    head: str = "",
    notes: Sequence[str] = (),
    **opened: Any,
) -> str:
    """The card of a model in a new folder: what its own card says, and how to open this folder,
    with the class `architecture` of `transformers` (empty in a litebert folder) and the arguments
    `opened`.
    """
    kind, about = _about(loaded)
    predicts = any(
        objective.foreign_part == "mlm" and name not in loaded.untrained
        for name, objective in loaded.config.build_objectives().items()
    )
    task = head or kind or ("mlm" if predicts else "backbone")
    compares = kind == "backbone"
    code = ["from litebert import load", "", 'model = load(".")']
    if loaded.tokenizer is None:
        code.append("print(model.model)  # the folder has no tokenizer")
    elif kind:
        pair = kind == "sequence" and loaded.task.get("pair")
        code.append(f"print(model.predict([{_PAIR if pair else _INPUTS[kind]}]))")
    else:
        code.append('print(model.encode(["A text to read."]).shape)  # texts, hidden size')
    end = [
        "In litebert, with this folder as the working directory:",
        _python(code),
    ]
    if not architecture:
        library = "litebert"
        end += [
            "`transformers` cannot open this folder. `litebert convert . --to hf --out "
            "../for-transformers` writes one that it can, if it has a class for this model."
        ]
    elif compares:
        library = "sentence-transformers"
        end += [f"In `{library}`:", _python(_SENTENCES)]
    else:
        library = "transformers"
        end += [f"In `{library}`:", _python(_foreign_code(loaded, architecture, task, opened))]
    if notes:
        end += [
            "What the conversion wrote differently:",
            "\n".join(f"- {_clean(note)}" for note in notes),
        ]
    return _join_card(about, library, _pipeline(task, compares), end)


def make_exported_card(loaded: LoadedModel, head: str, architecture: str) -> str:
    """The card of an ONNX export; `architecture` is the class of optimum that opens it."""
    code = _python(_foreign_code(loaded, architecture, head, {}, "optimum.onnxruntime"))
    end = ["With `optimum`, with this folder as the working directory:", code]
    return _join_card(_about(loaded)[1], "onnx", _pipeline(head, False), end)


def address_card(card: str, repository: str) -> str:
    """Change the end of a card so that it opens the folder by its name on the Hub."""
    about, mark, end = card.partition(_OWN_END)
    changes = {
        'load(".")': f'load("hf:{repository}")',
        '(".")': f'("{repository}")',
        '(".", ': f'("{repository}", ',
        ", with this folder as the working directory:": ":",
        "litebert convert . ": f"litebert convert hf:{repository} ",
        "this folder": "this model",
    }
    for text, named in changes.items():
        end = end.replace(text, named)
    return f"{about}{mark}{end}"


def _join_card(about: str, library: str, pipeline: str, end: Sequence[str]) -> str:
    about = _set_metadata(about, {"library_name": library, "pipeline_tag": pipeline})
    return "\n\n".join((about.rstrip("\n"), _OWN_END, "## How to use", *end)) + "\n"


def _about(loaded: LoadedModel) -> tuple[str, str]:
    kind = loaded.head if loaded.task_record else ""
    about = loaded.card.partition(_OWN_END)[0].rstrip("\n") + "\n" if loaded.card else ""
    if about or not kind:
        return kind, about or _make_pretrained_card(loaded)
    text = f"# {_clean(loaded.config.name)}\n\nA fine-tuned model that {_KINDS[kind]}. "
    return kind, f"{_front()}{text}Its folder does not record what it was trained on.\n"


_PAIR = '("A first text.", "A second text.")'
_SENTENCES = (
    "from sentence_transformers import SentenceTransformer",
    "",
    'model = SentenceTransformer(".")',
    'vectors = model.encode(["A first text.", "A second text."])',
    "print(model.similarity(vectors, vectors))",
)


def _foreign_code(
    loaded: LoadedModel,
    architecture: str,
    head: str,
    opened: Mapping[str, Any],
    home: str = "transformers",
) -> list[str]:
    further = "".join(f", {name}={value!r}" for name, value in opened.items())
    model = f'model = {architecture}.from_pretrained("."{further})'
    if loaded.tokenizer is None:
        return [f"from {home} import {architecture}", "", model, "print(model.config)"]
    texts, call = '"A text to read."', "model(**inputs)"
    if head in ("mlm", "pretraining"):
        texts = 'f"A text with a {tokenizer.mask_token} in it."'
    elif head == "span":
        texts = '"Who wrote it?", "Ada wrote it."'
    elif head == "choice":
        texts = '["Ada wrote it."] * 2, ["Who? Ada", "Who? Bob"], padding=True'
        call = "model(**{name: rows[None] for name, rows in inputs.items()})"
    elif head == "sequence" and loaded.task.get("pair"):
        texts = _PAIR.strip("()")
        if loaded.task_record.get("pooling") == "apart":  # a row each
            texts = f"[{texts}], padding=True"
    imports = f"from {home} import {architecture}\nfrom transformers import AutoTokenizer"
    return [
        f"from transformers import AutoTokenizer, {architecture}"
        if home == "transformers"
        else imports,
        "",
        'tokenizer = AutoTokenizer.from_pretrained(".")',
        model,
        f'inputs = tokenizer({texts}, truncation=True, return_tensors="pt")',
        f"print({call})",
    ]


def _python(lines: Sequence[str]) -> str:
    return "\n".join(("```python", *lines, "```"))


# -------------------------------------------------------------------------------- Markdown and YAML


def _front(**facts: Any) -> str:
    from huggingface_hub import ModelCardData

    return f"---\n{ModelCardData(tags=['litebert'], **facts).to_yaml()}\n---\n\n"


def _set_metadata(card: str, facts: Mapping[str, str]) -> str:
    front = _FRONT.match(card)
    others = front[1] if front else ""
    for key in facts:
        others = re.sub(rf"^{key}:.*\n", "", others, flags=re.MULTILINE)
    lines = "".join(f"{key}: {value}\n" for key, value in facts.items())
    return f"---\n{lines}{others}---\n{card[front.end() :] if front else card}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        [_clean(cell).replace("|", "\\|") for cell in row]
        for row in (columns, ["---"] * len(columns), *rows)
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else "Not recorded.\n"


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _last(name: str) -> str:
    """The last part of a path; nobody's card names folders of their machine."""
    return os.path.basename(os.path.abspath(name)) if name else ""


def _name_source(source: str) -> str:
    if is_hub_name(source):
        return parse_name(source).repository
    origin = find_origin(Path(source))
    return _last(source) if origin is None else origin.repository


def _flat(fields: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(fields, Mapping):
        return {path[:-1]: fields} if path else {}
    return {
        key: value
        for name, inner in fields.items()
        for key, value in _flat(inner, f"{path}{name}.").items()
    }


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, since a card is no reason to fail."""
    try:
        return read_json(path, ModelError)
    except ModelError:
        return {}
