"""An output is understood, or refused in one sentence before the work."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from answer.test_engines import model_folder
from litebert.base.errors import ConfigError
from litebert.config import FinetuneConfig
from litebert.finetuning.run import finetune
from litebert.tasks.registry import open_task
from toys.finetuning import write_table
from toys.refusals import names, refused

Run = Callable[..., tuple[int, str, str]]
LOCAL = {
    "finetune": ["finetune", "MODEL", "--task", "table", "--data", "t.csv"],
    "pretrain": ["pretrain", "bert-tiny", "--shards", "DATA"],
    "export": ["export", "MODEL"],
    "static": ["export", "MODEL", "--static"],
    "convert": ["convert", "MODEL", "--to", "hf"],
    "resize": ["resize", "MODEL", "--positions", "64"],
    "adapt": ["adapt", "MODEL", "--source", "t.csv"],
    "tokenizer": ["tokenizer", "train", "t.csv"],
    "study": ["study", "sharing", "--shards", "DATA"],
    "distill": ["distill", "baseline", "--data", "t.csv"],
    "demo": ["demo", "hi"],
    "quickstart": ["quickstart", "--source", "t.csv"],
    "analyze": ["analyze", "MODEL", "--shards", "DATA"],
}
"""Verbs whose output must be here."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", LOCAL)
@pytest.mark.parametrize("out", ["s3://bucket/x", "GS://bucket/a/x/", "tr\udce4n", ""])
def test_an_output_elsewhere_or_without_a_name(here: Path, run: Run, verb: str, out: str) -> None:
    status, _, err = run(*LOCAL[verb], "--out", out)
    assert status == 2
    label = out.replace("GS", "gs").replace("\udce4", "\\udce4") or "--out"
    names(err, f"litebert {verb if verb != 'static' else 'export'}", label.rstrip("/"))
    assert not list(here.iterdir())


@pytest.mark.parametrize("option", ["--data", "--dev", "--test"])
def test_labeled_files_in_a_store_are_refused(run: Run, option: str) -> None:
    """And not called missing."""
    words = {"--data": "t.csv", option: "s3://bucket/t.csv"}
    rest = [word for pair in words.items() for word in pair]
    status, _, err = run("finetune", "MODEL", "--task", "table", *rest, "--out", "out")
    assert status == 2
    names(err, "s3://bucket/t.csv", "store")
    status, _, err = run("finetune", "M", "--task", "sst2", "--data", "s3://b/S", "--out", "out")
    names(err, "s3://b/S", "store")


def test_functions_refuse_an_output_in_a_store(here: Path) -> None:
    files = open_task("table", write_table(here / "t.csv", 40))
    with refused(ConfigError, "s3://bucket/run", "store"):
        finetune("nowhere", files, "s3://bucket/run", FinetuneConfig())
    assert [path.name for path in here.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("page", ["nowhere/x.md", ".", "t.csv/x.md"])
def test_the_page_of_a_study_is_refused_before_its_runs(
    here: Path, run: Run, tiny_data: Path, page: str
) -> None:
    (here / "t.csv").write_text("")
    words = ("study", "sharing", "--shards", tiny_data, "--budget", "2 steps", "--page", page)
    status, _, err = run(*words, "--out", "study")
    assert status == 2
    names(err, "cannot write", page, "--page")
    assert not (here / "study").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names of characters")
@pytest.mark.thorough
def test_inputs_whose_names_are_not_utf8(here: Path, run: Run, tiny_tokenizer: Path) -> None:
    """Their names are written with escapes."""
    odd, plain = here / os.fsdecode(b"tr\xe4n.csv"), here / "dev.csv"
    write_table(odd, 60)
    write_table(plain, 30, seed=1)
    model = model_folder(here / "model", tiny_tokenizer, "classes")
    shown = "tr\\udce4n.csv"
    for name in ("a.csv", "a.jsonl"):
        status, _, err = run("predict", model, "--input", odd, plain, "--out", name)
        assert status == 0, err
    assert (here / "a.csv").read_text().count(shown) == 60
    rows = [json.loads(line) for line in (here / "a.jsonl").read_text().splitlines()]
    assert sum(row["file"].endswith(shown) for row in rows) == 60
    status, _, err = run("embed", model, "--input", odd, plain, "--out", "a.parquet")
    assert status == 0, err
    assert pq.read_table("a.parquet")["file"].to_pylist()[0].endswith(shown)
    for part in ("1/2", "2/2"):
        words = ("predict", model, "--input", odd, plain, "--out", "b.csv", "--part", part)
        assert run(*words)[0] == 0
    assert run("merge", "b.csv")[0] == 0
    assert (here / "b.csv").read_bytes() == (here / "a.csv").read_bytes()
    quick = ("--steps", 2, "--lr", "1e-3", "--length", 16, "--mislabeled", 3)
    files = ("--data", odd, plain)
    status, _, err = run("finetune", model, "--task", "table", *files, *quick, "--out", "run")
    assert status == 0, err
    assert (here / "run" / "report.html").exists()
