"""Campaigns of hours work from start to end, so that no night is lost to a slip."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_make_bench_leaves_no_benchmark_out() -> None:
    """Every program of the folder but the one for a GPU, and each takes the file of its results."""
    namespace = runpy.run_path(str(ROOT / "benchmarks" / "all.py"))
    scripts = {file.stem: file for file in (ROOT / "benchmarks").glob("*.py")}
    folders = {file.parent.name: file for file in (ROOT / "benchmarks").glob("*/__main__.py")}
    programs = {
        name: file for name, file in (scripts | folders).items() if "def main(" in file.read_text()
    }
    assert namespace["SMALL"].keys() == programs.keys() - {"all", *namespace["APART"]}
    for name in namespace["SMALL"]:
        assert '"--json", type=Path' in programs[name].read_text(), name
    assert re.search(
        r"^bench:.*\n\t.*benchmarks/all\.py --out bench$", (ROOT / "Makefile").read_text(), re.M
    )


def test_a_benchmark_writes_its_machine_versions_command_and_results(
    tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheapest of them, on little data."""
    out, script = tmp_path / "out" / "batches.json", str(ROOT / "benchmarks" / "batches.py")
    sizes = ["--repeats", "4", "--tokens", "1024", "--sequences", "4"]
    words = [script, str(tiny_data), *sizes, "--json", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    status = runpy.run_path(script)["main"]()  # the law may not hold beside other programs
    report = json.loads(out.read_text())
    assert report["benchmark"] == "batches"
    assert str(out) in report["command"]
    assert report["seconds"] > 0
    assert datetime.fromisoformat(report["date"]).tzinfo is not None
    assert {"python", "torch", "litebert"} <= report["versions"].keys()
    assert "instructions" in report["machine"]
    assert status == int(not report["results"]["law_holds"])
    assert report["results"]["depths"].keys() == {"1", "6"}
    speeds = report["results"]["million_tokens_per_second"]
    assert len(speeds) == 9
    assert all(rate > 0 for speed in speeds.values() for rate in speed.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of transformers
def test_the_gpu_campaign_runs_dry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry", "--device", "cpu", "--out", str(out)])
    assert runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"))["main"]() == 0
    report = json.loads(out.read_text())
    assert report["products_per_second"] > 0
    assert [(shape["name"], shape["same_loss"]) for shape in report["shapes"]] == [
        ("albert-base", True),
        ("bert-base", True),
    ]
    for shape in report["shapes"]:
        assert len({system["system"] for system in shape["systems"]}) == 4
        assert all(
            system["share_of_products"] > 0 and system["seconds"] > 0 for system in shape["systems"]
        )
    assert {record["batch_processes"] for record in report["runs"]} == {0, 1}


def run_benchmark(name: str, out: Path, *words: object) -> dict[str, Any]:
    """The results that a benchmark writes."""
    command = [sys.executable, ROOT / "benchmarks" / name, *words, "--json", out]
    subprocess.run([*map(str, command)], check=True)
    results: dict[str, Any] = json.loads(out.read_text())["results"]
    return results


@pytest.mark.slow
@pytest.mark.parametrize("task", ["vectors", "classes"])
def test_a_server_is_loaded_and_its_answers_are_checked(tmp_path: Path, task: str) -> None:
    words = ["--shapes", "tiny", "--task", task, "--quick"]
    words += ["--default-wait"] if task == "classes" else []
    # It ends with an error where answers differ or are missing.
    report = run_benchmark("serving", tmp_path / "serving.json", *words)
    assert set(report["skipped"].values()) == {"no --peers"}
    assert report["tiny"].keys() == {
        f"litebert, {name}" for name in ("compiled", "onnx", "onnx int8", "compiled int8")
    }
    for result in report["tiny"].values():
        assert result["rounds"][0]["levels"][0]["requests_per_second"] > 0
        assert result["rounds"][0]["levels"][0]["checked"] > 0
        assert result["start_seconds"] > 0


@pytest.mark.slow
def test_engines_and_peers_answer_alike(tmp_path: Path, tiny_tokenizer: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text(
        "\n".join(
            f"number {number} of some texts " + "and more " * (number % 7) for number in range(12)
        )
    )
    words: list[object] = ["--data", texts, "--tokenizer", tiny_tokenizer, "--networks", "minilm"]
    words += ["--rounds", "1", "--latency", "2"]
    # It ends with an error where float32 answers differ.
    report = run_benchmark("answering.py", tmp_path / "answering.json", *words)["minilm"]
    assert report["rows"] == 12
    assert {"litebert compiled", "transformers sdpa"} <= report["systems"].keys()
    assert all(system["apart"] < 0.2 for system in report["systems"].values())
    pytest.importorskip("sentence_transformers")
    words = ["--data", texts, "--model", "vectors", "--rounds", "1", "--latency", "2"]
    report = run_benchmark("answering.py", tmp_path / "vectors.json", *words)["vectors"]
    systems = report["systems"]
    assert {"litebert compiled", "transformers sdpa", "ONNX Runtime"} <= systems.keys()
    assert systems["ONNX Runtime"]["apart"] < 1e-4
    assert systems["ONNX Runtime"]["same_labels"] is None


def test_worth_divides_sst2_and_squad_without_overlap(tmp_path: Path) -> None:
    """What is labeled is not among the texts without labels, and no passage is on both sides."""
    namespace = runpy.run_path(str(ROOT / "benchmarks" / "worth.py"))
    source = tmp_path / "SST-2"
    source.mkdir()
    rows = [f"text {i} \t{i % 2}" for i in range(10)]
    (source / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (source / "dev.tsv").write_text("sentence\tlabel\ndev \t1\n")
    train, dev = namespace["write_sample"](source, 4, tmp_path / "sample")
    labeled = [line.split("\t")[0] for line in train.read_text().splitlines()[1:]]
    rest = (tmp_path / "sample" / "rest.txt").read_text().splitlines()
    assert len(labeled) == 4
    assert sorted([*labeled, *rest]) == sorted(row.split("\t")[0] for row in rows)
    assert dev == source / "dev.tsv"
    passages = [{"qas": [{"question": f"p{i} q{j}"} for j in range(2)]} for i in range(7)]
    squad = {"data": [{"title": "A", "paragraphs": passages}]}
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    files = namespace["write_topics"](tmp_path / "squad.json", tmp_path / "topics")
    lines = [file.read_text().splitlines() for file in files]
    texts = [[json.loads(line)["text"] for line in part] for part in lines]
    assert [len(part) for part in texts] == [12, 2]
    assert {text.split()[0] for text in texts[0]}.isdisjoint(t.split()[0] for t in texts[1])


FINETUNE_PEERS = ROOT / "benchmarks" / "finetune_peers"


@pytest.mark.thorough
def test_ways_to_a_classifier_are_compared_on_the_same_rows(tmp_path: Path) -> None:
    """The dev rows are some of the labeled ones, a way that fails ends no campaign,
    and a second measurement changes no score.
    """
    folder, out = tmp_path / "glue" / "SST-2", tmp_path / "out"
    folder.mkdir(parents=True)
    rows = [f"{('good', 'bad')[i % 2]} text {i}\t{i % 2}" for i in range(60)]
    for name, part in (("train", rows[:40]), ("dev", rows[40:])):
        (folder / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *part]) + "\n")
    words = [sys.executable, FINETUNE_PEERS, "--data", tmp_path, "--encoder", tmp_path / "nowhere"]
    words += ["--tasks", "sst2-8", "--ways", "tfidf", "frozen", "--out", out]

    def run(*more: str) -> str:
        done = subprocess.run([*map(str, words), *more], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    assert "the same command goes on" in run("--minutes", "0")
    assert "log.txt says why" in run()
    (first,) = map(json.loads, (out / "cells.jsonl").read_text().splitlines())
    assert (first["task"], first["way"], first["score"]) == ("sst2-8", "tfidf", 1.0)
    assert "| TF-IDF, logistic regression | 100.0 |" in run("--measure")
    (second,) = map(json.loads, (out / "cells.jsonl").read_text().splitlines())
    costs = {"seconds", "processor_seconds", "megabytes"}
    assert {name: first[name] for name in first.keys() - costs} == {
        name: second[name] for name in second.keys() - costs
    }
    assert all(second[name] > 0 for name in costs)
    parts = {
        name: (out / "tasks" / "sst2-8-0" / f"{name}.jsonl").read_text().splitlines()
        for name in ("labeled", "train", "dev", "test")
    }
    assert [len(parts[name]) for name in parts] == [16, 15, 1, 20]
    assert sorted(parts["train"] + parts["dev"]) == sorted(parts["labeled"])
    labels = [json.loads(line)["label"] for line in parts["labeled"]]
    assert (labels.count("negative"), labels.count("positive")) == (8, 8)


@pytest.mark.thorough
def test_pairs_of_texts_and_numbers_are_compared_too(tmp_path: Path) -> None:
    words = [sys.executable, FINETUNE_PEERS, "--data", tmp_path, "--encoder", tmp_path / "nowhere"]
    words += ["--tasks", "rte-64", "stsb", "--ways", "tfidf", "--out", tmp_path / "out"]
    for name, label in (("RTE", "label"), ("STS-B", "score")):
        folder = tmp_path / "glue" / name
        folder.mkdir(parents=True)
        values = ("not_entailment", "entailment") if name == "RTE" else ("0.000", "5.000")
        rows = [
            f"{i}\tit rains {i}\tit {('snows', 'rains')[i % 2]} {i}\t{values[i % 2]}"
            for i in range(60)
        ]
        for part, some in (("train", rows[:40]), ("dev", rows[40:])):
            lines = [f"index\tsentence1\tsentence2\t{label}", *some]
            (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    subprocess.run([*map(str, words)], check=True, capture_output=True)
    cells = map(json.loads, (tmp_path / "out" / "cells.jsonl").read_text().splitlines())
    scores = {cell["task"]: cell["score"] for cell in cells}
    assert scores.keys() == {"rte-64", "stsb"}
    assert min(scores.values()) > 0.9


@pytest.mark.slow
def test_made_text_is_prepared_to_the_same_bytes_by_every_way(tmp_path: Path) -> None:
    """The second command has nothing left to do."""
    out = tmp_path / "made.json"
    cells = ["one process", "two processes", "four parts", "killed ten times"]
    sizes = ["--made", "8", "--file-made", "3"]
    words: list[str | Path]
    words = [*sizes, "--folder", tmp_path / "made", "--json", out, "--cells", *cells]
    results = []
    for _ in range(2):
        program = [sys.executable, ROOT / "benchmarks" / "prepare.py", *words]
        subprocess.run(program, check=True)
        results.append(json.loads(out.read_text())["results"])
    assert results[0] == results[1]
    assert results[0]["equal"]
    assert results[0]["cells"].keys() == set(cells)
    assert all(cell["resident_mb"] < 1000 for cell in results[0]["cells"].values())
    assert results[0]["cells"]["killed ten times"]["kills"] == 10
