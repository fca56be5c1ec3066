"""The golden runs: twenty steps of pretraining and of fine-tuning, in float32 on one CPU thread, on
made-up text.

    python tests/golden/runner.py [--out FILE | --record]

prints (or writes) JSON, for every run: its losses, the rows of its metrics.jsonl, checksums of its
weights and of the files it leaves for other programs, and, of a fine-tuned model, its answers.
There is one pretraining run of every recipe, shrunken; a few of them in `points()` are also
recorded: --record writes their losses to losses.json, which `test_golden.py` reads.

It speaks to litebert through its public face alone, so that one runner serves two versions of the
package: see `compare.py`. The vocabulary is given and not learned, so that what is pinned here is
the way from text to weights, not the training of tokenizers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

STEPS = 20
RECORDED = Path(__file__).with_name("losses.json")

SHRUNKEN: dict[str, dict[str, Any]] = {
    "encoder": {
        "hidden_size": 32,
        "embedding_size": 16,
        "heads": 4,
        "layers": 3,
        "intermediate_size": 64,
        "max_positions": 64,
    },
    "train": {"micro_batch": 3, "schedule": {"name": "tf_linear", "warmup": 5}},
}


def points() -> dict[str, dict[str, Any]]:
    """The runs by name: a recipe to start from, as `base`, and its changed fields."""
    unshared = {**SHRUNKEN["encoder"], "embedding_size": 32}
    lamb, adamw, muon = ({"name": name} for name in ("lamb", "adamw", "muon"))
    return {
        "albert-tiny": {"base": "albert-tiny"},
        "bert-tiny, shrunken": {
            "base": "bert-tiny",
            "encoder": {
                name: value for name, value in unshared.items() if name != "layers"
            },  # it grows up to its own
        },
        "albert-base, shrunken, LAMB": {
            "base": "albert-base",
            "encoder": SHRUNKEN["encoder"],
            "train": {**SHRUNKEN["train"], "optimizer": lamb},
        },
        "albert-base-v1, shrunken, AdamW": {
            "base": "albert-base-v1",
            "encoder": SHRUNKEN["encoder"],
            "train": {
                **SHRUNKEN["train"],
                "optimizer": {**adamw, "bias_correction": True, "learning_rate": 1e-3},
            },
        },
        "bert-base, shrunken, AdamW": {
            "base": "bert-base",
            "encoder": unshared,
            "train": {**SHRUNKEN["train"], "optimizer": {**adamw, "learning_rate": 1e-3}},
        },
        "bert-base, shrunken, Muon": {
            "base": "bert-base",
            "encoder": unshared,
            "train": {**SHRUNKEN["train"], "optimizer": {**muon, "learning_rate": 1e-3}},
        },
        **{
            f"{base}, shrunken, AdamW": {
                "base": base,
                "encoder": unshared,
                "rtd": {"generator_width": 0.5},
                "sbo": {"position_size": 16},
                "train": {**SHRUNKEN["train"], "optimizer": {**adamw, "learning_rate": 1e-3}},
            }
            for base in ("roberta-base", "electra-base", "spanbert-base")
        },
    }


def every_recipe() -> dict[str, dict[str, Any]]:
    """Every recipe of the package, shrunken where it is larger than the small ones; its other
    fields are its own.
    """
    from litebert.recipes import RECIPES

    runs: dict[str, dict[str, Any]] = {}
    for name, recipe in RECIPES.items():
        config = recipe()
        shape, grown = config.encoder, dict[str, Any]()
        encoder = {
            **SHRUNKEN["encoder"],
            "embedding_size": 32 if shape.embedding_size == shape.hidden_size else 16,
        }
        if shape.layers <= 8:  # those that grow do so up to their own depth
            del encoder["layers"]
        elif config.train.depth_schedule:
            grown["depth_schedule"] = []
        if config.train.length_schedule:
            grown["length_schedule"] = []
        runs[f"recipe {name}"] = {
            "base": name,
            "encoder": encoder,
            "rtd": {"generator_width": 0.5},
            "sbo": {"position_size": 16},
            "train": {"micro_batch": 3, "schedule": {"warmup": 5}, **grown},
        }
    return runs


# ------------------------------------------------------------------------------------- made-up text

_SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


def _words(draw: random.Random) -> list[str]:
    return sorted({"".join(draw.choices(_SYLLABLES, k=draw.randint(1, 3))) for _ in range(300)})


def write_text(folder: Path) -> tuple[Path, Path]:
    """Made-up documents and a WordPiece vocabulary for them."""
    draw = random.Random(20191)
    words = _words(draw)
    documents = []
    for _ in range(80):
        topic = draw.sample(words, 40)
        sentences = (
            " ".join(draw.choices(topic, k=draw.randint(4, 16))) for _ in range(draw.randint(3, 20))
        )
        documents.append(" ".join(f"{sentence.capitalize()}." for sentence in sentences))
    text, vocabulary = folder / "text.txt", folder / "vocab.txt"
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words[::2], *_SYLLABLES]
    pieces += ["##" + syllable for syllable in _SYLLABLES]
    vocabulary.write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return text, vocabulary


_PARTS = {"train": 60, "dev": 21, "test": 9}
"""Examples in the files of a task."""


def _draw_row(
    kind: str, number: int, part: str, draw: random.Random, words: list[str]
) -> tuple[dict[str, Any], Any]:
    """A row of a task's file, and the same as an input for `predict`."""

    def some(low: int, high: int) -> list[str]:
        return draw.choices(words, k=draw.randint(low, high))

    text, second = " ".join(some(2, 14)), " ".join(some(2, 14))
    label: Any
    if kind in ("class", "pairs"):
        label = draw.choice(("low", "mid", "high"))
        row = {"text": text, "second": second, "label": label}
        return row, text if kind == "class" else (text, second)
    if kind == "labels":
        label = [name for name in "abc" if draw.random() < 0.4] or ["a"]
        return {"text": text, "label": label}, text
    if kind == "number":
        return {"text": text, "label": round(draw.gauss(20, 7), 2)}, text
    if kind == "choices":
        options = [" ".join(some(1, 3)) for _ in range(draw.randint(2, 4))]
        row = {"id": f"{part}-{number}", "context": text, "question": second, "choices": options}
        return {**row, "label": draw.randrange(len(options))}, (text, second, options)
    if kind == "tags":
        sentence = some(3, 20)
        tags = draw.choices(("O", "B-X", "I-X", "B-Y"), k=len(sentence))
        return {"words": sentence, "tags": tags}, sentence
    context = some(6, 40)  # some longer than a row
    place = draw.randrange(len(context))
    answer = {"text": context[place], "answer_start": len(" ".join([*context[:place], ""]))}
    question: dict[str, Any] = {"id": f"{part}-{number}", "question": text, "answers": [answer]}
    if kind == "span 2.0":
        question["is_impossible"] = number % 3 == 0
        question["answers"] = [] if number % 3 == 0 else [answer]
    return {"context": " ".join(context), "qas": [question]}, (text, " ".join(context))


