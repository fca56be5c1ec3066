"""The recipes of examples/engines/: run as a reader runs them, they give what one machine gives."""

from __future__ import annotations

import json
import os
import random
import runpy
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import litebert
from litebert.demo import unpack
from toys.answers import made
from toys.prepare import content
from toys.serving import serving

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "examples" / "engines"
WORDS = ["bado", "toto", "kumi", "mimi", "lala", "so", "ti", "fa", "la"]


def need(*libraries: str) -> pytest.MarkDecorator:
    missing = [name for name in libraries if find_spec(name) is None]
    reason = f"{' and '.join(missing)} is not installed; litebert[engines] has it"
    return pytest.mark.skipif(bool(missing), reason=reason)


def run_script(name: str, *arguments: object, folder: Path, **variables: str) -> None:
    """Run a recipe in a folder, where `litebert` is a command."""
    program = ["bash"] if name.endswith(".sh") else [sys.executable]
    run_words([*program, RECIPES / name, *arguments], folder, **variables)


def run_words(words: Sequence[object], folder: Path, **variables: str) -> None:
    """Run a command in a folder, where `litebert` is a command."""
    command = folder / "bin" / "litebert"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m litebert "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files of JSON Lines, some documents of them short or equal."""
    folder, draw = tmp_path_factory.mktemp("engines") / "corpus", random.Random(4)
    folder.mkdir()
    for number in range(5):
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 60))) for _ in range(40)]
        lines = [json.dumps({"text": f"{text.capitalize()}."}) for text in texts]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def single(corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine writes."""
    out = tmp_path_factory.mktemp("engines") / "data"
    litebert.prepare([str(corpus)], out, tokenizer=tiny_tokenizer, processes=1)
    return out


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "classifier"
    task = {"task": "table", "problem": "classes", "pair": False}
    return made(folder, tiny_tokenizer, "sequence", 3, ("ja", "nein", "so"), **task)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 rows of texts of many lengths."""
    path, draw = tmp_path_factory.mktemp("engines") / "rows.parquet", random.Random(5)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 40))) for _ in range(3000)]
    pq.write_table(pa.table({"id": range(3000), "text": texts}), path)
    return path


def read_shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.arrow"))}


