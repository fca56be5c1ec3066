"""Every verb that continues, killed at random instants: the same command ends with the same bytes,
and with other data of the same name it refuses, or makes what those alone make.

`pretrain` and `study` have such tests of their own (train/test_interruption.py,
studies/test_study.py).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from toys.finetuning import write_table
from toys.groups import Groups
from train.test_interruption import words_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills and forks are POSIX's"),
]

QUICK = ["--steps", "12", "--length", "16", "--lr", "1e-3", "--train.save-every", "3 steps"]
LABELED = ["--task", "table", "--data", "{data}/train.csv", "--dev", "{data}/dev.csv"]
PREPARE = ["prepare", "{data}/text.txt", "--tokenizer", "{tok}", "--out", "{out}"]
FINETUNE = ["finetune", "{run}", *LABELED, *QUICK, "--out", "{out}"]
DISTILL = [
    *("distill", "baseline", *LABELED[2:], "--size", "120k", "--vocab-size", "200"),
    *("--budget", "6 steps", "--phrases", "40", "--epochs", "1", "--no-restart"),
    *("--max-drop", "100", "--out", "{out}"),
]
QUICKSTART = [
    *("quickstart", "--source", "{data}/text.txt", "--vocab-size", "300"),
    *("--budget", "12 steps", "--out", "{out}"),
]


def _in_parts(*words: str, suffix: str = "") -> list[list[str]]:
    """The commands of two parts, and their merge."""
    out = "{out}" + suffix
    return [*([*words, "--out", out, "--part", f"{part}/2"] for part in (1, 2)), ["merge", out]]


PREDICT = ("predict", "{clf}", "--input", "{data}/train.csv")
EMBED = ("embed", "{clf}", "--input", "{data}/train.csv", "--vector-dtype", "int8")
SEEDS = "seed-*/model/*.safetensors|seed-*/metrics.jsonl"
WORKS: dict[str, tuple[list[list[str]], str, str]] = {
    "prepare": ([PREPARE], "*.arrow|tokenizer/*", "text.txt"),
    "near-duplicates": ([[*PREPARE, "--near-duplicates", "0.8"]], "*.arrow", "text.txt"),
    "prepare --part": (_in_parts(*PREPARE[:-2]), "*.arrow|tokenizer/*", "text.txt"),
    "finetune": ([FINETUNE], "model/*.safetensors|metrics.jsonl", "train.csv"),
    "finetune --seeds": ([[*FINETUNE, "--seeds", "2"]], SEEDS, "train.csv"),
    "distill": (
        [DISTILL],
        "int8/model.onnx|student/model/*.safetensors|text.txt|dev.jsonl",
        "dev.csv",
    ),
    "quickstart": ([QUICKSTART], "tokenizer/*|data/*.arrow|*/model.safetensors", "text.txt"),
    "predict --part": (_in_parts(*PREDICT, suffix=".csv"), ".csv", "train.csv"),
    "embed --part": (_in_parts(*EMBED, suffix=".npy"), ".npy", "train.csv"),
}
"""The commands of each work, the files that must not depend on a kill, and the data to change."""


def _swap(match: re.Match[str]) -> str:
    return {"a": "e", "e": "a", "yes": "no", "no": "yes"}[match[0]]


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    server = Groups(tmp_path_factory.mktemp("groups"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def place(
    groups: Groups,
    tiny_data: Path,
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Texts, rows, an encoder and a classifier; and other texts and rows of the same sizes."""
    folder = tmp_path_factory.mktemp("kills")
    shutil.copytree(tiny_tokenizer, folder / "tok")
    (folder / "data").mkdir()
    shutil.copy(tiny_corpus, folder / "data" / "text.txt")
    write_table(folder / "data" / "train.csv", 300)
    write_table(folder / "data" / "dev.csv", 40, seed=1)
    shutil.copytree(folder / "data", folder / "other")
    for path in (folder / "other").iterdir():
        text = path.read_text()
        pattern = r"\b(yes|no)$" if path.suffix == ".csv" else r"[ae]"
        changed = re.sub(pattern, _swap, text, flags=re.MULTILINE)
        if path.suffix == ".csv":  # other texts too
            head, _, rest = changed.partition("\n")
            changed = head + "\n" + re.sub(r"[ae](?=.*,)", _swap, rest)
        assert changed != text
        path.write_text(changed)
    for words in (
        words_of(folder, tiny_data, "adamw", "run", steps=3),
        _fill(["finetune", "{run}", *LABELED, *QUICK, "--out", "{clf}"], folder, ""),
    ):
        groups.complete(1, *words)
    return folder


def _fill(words: list[str], place: Path, out: str) -> list[str]:
    names = {name: str(place / name) for name in ("data", "tok", "run", "clf")}
    return [word.format(**names, out=place / out) for word in words]


def _read(place: Path, out: str, patterns: str) -> dict[str, bytes]:
    if patterns.startswith("."):
        return {
            path.name[len(out) :]: path.read_bytes()
            for path in place.glob(f"{out}.*")
            if path.is_file()
        }
    folder = place / out
    found = [path for pattern in patterns.split("|") for path in folder.glob(pattern)]
    assert found
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


@pytest.mark.parametrize("work", WORKS)
def test_killed_at_random_instants(work: str, groups: Groups, place: Path) -> None:
    steps, patterns, changing = WORKS[work]
    source, wanted, refusals, kills = place / "data" / changing, {}, 0, 0
    texts = {name: (place / name / changing).read_bytes() for name in ("data", "other")}
    slug, seconds = work.replace(" ", ""), 0.0
    for name, text in texts.items():
        source.write_bytes(text)
        start = time.monotonic()
        for words in steps:
            groups.complete(1, *_fill(words, place, f"{slug}-{name}"))
        seconds = time.monotonic() - start
        wanted[name] = _read(place, f"{slug}-{name}", patterns)
    draw = random.Random(work)
    for number in range(200):
        out, name = f"{slug}-{number}", "data"
        source.write_bytes(texts["data"])
        for words in (_fill(step, place, out) for step in steps):
            (process,) = groups.start(1, *words)
            time.sleep(draw.uniform(0.2, 1) * seconds / len(steps))
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            (status,) = groups.end().statuses
            kills += status == -signal.SIGKILL
            if number % 2 and words[0] != "merge" and status:
                source.write_bytes(texts["other"])
                ended = groups.run(1, *words)
                (status,) = ended.statuses
                assert status in (0, 2), ended.output
                if status == 0 and len(steps) == 1:
                    assert _read(place, out, patterns) == wanted["other"], "it is mixed"
                    name = "other"
                    break
                if status == 2:
                    refusals += 1
                    assert "Traceback" not in ended.output
                else:  # a part of which nothing was there: merge would refuse the others
                    name = "none"
                    break
                source.write_bytes(texts["data"])
            groups.complete(1, *words)
        if name == "data":
            assert _read(place, out, patterns) == wanted["data"]
        left = [path for path in place.rglob(".tmp-*") if out in str(path)]
        assert not left
        if kills >= 20:
            break
    source.write_bytes(texts["data"])
    print(f"{work}: {kills} kills, {refusals} refusals of other data")  # noqa: T201 - with -s