def _write_part(kind: str, part: str, rows: list[dict[str, Any]], folder: Path) -> Path:
    """A file of a task's form with the rows of a part."""

    def write(name: str, lines: list[str]) -> Path:
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder / name

    if kind.startswith("span"):
        version = "v2.0" if kind == "span 2.0" else "1.1"
        whole = {"version": version, "data": [{"title": "t", "paragraphs": rows}]}
        return write(f"{part}.json", [json.dumps(whole)])
    if kind == "tags":
        tagged = [
            "\n".join(map(" ".join, zip(row["words"], row["tags"], strict=True))) + "\n"
            for row in rows
        ]
        return write(f"{part}.conll", tagged)
    if kind == "class":  # in GLUE's form
        header = "index\tsentence" if part == "test" else "sentence\tlabel"
        classes = [str(int(row["label"] == "low")) for row in rows]
        columns = [
            (str(i), row["text"]) if part == "test" else (row["text"], classes[i])
            for i, row in enumerate(rows)
        ]
        return write(f"{part}.tsv", [header, *map("\t".join, columns)])
    return write(f"{part}.jsonl", [json.dumps(row) for row in rows])


def _pair_option() -> str:
    """The option that names the column of a second text, which an earlier parent calls `pair`."""
    from litebert.tasks.texts import ColumnOptions

    names = {option.name for option in fields(ColumnOptions)}
    return "pair_column" if "pair_column" in names else "pair"