@pytest.mark.thorough
def test_a_job_array_of_slurm(
    corpus: Path, single: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Slurm starts the script once for each task, with these variables."""
    for task in (3, 1, 4, 2):
        run_script(
            "slurm.sh",
            *(corpus, tiny_tokenizer, "data", "4"),
            folder=tmp_path,
            SLURM_ARRAY_TASK_ID=str(task),
            SLURM_CPUS_PER_TASK="1",
        )
    litebert.merge(tmp_path / "data")
    assert content(tmp_path / "data") == content(single)


@pytest.mark.thorough
def test_vectors_of_many_files_by_slurm(tmp_path: Path) -> None:
    """Each task takes its lines, and a task that is given again computes only what is missing."""
    model = unpack(tmp_path / "models")["vectors"]
    names = [tmp_path / f"{number}.txt" for number in range(1, 6)]
    for name in names:
        name.write_text(f"text of {name.stem}\nanother text\n")
    (tmp_path / "list").write_text("".join(f"{name}\n" for name in names))

    def run_task(task: int) -> None:
        run_script(
            "slurm_embed.sh",
            *(model, "list", "out", "2"),
            folder=tmp_path,
            SLURM_ARRAY_TASK_ID=str(task),
            SLURM_CPUS_PER_TASK="1",
        )

    run_task(2)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["00002.npy", "00004.npy"]
    run_task(1)
    for path in sorted((tmp_path / "out").iterdir()):
        whole = litebert.load(model).encode(names[int(path.stem) - 1].read_text().splitlines())
        np.testing.assert_allclose(np.load(path), whole, atol=1e-5)
    (tmp_path / "list.done" / "00003").unlink()  # the task was killed at this line
    changed = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    run_task(1)
    assert [path.name for path, before in changed.items() if path.stat().st_mtime_ns != before] == [
        "00003.npy"
    ]


@pytest.mark.thorough
def test_an_indexed_job_of_kubernetes(
    corpus: Path, single: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Each pod runs the command with its index, from 0."""
    job = yaml.safe_load((RECIPES / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 4)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    paths = {"CORPUS": str(corpus), "TOKENIZER": str(tiny_tokenizer), "OUT": "data"}
    assert {item["name"] for item in container["env"]} == set(paths)
    shell, option, command = container["command"]
    for index in (2, 0, 3, 1):
        variables = {**paths, "JOB_COMPLETION_INDEX": str(index)}
        run_words([shell, option, command], tmp_path, **variables)
    litebert.merge(tmp_path / "data")
    assert content(tmp_path / "data") == content(single)


@pytest.mark.thorough
def test_an_indexed_job_of_kubernetes_that_embeds(
    classifier: Path, table: Path, tmp_path: Path
) -> None:
    """The vectors of all pods, merged, are those of one machine."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(5):
        pq.write_table(pq.read_table(table).slice(600 * number, 600), texts / f"{number}.parquet")
    job = yaml.safe_load((RECIPES / "kubernetes_embed.yaml").read_text(encoding="utf-8"))
    assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 4)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    shell, option, command = container["command"]

    def run_pod(out: str, command: str, index: int = 0) -> None:
        paths = {"MODEL": str(classifier), "INPUT": str(texts), "OUT": out}
        assert {item["name"] for item in container["env"]} == {*paths, "OMP_NUM_THREADS"}
        paths |= {"OMP_NUM_THREADS": "1", "JOB_COMPLETION_INDEX": str(index)}
        run_words([shell, option, command], tmp_path, **paths)

    whole, separator, _ = command.partition(" --part")
    assert separator
    run_pod("single.parquet", whole)
    for index in (2, 0, 3, 1):
        run_pod("vectors.parquet", command, index)
    litebert.merge(tmp_path / "vectors.parquet")
    merged = (tmp_path / "vectors.parquet").read_bytes()
    assert merged == (tmp_path / "single.parquet").read_bytes()
    assert pq.read_table(tmp_path / "vectors.parquet")["id"].to_pylist() == list(range(3000))


@pytest.mark.thorough
def test_a_job_of_slurm_that_pretrains(single: Path, tmp_path: Path) -> None:
    """On one machine with two processes, where srun and scontrol are those of the test."""
    (tmp_path / "bin").mkdir()
    for name, line in {"srun": 'exec "$@"', "scontrol": "echo localhost"}.items():
        command = tmp_path / "bin" / name
        command.write_text(f"#!/bin/sh\n{line}\n")
        command.chmod(0o755)
    run_script(
        "slurm_pretrain.sh",
        *("albert-next-tiny", single, "run", "4 steps"),
        folder=tmp_path,
        SLURM_JOB_NODELIST="localhost",
        SLURM_NNODES="1",
        SLURM_JOB_ID="7",
        SLURM_GPUS_ON_NODE="2",
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())


@pytest.mark.thorough
@need("submitit")
def test_submitit(corpus: Path, single: Path, tiny_tokenizer: Path, tmp_path: Path) -> None:
    run_script("submitit_parts.py", corpus, tiny_tokenizer, "data", folder=tmp_path)
    assert content(tmp_path / "data") == content(single)


@pytest.mark.thorough
@need("datatrove")
def test_datatrove(corpus: Path, tiny_tokenizer: Path, tmp_path: Path) -> None:
    """The set is that of one machine which reads the filtered documents task by task."""
    lines = []
    for task in range(4):
        for file in sorted(corpus.iterdir())[task::4]:
            rows = file.read_text().splitlines(keepends=True)
            lines += [row for row in rows if len(json.loads(row)["text"]) >= 20]
    assert 100 < len(lines) < 200
    (tmp_path / "all.jsonl").write_text("".join(lines))
    single = tmp_path / "single"
    litebert.prepare([str(tmp_path / "all.jsonl")], single, tokenizer=tiny_tokenizer, processes=1)
    for _ in range(2):  # the second time, all tasks are complete
        run_script("datatrove_shards.py", corpus, tiny_tokenizer, "data", folder=tmp_path)
        assert read_shards(tmp_path / "data") == read_shards(single)


@pytest.mark.slow
@need("ray")
def test_ray_prepares(corpus: Path, single: Path, tiny_tokenizer: Path, tmp_path: Path) -> None:
    run_script("ray_parts.py", corpus, tiny_tokenizer, tmp_path / "data", folder=tmp_path)
    assert content(tmp_path / "data") == content(single)


@pytest.mark.slow
@need("ray")
@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_ray_answers(classifier: Path, table: Path, tmp_path: Path, verb: str) -> None:
    run_script("ray_answers.py", classifier, table, tmp_path / "out", verb, folder=tmp_path)
    rows = pq.read_table(tmp_path / "out").sort_by("id")
    texts = pq.read_table(table)["text"].to_pylist()
    assert rows["id"].to_pylist() == list(range(3000))
    model = litebert.load(classifier)
    if verb == "embed":
        vectors = np.stack([np.array(row) for row in rows["vectors"].to_pylist()])
        assert np.allclose(vectors, model.encode(texts), atol=1e-5)
    else:
        check_predictions(rows.to_pydict(), model.predict(texts))


def check_predictions(columns: dict[str, list[Any]], records: list[dict[str, Any]]) -> None:
    """Classes are equal, and probabilities to rounding."""
    assert columns["prediction"] == [record["prediction"] for record in records]
    for label in ("ja", "nein", "so"):
        expected = [record["probabilities"][label] for record in records]
        assert np.allclose(columns[f"p_{label}"], expected, atol=1e-5)


def test_functions_for_spark(classifier: Path, table: Path) -> None:
    """`predict_batch_udf` calls them with arrays of texts in a Python worker."""
    recipe = runpy.run_path(str(RECIPES / "spark_answers.py"))
    texts = pq.read_table(table)["text"].to_pylist()[:50]
    model, batch = litebert.load(classifier), np.array(texts, object)
    predictions = recipe["make_predict"](str(classifier))(batch)
    assert predictions.tolist() == [record["prediction"] for record in model.predict(texts)]
    vectors = recipe["make_embed"](str(classifier))(batch)
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, model.encode(texts))


@pytest.mark.filterwarnings("ignore")  # those of datasets
def test_a_map_of_datasets(classifier: Path, table: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = pq.read_table(table).slice(0, 300).to_pydict()
    rows = datasets.Dataset.from_dict(columns).map(
        litebert.BatchFunction(classifier), batched=True, batch_size=128
    )
    assert rows["id"][:] == columns["id"]
    records = litebert.load(classifier).predict(columns["text"])
    check_predictions({name: rows[name][:] for name in rows.column_names}, records)


def test_the_image_is_healthy_at_any_port(tmp_path: Path) -> None:
    """Its check reads the port from the command of the container."""
    image = (RECIPES.parents[1] / "Dockerfile").read_text(encoding="utf-8")
    assert "COPY --from=model --chmod=755 " in image, "exports of umask 077 can be read"
    _, option, program = json.loads(image.split(" CMD ")[1].splitlines()[0])
    model = unpack(tmp_path / "models")["sentiment"]
    with serving(tmp_path, model) as running:
        port = running.url.rpartition(":")[2]
        for words, healthy in (
            (f"--port\0{port}\0", True),
            (f"--port={port}", True),
            ("-p", False),
        ):
            (tmp_path / "cmdline").write_text(f"litebert\0serve\0{words}")
            check = program.replace("/proc/1/cmdline", str(tmp_path / "cmdline"))
            check = check.replace("else 8000", "else 1")  # where nobody listens
            done = subprocess.run([sys.executable, option, check], capture_output=True)
            assert (done.returncode == 0) == healthy, done.stderr


def test_a_service_on_kubernetes(tmp_path: Path) -> None:
    """Its probes ask a route that answers, by a name that is served, at the port of the image."""
    text = (RECIPES / "kubernetes_service.yaml").read_text(encoding="utf-8")
    deployment, service = yaml.safe_load_all(text)
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    pod = deployment["spec"]["template"]
    labels = deployment["spec"]["selector"]["matchLabels"]
    assert labels == pod["metadata"]["labels"] == service["spec"]["selector"]
    (container,) = pod["spec"]["containers"]
    image = (RECIPES.parents[1] / "Dockerfile").read_text(encoding="utf-8")
    port = container["ports"][0]["containerPort"]
    assert f"EXPOSE {port}\n" in image
    assert service["spec"]["ports"] == [{"port": port}]
    for name in ("readinessProbe", "livenessProbe"):
        probe = container[name]["httpGet"]
        assert probe["port"] == port
    text = (RECIPES / "kubernetes_podmonitor.yaml").read_text(encoding="utf-8")
    monitor = yaml.safe_load(text)["spec"]
    assert monitor["selector"]["matchLabels"] == labels
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == container["ports"][0]["name"]
    secret = container["envFrom"][0]["secretRef"]["name"]
    key = {"name": secret, "key": "LITEBERT_KEY"}
    assert endpoint["authorization"]["credentials"] == key
    started = json.loads(image.split("ENTRYPOINT ")[1])
    words = (unpack(tmp_path / "models")["sentiment"], *started[3:], *container.get("args", ()))
    with serving(tmp_path, *words, LITEBERT_KEY="secret") as running:
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        with running.client() as client:
            for name in ("10.0.0.5:8000", "reviews", "reviews.default.svc.cluster.local"):
                answer = client.get(probe["path"], headers={"Host": name})
                assert (name, answer.status_code) == (name, 200)
            metrics = {"Host": "10.0.0.5:8000", "Authorization": "Bearer secret"}
            assert client.get("/metrics", headers=metrics).status_code == 200
