"""Files and folders with something wrong, one each, in bad/."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEP = 100_000
DIGITS = "9" * 5000
"""A whole number longer than Python reads."""
WIDE = "," + ",".join(f"c{i}" for i in range(20_000))
"""So many columns more."""


def write_broken(place: Path) -> None:
    """Write them all; `place` holds the good ones."""
    bad = place / "bad"
    bad.mkdir()
    for name, content in FILES.items():
        file = bad / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    (bad / "empty-folder").mkdir()
    (bad / "dangling.txt").symlink_to("nowhere.txt")
    (bad / "loop").symlink_to("loop")
    (bad / "loop.toml").symlink_to("loop.toml")
    (bad / "folder.toml").mkdir()
    for name in ("good", "poor"):
        (bad / "classes-empty" / name).mkdir(parents=True)
    if hasattr(os, "mkfifo"):
        os.mkfifo(bad / "pipe.csv")
    write_parquet(bad)
    for name, (source, damage) in DAMAGED.items():
        shutil.copytree(place / source, bad / name)
        damage(bad / name)


FILES: dict[str, str | bytes] = {
    "empty.txt": "",
    "blank.txt": " \n\n\t\n",
    "latin1.txt": "caf\xe9 au lait. ".encode("latin-1") * 50,
    "binary.txt": bytes(range(256)) * 20,
    "nul.txt": "a\0b\n" * 20,
    "one-word.txt": "word",
    "utf16.txt": "words and words\n".encode("utf-16"),
    "utf16le.txt": "words and words\n".encode("utf-16-le") * 20,
    "utf16be.txt": "words and words\n".encode("utf-16-be") * 20,
    "utf32.txt": "words and words\n".encode("utf-32-le") * 20,
    "half.txt": b"a whole line\nhalf a character \xe2\x82",
    "mark-only.txt": b"\xef\xbb\xbf",
    "picture.txt": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 9,
    "cut.txt.gz": gzip.compress(b"words and words\n" * 99)[:-12],
    "empty.txt.gz": b"",
    "digits.jsonl": '{"text": "hello", "label": ' + DIGITS + "}\n",
    "digits.json": '{"data": ' + DIGITS + "}",
    "digits.toml": "[encoder]\nlayers = " + DIGITS + "\n",
    "twice.jsonl": '{"text": "hello", "text": "world", "label": 1}\n{"text": "a", "label": 0}\n',
    "null.jsonl": '{"text": "hello", "label": 1}\n{"text": null, "label": 0}\n',
    "nan.jsonl": '{"text": NaN}\n',
    "list.jsonl": '{"text": ["hello"]}\n',
    "utf16.jsonl": '{"text": "hello"}\n'.encode("utf-16-le") * 20,
    "big-label.jsonl": '{"text": "hello", "label": 1'
    + "0" * 400
    + '}\n{"text": "a", "label": 0.5}\n',
    "object-label.jsonl": '{"text": "hello", "label": {"a": 7}}\n{"text": "a", "label": 0}\n',
    "new-label.csv": "text,label\nhello,maybe\n",
    "unlabeled.csv": "text,label\nhello,\nworld,\n",
    "wide.csv": f"text,label{WIDE}\nhello,1{WIDE}\nworld,0{WIDE}\n",
    "wide-ragged.csv": f"text,label{WIDE}\nhello,1\n",
    "mac.csv": "text,label\rhello,1\rworld,0\r",
    "utf16le.csv": "text,label\nhello,1\nworld,0\n".encode("utf-16-le"),
    "unnamed.csv": "hello,1\nworld,0\n",
    "no-suffix": "text,label\nhello,1\nworld,0\n",
    "classes-one/good/a.txt": "words",
    "classes-one/good/b.txt": "more words",
    "classes/good/a.txt": "words",
    "classes/poor/b.txt": "more words",
    "classes-latin1/good/old.txt": "caf\xe9".encode("latin-1"),
    "classes-latin1/poor/new.txt": "words",
    "start.squad.json": json.dumps(
        {
            "version": "1.1",
            "data": [
                {
                    "title": "t",
                    "paragraphs": [
                        {
                            "context": "one two",
                            "qas": [
                                {
                                    "id": "1",
                                    "question": "?",
                                    "answers": [{"text": "one", "answer_start": "zero"}],
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ),
    "context.squad.json": json.dumps(
        {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"qas": []}]}]}
    ),
    "question.squad.json": json.dumps(
        {
            "version": "1.1",
            "data": [
                {
                    "title": "t",
                    "paragraphs": [
                        {
                            "context": "one two",
                            "qas": [{"id": "1", "answers": [{"text": "one", "answer_start": 0}]}],
                        }
                    ],
                }
            ],
        }
    ),
    "utf16.json": '{"data": []}'.encode("utf-16"),
    "choices.jsonl": '{"text": "hello"}\n',
    "one-choice.jsonl": '{"question": "why", "choices": ["a"], "label": 0}\n',
    "far-choice.jsonl": '{"question": "why", "choices": ["a", "b"], "label": 7}\n',
    "utf16.toml": "[encoder]\nlayers = 4\n".encode("utf-16"),
    "twice.json": '{"encoder": {"layers": 4, "layers": 5}}',
    "marked.json": b'\xef\xbb\xbf{"encoder": {"layers": 4}}',
    "twice/config.json": '{"model_type": "bert", "hidden_size": 8, "hidden_size": 16}',
    "twice.toml": "[encoder]\nlayers = 4\nlayers = 5\n",
    "nul.toml": b"[encoder]\nlayers = 4\0\n",
    "self.toml": 'base = "self.toml"\n',
    "infinite.toml": "[masking]\nrate = inf\n",
    "base-number.toml": "base = 17\n",
    "exits.py": "raise SystemExit(0)\n",
    "import.py": "import nothing_of_this_name\n",
    "taken.py": "from litebert.base.registry import OBJECTIVES\n\nOBJECTIVES.add('mlm', print)\n",
    "task.py": "from litebert.base.registry import TASKS\n\nTASKS.add('mine', 17)\n",
    "recursion.py": "def mine():\n    return mine()\n\n\nmine()\n",
    "digits/config.json": '{"model_type": "bert", "vocab_size": ' + DIGITS + "}",
    "text-sizes/config.json": '{"model_type": "bert", "hidden_size": "wide"}',
    "broken.txt.gz": b"\x1f\x8b\x08\x00garbage",
    "broken.txt.xz": b"\xfd7zXZ\x00garbage",
    "broken.txt.zst": b"\x28\xb5\x2f\xfdgarbage",
    "text.txt.gz": "not compressed at all",
    "empty.csv": "",
    "header.csv": "text,label\n",
    "no-text.csv": "body,label\nhello,1\n",
    "no-label.csv": "text,stars\nhello,1\n",
    "ragged.csv": "text,label\nhello,1,2,3\n",
    "quote.csv": 'text,label\n"hello,1\nworld,0\n',
    "twice.csv": "text,text,label\na,b,1\nc,d,0\n",
    "one-class.csv": "text,label\n" + "words,1\n" * 20,
    "one-row.csv": "text,label\nhello,1\n",
    "empty-label.csv": "text,label\nhello,\nworld,1\nagain,0\n",
    "latin1.csv": "text,label\ncaf\xe9,1\n".encode("latin-1"),
    "nan.csv": "text,label\nhello,nan\nworld,1.5\nagain,2.5\n" * 10,
    "infinite.csv": "text,label\nhello,inf\nworld,1.5\nagain,2.5\n" * 10,
    "deep.json": "[" * DEEP + "]" * DEEP,
    "deep.jsonl": '{"text": ' + "[" * DEEP + "]" * DEEP + "}\n",
    "nested.jsonl": '{"text": "hello", "tree": ' + "[" * 900 + "]" * 900 + "}\n",
    "list.json": "[]",
    "number.json": "17",
    "broken.json": "{",
    "broken.jsonl": '{"text": "hello"}\n{"text": \n',
    "array.jsonl": '["hello"]\n',
    "number.jsonl": '{"text": 17}\n',
    "no-text.jsonl": '{"body": "hello"}\n',
    "lone-surrogate.jsonl": '{"text": "\\ud800 half"}\n',
    "broken.parquet": b"PAR1 is not all of it PAR1",
    "text.parquet": "hello",
    "no-data.squad.json": json.dumps({"version": "1.1"}),
    "strange.squad.json": json.dumps({"version": "1.1", "data": [{"paragraphs": 17}]}),
    "outside.squad.json": json.dumps(
        {
            "version": "1.1",
            "data": [
                {
                    "title": "t",
                    "paragraphs": [
                        {
                            "context": "short",
                            "qas": [
                                {
                                    "id": "1",
                                    "question": "?",
                                    "answers": [{"text": "long", "answer_start": 99}],
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ),
    "twice.squad.json": json.dumps(
        {
            "version": "1.1",
            "data": [
                {
                    "title": "t",
                    "paragraphs": [
                        {
                            "context": "one two",
                            "qas": [{"id": "1", "question": "?", "answers": []}] * 2,
                        }
                    ],
                }
            ],
        }
    ),
    "unlabeled.squad.json": json.dumps(
        {
            "version": "v2.0",
            "data": [
                {
                    "title": "t",
                    "paragraphs": [
                        {
                            "context": "one two",
                            "qas": [{"id": "1", "question": "?", "answers": []}],
                        }
                    ],
                }
            ],
        }
    ),
    "columns.conll": "Ada B-PER\nwent\n",
    "no-tags.conll": "Ada\nwent\n",
    "typo.toml": "[encoder]\nlayres = 4\n",
    "section.toml": "[encodr]\nlayers = 4\n",
    "type.toml": '[encoder]\nlayers = "four"\n',
    "impossible.toml": "[encoder]\nhidden_size = 30\nheads = 4\n",
    "negative.toml": "[encoder]\nlayers = -1\n",
    "huge.toml": "[encoder]\nhidden_size = 1000000000\nheads = 1\n",
    "base.toml": 'base = "albert-bsae"\n',
    "syntax.toml": "[encoder\n",
    "empty.py": "",
    "raises.py": "raise ValueError('no')\n",
    "returns.py": "def mine():\n    return 17\n",
    "fails.py": "def mine():\n    return 1 / 0\n",
    "syntax.py": "def mine(:\n",
    "recipe.json": '{"name": 17}',
    "config/config.json": "{}",
    "unknown/config.json": '{"model_type": "gpt9"}',
    "nested/config.json": '{"model_type": ' + "[" * DEEP + "]" * DEEP + "}",
    "huge/config.json": json.dumps(
        {
            "model_type": "bert",
            "vocab_size": 10**9,
            "hidden_size": 10**9,
            "num_hidden_layers": 12,
            "num_attention_heads": 10,
            "intermediate_size": 10**9,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        }
    ),
    "folder-of-pictures/cat.png": b"\x89PNG",
    "folder-of-pictures/dog.jpg": b"\xff\xd8",
    "vocab/vocab.txt": "one\ntwo\n",
    "tokenizer-json/tokenizer.json": "{}",
    "model/spiece.model": b"garbage",
}


def write_parquet(bad: Path) -> None:
    """Whole Parquet files with the wrong columns, and one that is cut."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, dict[str, list[Any]]] = {
        "numbers": {"text": [1, 2], "label": [0, 1]},
        "no-text": {"body": ["a", "b"]},
        "nested": {"text": [["a"], ["b"]], "label": [0, 1]},
        "empty": {"text": [], "label": []},
    }
    for name, content in columns.items():
        pq.write_table(pa.table(content), bad / f"{name}.parquet")
    pq.write_table(pa.table({"text": ["words"] * 999, "label": [0] * 999}), bad / "cut.parquet")
    cut_files("cut.parquet")(bad)