def write_task(kind: str, folder: Path) -> tuple[dict[str, Any], list[Any]]:
    """Made-up files of a task: the arguments of `open_task`, and inputs for `predict`."""
    draw = random.Random(kind)
    words = _words(random.Random(20191))
    folder.mkdir()
    inputs: list[Any] = []
    files: dict[str, Path] = {}
    for part, count in _PARTS.items():
        drawn = [_draw_row(kind, number, part, draw, words) for number in range(count)]
        files[part] = _write_part(kind, part, [row for row, _ in drawn], folder)
        inputs += [row_input for _, row_input in drawn]
    if kind == "class":
        return {"name": "sst2", "data": folder}, inputs
    name = {"tags": "tagging", "choices": "choices", "span 1.1": "squad", "span 2.0": "squad"}.get(
        kind, "table"
    )
    options = {_pair_option(): "second"} if kind == "pairs" else {}
    return {
        "name": name,
        "data": files["train"],
        "dev": files["dev"],
        "test": files["test"],
        **options,
    }, inputs


FINETUNINGS: dict[str, dict[str, Any]] = {
    "class": {"model": "bert-base, shrunken, AdamW", "layer_decay": 0.8},
    "class, collapsed": {"model": "bert-tiny, shrunken", "rate": 1e-9},
    "pairs": {"model": "electra-base, shrunken, AdamW"},
    "labels": {"model": "roberta-base, shrunken, AdamW", "dropout": 0.0},
    "number": {"model": "albert-base, shrunken, LAMB"},
    "tags": {"model": "albert-tiny"},
    "span 1.1": {"model": None},
    "span 2.0": {"model": "spanbert-base, shrunken, AdamW"},
    "choices": {"model": "albert-base-v1, shrunken, AdamW"},
}
"""The fine-tuning runs, by what is learned: which run they begin with (None for an untrained
network), their fields.
"""


# ----------------------------------------------------------------------------------------- the runs


def run_all(names: Collection[str] | None = None) -> dict[str, Any]:
    """The results of the runs of `points`, `every_recipe` and `FINETUNINGS`, or of those named."""
    import torch

    from litebert.cli import main
    from litebert.recipes import RECIPES

    results = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            text, vocabulary = write_text(Path(folder))
            data, runs = Path(folder, "data"), Path(folder, "runs")
            runs.mkdir()
            words = ["--tokenizer", str(vocabulary), "--heldout", "0.1", "--processes", "1"]
            assert main(["--quiet", "prepare", str(text), "--out", str(data), *words]) == 0
            for name, point in {**points(), **every_recipe()}.items():
                # Another commit may have fewer recipes.
                if point["base"] in RECIPES and (names is None or name in names):
                    results[name] = _pretrain(point, data, runs / name)
            for name, point in FINETUNINGS.items():
                if names is None or name in names:
                    results[name] = _finetune(name, point, vocabulary, Path(folder))
    finally:
        torch.set_num_threads(threads)
    return {"torch": torch.__version__, "runs": results}


def _pretrain(point: dict[str, Any], data: Path, out: Path) -> dict[str, Any]:
    from litebert import LitebertError, convert, pretrain, recipe

    train = {
        **point.get("train", {}),
        "budget": f"{STEPS} steps",
        "batch": "8 sequences",
        "precision": "float32",
        "evaluate_every": "100%",
        "evaluate_sequences": 32,
    }
    file = out.with_suffix(".json")
    file.write_text(
        json.dumps({**point, "name": "golden", "sequences": {"length": 64}, "train": train})
    )
    pretrain(recipe(str(file)), data, out, device="cpu")
    converted = out.with_name(f"{out.name}, converted")
    with suppress(LitebertError):  # transformers has no class for some
        convert(out, converted, to="hf")
    last = max((out / "checkpoints").glob("step-*"))
    return _result(
        out,
        [
            last / "model.safetensors",
            *converted.glob("*.safetensors"),
            *converted.glob("config.json"),
        ],
    )


def _finetune(name: str, point: dict[str, Any], vocabulary: Path, folder: Path) -> dict[str, Any]:
    from litebert import FinetuneConfig, finetune, load, open_task, replace

    arguments, inputs = write_task(name.partition(",")[0], folder / f"files of {name}")
    config = FinetuneConfig()
    optimizer = replace(config.train.optimizer, learning_rate=point.get("rate", 1e-3))
    train = replace(
        config.train,
        batch="8 sequences",
        precision="float32",
        optimizer=optimizer,
        evaluate_every="50%",
        seed=3,
    )
    config = replace(
        config,
        length=48,
        steps=STEPS,
        train=train,
        dropout=point.get("dropout", 0.1),
        layer_decay=point.get("layer_decay", 1.0),
    )
    if point["model"] is None:
        model, tokenizer = folder / "untrained.json", vocabulary
        model.write_text(json.dumps({"encoder": SHRUNKEN["encoder"], "sequences": {"length": 64}}))
    else:
        model, tokenizer = folder / "runs" / point["model"], None
    out = folder / name
    finetune(model, open_task(**arguments), out, config, tokenizer=tokenizer, device="cpu")
    written = [out / "model" / "model.safetensors", *sorted((out / "predictions").iterdir())]
    written += sorted(out.rglob("best.safetensors"))  # of a run that collapsed too
    scores = json.loads((out / "scores.json").read_text(encoding="utf-8"))
    added = ("test_", "baseline")  # another commit may leave these out
    dev = {key: value for key, value in scores.items() if not key.startswith(added)}
    return _result(out, written) | {
        "scores": dev,
        "answers": load(out, device="cpu").predict(inputs),
    }


def _result(run: Path, files: Iterable[Path]) -> dict[str, Any]:
    """Contents of a run folder: numbers by step, without words, and checksums of files."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [
        row for row in map(json.loads, lines) if row["kind"] != "event"
    ]  # words, which may change
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert len(losses) == STEPS
    return {
        "losses": losses,
        "rows": rows,
        "files": {f"{file.parent.name}/{file.name}": _checksum(file) for file in files},
    }


def _checksum(file: Path) -> str:
    """Checksum of a file, but of tensors without the header, which holds more than numbers."""
    content = file.read_bytes()
    if file.suffix == ".safetensors":
        content = content[8 + int.from_bytes(content[:8], "little") :]
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run the golden runs and print their numbers as JSON."
    )
    parser.add_argument("--out", type=Path, help="file to write instead of printing")
    parser.add_argument("--record", action="store_true", help="write losses.json anew")
    parser.add_argument(
        "--package", action="store_true", help="print only which litebert would run"
    )
    arguments = parser.parse_args()
    if arguments.package:
        import litebert

        sys.stdout.write(f"{litebert.__file__}\n")
        return
    record = run_all(points() if arguments.record else None)
    if arguments.record:
        record = {
            "torch": record["torch"],
            "losses": {name: run["losses"] for name, run in record["runs"].items()},
        }
        arguments.out = RECORDED
    text = json.dumps(record, indent=1) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