def rewritten(file: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change what a JSON file of a folder holds."""

    def damage(folder: Path) -> None:
        data = json.loads((folder / file).read_text(encoding="utf-8"))
        change(data)
        (folder / file).write_text(json.dumps(data), encoding="utf-8")

    return damage


def without(*files: str) -> Callable[[Path], None]:
    """Files or folders by pattern, deleted."""

    def damage(folder: Path) -> None:
        paths = [path for file in files for path in folder.glob(file)]
        assert paths, files
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def holding(content: str | bytes, *files: str) -> Callable[[Path], None]:
    """Files by pattern, with this in them."""

    def damage(folder: Path) -> None:
        paths = [path for file in files for path in folder.glob(file)]
        assert paths, files
        for path in paths:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def cut_files(*files: str) -> Callable[[Path], None]:
    """Files by pattern, cut in the middle."""

    def damage(folder: Path) -> None:
        paths = [path for file in files for path in folder.glob(file)]
        assert paths, files
        for path in paths:
            os.truncate(path, path.stat().st_size // 2)

    return damage


def swap_tokenizer(folder: Path) -> None:
    """The tokenizer is another one."""
    shutil.rmtree(folder / "tokenizer")
    shutil.copytree(folder.parents[1] / "other-tokenizer", folder / "tokenizer")


def folder_for(file: str) -> Callable[[Path], None]:
    """A folder in place of a file."""

    def damage(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return damage


def foreign_file(folder: Path) -> None:
    """A file of the user's beside those of litebert."""
    (folder / "thesis.txt").write_text("years of work", encoding="utf-8")


def other_weights(folder: Path) -> None:
    """The weights are those of the pretraining run."""
    shutil.copy(next((folder.parents[1] / "run/checkpoints").glob("*4/model.safetensors")), folder)


def digits_in(file: str) -> Callable[[Path], None]:
    """A JSON file of a folder with a number that is too long."""

    def damage(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8").rstrip()
        (folder / file).write_text(f'{text[:-1]}, "more": {DIGITS}}}', encoding="utf-8")

    return damage


def twice_in(file: str) -> Callable[[Path], None]:
    """A JSON file of a folder whose first key stands there a second time, with another value."""

    def damage(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8").rstrip()
        key = next(iter(json.loads(text)))
        (folder / file).write_text(f'{text[:-1]}, "{key}": 1}}', encoding="utf-8")

    return damage


NESTED = '{"a": ' + "[" * DEEP + "]" * DEEP + "}"

DAMAGED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "data-no-index": ("data", without("index.json")),
    "data-cut-index": ("data", cut_files("index.json")),
    "data-deep-index": ("data", holding(NESTED, "index.json")),
    "data-list-index": ("data", holding("[]", "index.json")),
    "data-empty-index": ("data", holding("{}", "index.json")),
    "data-no-shards": ("data", without("*.arrow")),
    "data-cut-shards": ("data", cut_files("*.arrow")),
    "data-garbage-shards": ("data", holding("garbage", "*.arrow")),
    "data-no-tokenizer": ("data", without("tokenizer")),
    "data-swapped-tokenizer": ("data", swap_tokenizer),
    "data-new-format": ("data", rewritten("index.json", lambda index: index.update(format=999))),
    "data-digits": ("data", digits_in("index.json")),
    "data-folder-index": ("data", folder_for("index.json")),
    "data-no-settings": ("data", rewritten("index.json", lambda index: index.pop("settings"))),
    "data-shard-twice": (
        "data",
        rewritten("index.json", lambda index: index["shards"].append(index["shards"][0])),
    ),
    "data-split": (
        "data",
        rewritten("index.json", lambda index: index["shards"][0].update(split="validation")),
    ),
    "data-twice-key": ("data", twice_in("index.json")),
    "data-shards-number": ("data", rewritten("index.json", lambda index: index.update(shards=17))),
    "run-foreign": ("run", foreign_file),
    "run-unfinished": ("run", without("checkpoints/*4")),
    "run-digits": ("run", digits_in("recipe.json")),
    "run-null": ("run", rewritten("recipe.json", lambda recipe: recipe.update(encoder=None))),
    "run-nan": (
        "run",
        rewritten("recipe.json", lambda recipe: recipe["masking"].update(rate=float("nan"))),
    ),
    "run-utf16": ("run", holding("{}".encode("utf-16"), "recipe.json")),
    "run-folder-recipe": ("run", folder_for("recipe.json")),
    "run-list-run": ("run", holding("[]", "run.json")),
    "run-cut-run": ("run", cut_files("run.json")),
    "run-no-steps": ("run", rewritten("run.json", lambda run: run.pop("steps"))),
    "run-no-recipe": ("run", without("recipe.json")),
    "run-cut-recipe": ("run", cut_files("recipe.json")),
    "run-deep-recipe": ("run", holding(NESTED, "recipe.json")),
    "run-other-recipe": (
        "run",
        rewritten("recipe.json", lambda recipe: recipe["encoder"].update(layers=3)),
    ),
    "run-typo-recipe": (
        "run",
        rewritten("recipe.json", lambda recipe: recipe["encoder"].update(layres=3)),
    ),
    "run-wide-recipe": (
        "run",
        rewritten("recipe.json", lambda recipe: recipe["encoder"].update(hidden_size=64)),
    ),
    "run-huge-recipe": (
        "run",
        rewritten(
            "recipe.json",
            lambda recipe: recipe["encoder"].update(hidden_size=10**9, intermediate_size=10**9),
        ),
    ),
    "run-no-checkpoints": ("run", without("checkpoints/*")),
    "run-cut-weights": ("run", cut_files("checkpoints/*/model.safetensors")),
    "run-garbage-weights": ("run", holding("garbage", "checkpoints/*/model.safetensors")),
    "run-no-tokenizer": ("run", without("tokenizer")),
    "run-swapped-tokenizer": ("run", swap_tokenizer),
    "run-cut-metrics": ("run", cut_files("metrics.jsonl")),
    "run-garbage-metrics": ("run", holding("garbage\n" * 9, "metrics.jsonl")),
    "own-no-task": ("own", without("task.json")),
    "own-deep-task": ("own", holding(NESTED, "task.json")),
    "own-list-task": ("own", holding("[]", "task.json")),
    "own-empty-task": ("own", holding("{}", "task.json")),
    "own-columns-list": ("own", rewritten("task.json", lambda task: task.update(columns=[1]))),
    "own-columns-number": (
        "own",
        rewritten("task.json", lambda task: task["columns"].update(text=1)),
    ),
    "own-pair-text": ("own", rewritten("task.json", lambda task: task.update(pair="yes"))),
    "own-header-text": ("own", rewritten("task.json", lambda task: task.update(header="no"))),
    "own-metric-number": ("own", rewritten("task.json", lambda task: task.update(metric=5))),
    "own-metric-dance": ("own", rewritten("task.json", lambda task: task.update(metric="dance"))),
    "own-separator-list": ("own", rewritten("task.json", lambda task: task.update(separator=[]))),
    "own-unknown-kind": ("own", rewritten("task.json", lambda task: task.update(kind="dance"))),
    "own-unknown-task": ("own", rewritten("task.json", lambda task: task.update(task="dance"))),
    "own-wrong-classes": ("own", rewritten("task.json", lambda task: task.update(classes=7))),
    "own-no-classes": ("own", rewritten("task.json", lambda task: task.update(classes=0))),
    "own-wrong-labels": ("own", rewritten("task.json", lambda task: task.update(labels=["one"]))),
    "own-number-labels": ("own", rewritten("task.json", lambda task: task.update(labels=17))),
    "own-wrong-length": ("own", rewritten("task.json", lambda task: task.update(length="long"))),
    "own-no-weights": ("own", without("model.safetensors")),
    "own-cut-weights": ("own", cut_files("model.safetensors")),
    "own-no-tokenizer": ("own", without("tokenizer")),
    "own-swapped-tokenizer": ("own", swap_tokenizer),
    "own-digits": ("own", digits_in("task.json")),
    "own-twice-labels": (
        "own",
        rewritten("task.json", lambda task: task.update(labels=["one", "one"])),
    ),
    "own-folder-weights": ("own", folder_for("model.safetensors")),
    "own-other-weights": ("own", other_weights),
    "own-garbage-tokenizer": (
        "own",
        holding("garbage", "tokenizer/*.model", "tokenizer/tokenizer.json"),
    ),
    "classifier-foreign": ("classifier", foreign_file),
    "classifier-list-record": ("classifier", holding("[]", "finetune.json")),
    "classifier-no-model": ("classifier", without("model")),
    "classifier-cut-record": ("classifier", cut_files("finetune.json")),
    "tokenizer-empty": ("tokenizer", without("*")),
    "tokenizer-cut": ("tokenizer", cut_files("*.model", "tokenizer.json")),
    "tokenizer-garbage": ("tokenizer", holding("garbage", "*.model", "tokenizer.json")),
}
"""New folders, from which good one, and what is done to it."""
