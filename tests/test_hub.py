"""Models by name, through the verbs as a person types them, against a Hub on this machine."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import yaml
from huggingface_hub import constants

from abuse import forked
from abuse.forked import Ended
from litebert import hub
from litebert.base import progress
from litebert.hub import fetching
from litebert.tokenizer import Tokenizer
from toys.finetuning import write_table
from toys.folders import save_hf, save_litebert, small_tokenizer, tiny, write_shards
from toys.hub import Hub, cache_of, hub_server, read_files
from toys.serving import serving

pytestmark = pytest.mark.thorough


NAME = "tiny-org/tiny-bert"
BERT: dict[str, Any] = {"sharing": "none", "embedding_size": 8, "max_positions": 64}
FOREIGN = {
    "model.onnx": b"onnx",
    "tf_model.h5": b"tensorflow",
    "flax_model.msgpack": b"flax",
    "pytorch_model.bin": b"a pickle",
    "modeling_tiny.py": b"raise SystemExit('code of a stranger')",
}
"""Files of a published model that nobody here reads."""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small encoder in the format of transformers."""
    folder = tmp_path_factory.mktemp("published") / "model"
    save_hf(tiny(("mlm",), **BERT), small_tokenizer(), folder)
    for name, content in FOREIGN.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def server(model_folder: Path) -> Iterator[Hub]:
    """A Hub that has that model."""
    with hub_server() as running:
        running.add(NAME, model_folder)
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the cache."""
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a table."""
    folder = tmp_path / "work"
    folder.mkdir()
    write_table(folder / "table.csv", 60)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def process(server: Hub, home: Path, work: Path) -> Callable[..., Ended]:
    """Run a command line in a new process whose environment names that Hub."""

    def call(*words: object, before: Callable[[], object] = int, **environment: str) -> Ended:
        return forked.run(
            [str(word) for word in words],
            work,
            environment=server.environment(home, **environment),
            before=before,
        )

    return call


@pytest.fixture
def litebert(
    server: Hub, home: Path, work: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ended]]:
    """Run a command line in this process as if it were a new one with such an environment, which
    is much faster: `huggingface_hub` reads the environment only when it is imported."""

    def call(*words: object, **environment: str) -> Ended:
        variables = server.environment(home, **environment)
        hub._located.clear()
        hub._pinned.clear()
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            template = f"{variables['HF_ENDPOINT']}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
            patch.setattr(constants, "ENDPOINT", variables["HF_ENDPOINT"])
            patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
            patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
            patch.setattr(constants, "HF_HUB_OFFLINE", bool(variables["HF_HUB_OFFLINE"]))
            patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
            return Ended(*run(*words))

    yield call
    huggingface_hub.close_session()


Run = Callable[..., tuple[int, str, str]]
Litebert = Callable[..., Ended]


def sentence(ended: Ended) -> str:
    """The one sentence with which a command is refused."""
    # Progress is told where the machine is busy.
    lines = [line for line in ended.err.strip().splitlines() if " so far" not in line]
    assert ended.status == 2, ended.err
    assert len(lines) == 1, ended.err
    assert "Traceback" not in ended.err
    return lines[0]


def embed(litebert: Litebert, name: str, output: str = "vectors.npy", **options: Any) -> Ended:
    return litebert("embed", name, "--input", "table.csv", "--out", output, **options)


def commit_of(server: Hub, name: str = NAME) -> str:
    return server.repositories[name].refs["main"]


class TestFetching:
    def test_a_name_opens_like_its_folder(
        self, process: Litebert, server: Hub, model_folder: Path, tmp_path: Path, home: Path
    ) -> None:
        ended = embed(process, f"hf:{NAME}")
        assert ended.status == 0, ended.err
        assert f"fetched hf:{NAME}" in ended.err
        assert commit_of(server)[:12] in ended.err
        assert embed(process, str(model_folder), "same.npy").status == 0
        vectors, same = (np.load(tmp_path / "work" / f"{name}.npy") for name in ("vectors", "same"))
        assert np.array_equal(vectors, same)
        folder = cache_of(home, NAME) / "snapshots" / commit_of(server)
        fetched = read_files(folder)
        expected = read_files(model_folder)
        assert fetched == {name: expected[name] for name in expected.keys() - FOREIGN.keys()}
        assert not set(server.downloads()) & set(FOREIGN)

    def test_the_second_time_nothing_is_downloaded(self, litebert: Litebert, server: Hub) -> None:
        assert embed(litebert, f"hf:{NAME}").status == 0
        server.requests.clear()
        again = embed(litebert, f"hf:{NAME}")
        assert again.status == 0
        assert not server.downloads()
        assert "fetched" not in again.err

    def test_it_opens_without_a_connection_then(
        self, litebert: Litebert, server: Hub, tmp_path: Path
    ) -> None:
        assert embed(litebert, f"hf:{NAME}").status == 0
        server.requests.clear()
        offline = embed(litebert, f"hf:{NAME}", "offline.npy", HF_HUB_OFFLINE="1")
        assert offline.status == 0, offline.err
        assert not server.requests
        unreachable = embed(litebert, f"hf:{NAME}", HF_ENDPOINT="http://127.0.0.1:9")
        assert unreachable.status == 0, unreachable.err
        assert "cannot be reached" in unreachable.err
        assert "from the cache" in unreachable.err
        vectors, same = (
            np.load(tmp_path / "work" / f"{name}.npy") for name in ("vectors", "offline")
        )
        assert np.array_equal(vectors, same)

    def test_a_revision_opens_that_commit(self, litebert: Litebert, server: Hub) -> None:
        repository = server.repositories[NAME]
        first = commit_of(server)
        repository.refs["v1"] = first
        repository.commit({"config.json": b"{}"})
        for revision in ("v1", first):
            ended = embed(litebert, f"hf:{NAME}@{revision}")
            assert ended.status == 0, ended.err
        assert "neither model.safetensors" in sentence(embed(litebert, f"hf:{NAME}"))

    def test_a_pickle_is_fetched_where_there_are_no_safetensors(
        self, litebert: Litebert, server: Hub, model_folder: Path
    ) -> None:
        files = read_files(model_folder)
        del files["model.safetensors"]
        server.add("old/model", files)
        ended = embed(litebert, "hf:old/model")
        assert "pytorch_model.bin" in server.downloads()
        # It is none, and is not unpickled.
        assert "pytorch_model.bin is damaged" in ended.err.splitlines()[-1]
        assert ended.status == 2

    def test_a_broken_connection_is_taken_up_where_it_broke(
        self,
        litebert: Litebert,
        server: Hub,
        model_folder: Path,
        home: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        server.repositories[NAME].cut["model.safetensors"] = 1000
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)  # what is written at a time
        ended = embed(litebert, f"hf:{NAME}")
        assert ended.status == 0, ended.err
        ranges = [
            request.headers.get("range")
            for request in server.requests
            if request.file == "model.safetensors"
        ]
        assert ranges == [None, "bytes=1000-"]
        folder = cache_of(home, NAME) / "snapshots" / commit_of(server)
        whole = (model_folder / "model.safetensors").read_bytes()
        assert (folder / "model.safetensors").read_bytes() == whole

    def test_progress_counts_the_bytes(
        self, litebert: Litebert, server: Hub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tasks: list[progress.Task] = []

        class KeptTask(progress.Task):
            def __init__(self, *values: Any, **fields: Any) -> None:
                super().__init__(*values, **fields)
                tasks.append(self)

        monkeypatch.setattr(progress, "Task", KeptTask)
        assert embed(litebert, f"hf:{NAME}").status == 0
        (fetching,) = [task for task in tasks if task.name == f"fetching hf:{NAME}"]
        files = server.repositories[NAME].commits[commit_of(server)]
        sizes = [len(files[name]) for name in server.downloads() if name != "config.json"]
        assert fetching.unit == "bytes"
        assert fetching.done == fetching.total == sum(sizes)

    def test_two_processes_fetch_each_file_once(self, process: Litebert, server: Hub) -> None:
        results: list[Ended] = []
        threads = [
            threading.Thread(target=lambda word=word: results.append(process(*word)))
            for word in (
                ("convert", f"hf:{NAME}", "--out", "first", "--to", "litebert"),
                ("convert", f"hf:{NAME}", "--out", "second", "--to", "litebert"),
            )
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [ended.status for ended in results] == [0, 0], results
        assert server.downloads().count("model.safetensors") == 1


class TestRefusals:
    def test_a_missing_model(self, litebert: Litebert) -> None:
        message = sentence(embed(litebert, "hf:tiny-org/none"))
        assert "hf:tiny-org/none" in message
        assert "hf auth login" in message

    def test_a_private_model_opens_with_its_token(self, litebert: Litebert, server: Hub) -> None:
        server.repositories[NAME].token = "hf_mine"
        assert "hf auth login" in sentence(embed(litebert, f"hf:{NAME}"))
        assert embed(litebert, f"hf:{NAME}", HF_TOKEN="hf_mine").status == 0

    def test_a_gated_model(self, litebert: Litebert, server: Hub) -> None:
        server.repositories[NAME].gated = True
        message = sentence(embed(litebert, f"hf:{NAME}"))
        assert "gated" in message
        assert f"{server.url}/{NAME}" in message

    def test_a_missing_revision(self, litebert: Litebert) -> None:
        assert "no revision 'v9'" in sentence(embed(litebert, f"hf:{NAME}@v9"))

    @pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
    def test_a_file_that_arrives_damaged(
        self, name: str, litebert: Litebert, server: Hub, model_folder: Path, home: Path
    ) -> None:
        server.repositories[NAME].wrong.add(name)
        message = sentence(embed(litebert, f"hf:{NAME}"))
        assert f"{name} of hf:{NAME} arrived damaged" in message
        server.repositories[NAME].wrong.clear()
        assert embed(litebert, f"hf:{NAME}").status == 0

    def test_no_network(self, litebert: Litebert) -> None:
        message = sentence(embed(litebert, f"hf:{NAME}", HF_ENDPOINT="http://127.0.0.1:9"))
        assert "http://127.0.0.1:9 cannot be reached" in message
        message = sentence(embed(litebert, f"hf:{NAME}", HF_HUB_OFFLINE="1"))
        assert "HF_HUB_OFFLINE" in message

    def test_a_download_that_was_left_in_the_middle_is_no_model(
        self, litebert: Litebert, server: Hub, home: Path
    ) -> None:
        assert embed(litebert, f"hf:{NAME}").status == 0
        (cache_of(home, NAME) / "snapshots" / commit_of(server) / "model.safetensors").unlink()
        assert "not in" in sentence(embed(litebert, f"hf:{NAME}", HF_HUB_OFFLINE="1"))

    def test_a_full_disk(self, process: Litebert, home: Path) -> None:
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
        message = sentence(embed(process, f"hf:{NAME}", before=limit))
        assert f"cannot be kept in {home / 'hub'}" in message
        assert "HF_HOME" in message
        assert not list(home.rglob("*.incomplete"))

    def test_code_of_a_stranger(self, litebert: Litebert, server: Hub, model_folder: Path) -> None:
        files = read_files(model_folder)
        settings = json.loads(files["config.json"])
        settings["auto_map"] = {"AutoModel": "modeling_tiny.TinyModel"}
        files["config.json"] = json.dumps(settings).encode()
        server.add("evil/model", files)
        assert "trust_remote_code" in sentence(embed(litebert, "hf:evil/model"))
        assert server.downloads() == ["config.json"]

    def test_a_model_of_another_kind_is_refused_before_its_weights(
        self, litebert: Litebert, server: Hub, model_folder: Path
    ) -> None:
        config = b'{"model_type": "llama"}'
        server.add("big/llama", {**read_files(model_folder), "config.json": config})
        assert "'llama'" in sentence(embed(litebert, "hf:big/llama"))
        assert server.downloads() == ["config.json"]

    def test_weights_in_pieces(
        self, litebert: Litebert, server: Hub, model_folder: Path, tmp_path: Path, work: Path
    ) -> None:
        folder = tmp_path / "pieces"
        shutil.copytree(model_folder, folder)
        pieces = write_shards(folder)
        server.add("big/model", folder)
        for name, out in ((f"hf:{NAME}", "one.npy"), ("hf:big/model", "pieces.npy")):
            assert embed(litebert, name, out).status == 0
        assert (work / "one.npy").read_bytes() == (work / "pieces.npy").read_bytes()
        # The index comes last: who has it in the cache has all.
        index = "model.safetensors.index.json"
        assert server.downloads()[-len(pieces) - 1 :] == [*pieces, index]
        before = len(server.downloads())
        offline = embed(litebert, "hf:big/model", "again.npy", HF_HUB_OFFLINE="1")
        assert offline.status == 0, offline.err
        assert (work / "again.npy").read_bytes() == (work / "one.npy").read_bytes()
        assert len(server.downloads()) == before

    def test_pieces_without_their_index(self, litebert: Litebert, server: Hub) -> None:
        pieces = "model-00001-of-00002.safetensors"
        server.add("big/model", {"config.json": b"{}", pieces: b""})
        assert pieces in sentence(embed(litebert, "hf:big/model"))
        assert not server.downloads()

    def test_a_name_without_its_prefix(self, litebert: Litebert, server: Hub) -> None:
        assert f"write hf:{NAME}" in sentence(embed(litebert, NAME))
        assert not server.requests


class TestRuns:
    """A run records the model that it began with."""

    FINETUNE = ("--task", "table", "--data", "table.csv", "--steps", "2", "--no-baseline")
    QUICK = ("--length", "16", "--train.optimizer.learning-rate", "1e-3", "--no-fit-head")

    def finetune(self, litebert: Litebert, model: str, out: str, *words: str) -> Ended:
        return litebert("finetune", model, *self.FINETUNE, *self.QUICK, "--out", out, *words)

    def test_it_records_the_commit(self, litebert: Litebert, server: Hub, tmp_path: Path) -> None:
        ended = self.finetune(litebert, f"hf:{NAME}", "run", "--seeds", "1")
        assert ended.status == 0, ended.err
        record = json.loads((tmp_path / "work" / "run" / "finetune.json").read_text())
        assert record["model"] == f"hf:{NAME}"
        assert record["model_revision"] == commit_of(server)
        assert list(record).index("model_revision") == list(record).index("model") + 1
        card = (tmp_path / "work" / "run" / "model" / "README.md").read_text()
        front = yaml.safe_load(card.split("---\n")[1])
        assert front["base_model"] == NAME
        assert front["base_model_revision"] == commit_of(server)
        assert f"`{NAME}` of the Hugging Face Hub, at commit `{commit_of(server)}`" in card
        # A classifier teaches under its name, too.
        files = read_files(tmp_path / "work" / "run" / "model")
        server.add("me/teacher", files)
        ended = self.finetune(litebert, f"hf:{NAME}", "taught", "--teacher", "hf:me/teacher")
        assert ended.status == 0, ended.err
        record = json.loads((tmp_path / "work" / "taught" / "finetune.json").read_text())
        assert record["teacher"] == "hf:me/teacher"
        assert record["teacher_revision"] == commit_of(server, "me/teacher")

    def test_the_same_command_keeps_the_commit_when_the_branch_moves_on(
        self, litebert: Litebert, server: Hub, model_folder: Path, tmp_path: Path
    ) -> None:
        assert self.finetune(litebert, f"hf:{NAME}", "run").status == 0
        first = commit_of(server)
        other = tmp_path / "other"
        save_hf(tiny(("mlm",), **{**BERT, "hidden_size": 16}), small_tokenizer(), other)
        server.repositories[NAME].commit(read_files(other))
        assert commit_of(server) != first
        again = self.finetune(litebert, f"hf:{NAME}", "run")
        assert again.status == 0, again.err
        fresh = self.finetune(litebert, f"hf:{NAME}", "run", "--overwrite")
        assert fresh.status == 0, fresh.err
        record = json.loads((tmp_path / "work" / "run" / "finetune.json").read_text())
        assert record["model_revision"] == commit_of(server)

    def test_pretraining_records_it_too(
        self, litebert: Litebert, server: Hub, tiny_data: Path, tiny_tokenizer: Path, tmp_path: Path
    ) -> None:
        model = tmp_path / "model"
        encoder = tiny(("mlm",), **{**BERT, "vocab_size": 400})
        save_hf(encoder, Tokenizer.load(tiny_tokenizer), model)
        server.add("me/start", model)
        words = ("pretrain", "--from", "hf:me/start", "--shards", tiny_data, "--out", "run")
        further = (*words, "--budget", "2 steps", "--train.batch", "4 sequences")
        for _ in range(2):  # the second time it is finished
            ended = litebert(*further)
            assert ended.status == 0, ended.err
        record = json.loads((tmp_path / "work" / "run" / "run.json").read_text())
        assert record["from"] == "hf:me/start"
        first = commit_of(server, "me/start")
        assert record["from_revision"] == first
        # The recipe of the same command is that of the recorded commit too.
        wider = tiny(("mlm",), **{**BERT, "vocab_size": 400, "hidden_size": 16})
        save_hf(wider, Tokenizer.load(tiny_tokenizer), tmp_path / "wider")
        server.repositories["me/start"].commit(read_files(tmp_path / "wider"))
        assert commit_of(server, "me/start") != first
        again = litebert(*further)
        assert again.status == 0, again.err


class TestVerbs:
    """A name stands wherever a model does."""

    def test_convert_and_load(self, litebert: Litebert, tmp_path: Path) -> None:
        ended = litebert("convert", f"hf:{NAME}", "--out", "converted", "--to", "litebert")
        assert ended.status == 0, ended.err
        assert (tmp_path / "work" / "converted" / "recipe.json").is_file()

    def test_a_folder_may_look_like_a_name(
        self, litebert: Litebert, server: Hub, model_folder: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "work" / "hf:x").symlink_to(model_folder)
        ended = embed(litebert, "./hf:x")
        assert ended.status == 0, ended.err
        assert not server.requests

    def test_no_folder_is_written_that_is_a_name(
        self, litebert: Litebert, model_folder: Path, tmp_path: Path
    ) -> None:
        ended = litebert("convert", model_folder, "--out", "hf:me/model", "--to", "litebert")
        assert "litebert push" in sentence(ended)
        ended = TestRuns().finetune(litebert, str(model_folder), "hf:me/run")
        assert "litebert push" in last(ended)
        assert not (tmp_path / "work" / "hf:me").exists()

    def test_a_litebert_folder_of_the_hub(
        self, litebert: Litebert, server: Hub, tmp_path: Path
    ) -> None:
        save_litebert(tiny(("mlm",), **BERT), small_tokenizer(), tmp_path / "ours")
        server.add("me/ours", tmp_path / "ours")
        assert embed(litebert, "hf:me/ours").status == 0
        offline = embed(litebert, "hf:me/ours", HF_HUB_OFFLINE="1")
        assert offline.status == 0, offline.err

    def test_a_tokenizer_comes_without_weights(
        self, litebert: Litebert, server: Hub, tmp_path: Path
    ) -> None:
        (tmp_path / "work" / "text.txt").write_text("reading a folder with words\n" * 40)
        ended = litebert("tokenizer", "inspect", "text.txt", "--tokenizer", f"hf:{NAME}", "--json")
        assert ended.status == 0, ended.err
        assert "model.safetensors" not in server.downloads()
        words: tuple[str, ...]
        words = ("prepare", "text.txt", "--tokenizer", f"hf:{NAME}", "--out", "data")
        ended = litebert(*words, "--processes", "1", HF_HUB_OFFLINE="1")
        assert ended.status == 0, ended.err
        assert "model.safetensors" not in server.downloads()
        words = ("adapt", f"hf:{NAME}", "--tokenizer", f"hf:{NAME}")
        ended = litebert(*words, "--out", "moved")
        assert ended.status == 0, ended.err

    def test_a_model_with_modules(
        self, litebert: Litebert, server: Hub, model_folder: Path, tmp_path: Path
    ) -> None:
        pooling = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
        types = {"": "Transformer", "1_Pooling": "Pooling"}
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(types.items())
        ]
        files = {
            **read_files(model_folder),
            "modules.json": json.dumps(modules).encode(),
            "1_Pooling/config.json": json.dumps(pooling).encode(),
            "onnx/model.onnx": b"",
        }
        server.add("me/sentences", files)
        ended = embed(litebert, "hf:me/sentences")
        assert ended.status == 0, ended.err
        assert "1_Pooling/config.json" in server.downloads()
        assert "onnx/model.onnx" not in server.downloads()
        assert embed(litebert, f"hf:{NAME}", "mean.npy").status == 0
        vectors, mean = (np.load(tmp_path / "work" / f"{name}.npy") for name in ("vectors", "mean"))
        assert not np.allclose(vectors, mean)

    @pytest.mark.skipif(find_spec("starlette") is None, reason="needs starlette")
    def test_serve(self, server: Hub, home: Path, tmp_path: Path) -> None:
        models = (f"hf:{NAME}", f"other=hf:{NAME}")
        with serving(tmp_path, *models, **server.environment(home)) as service:
            with service.client() as client:
                listed = client.get("/v1/models").json()["data"]
                assert {model["id"] for model in listed} == {"tiny-bert", "other"}
                request = {"input": "reading a model", "model": "other"}
                assert client.post("/v1/embeddings", json=request).status_code == 200
            assert service.stop() == 0

    @pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime")
    def test_nothing_is_written_into_the_cache_of_the_hub(
        self, litebert: Litebert, server: Hub, home: Path, tmp_path: Path
    ) -> None:
        ended = embed(litebert, f"hf:{NAME}", XDG_CACHE_HOME=str(tmp_path / "own"))
        before = read_files(home)
        ended = litebert(
            *("embed", f"hf:{NAME}", "--input", "table.csv", "--out", "onnx.npy"),
            *("--engine", "onnx"),
            XDG_CACHE_HOME=str(tmp_path / "own"),
        )
        assert ended.status == 0, ended.err
        assert read_files(home) == before


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub's own
class TestPush:
    """A model goes to the Hub, and opens from there."""

    TOKEN = {"HF_TOKEN": "hf_secret"}  # noqa: RUF012

    def test_a_classifier_opens_by_the_name_it_was_pushed_to(
        self, litebert: Litebert, server: Hub, tmp_path: Path
    ) -> None:
        assert TestRuns().finetune(litebert, f"hf:{NAME}", "run").status == 0
        message = ("--private", "--message", "Trained in May")
        ended = litebert("push", "run", "hf:me/classifier", *message, **self.TOKEN)
        assert ended.status == 0, ended.err
        assert f"wrote {server.url}/me/classifier/commit/" in ended.err
        repository = server.repositories["me/classifier"]
        assert repository.private
        assert [request.path for request in server.requests if request.method == "COMMIT"] == [
            "Trained in May"
        ]
        files = repository.commits[commit_of(server, "me/classifier")]
        assert {"config.json", "model.safetensors", "README.md", "tokenizer.json"} <= set(files)
        assert "examples.json" not in files
        card = files["README.md"].decode()
        assert 'load("hf:me/classifier")' in card
        assert 'from_pretrained("me/classifier")' in card
        assert '(".")' not in card
        words = ("--input", "table.csv", "--out")
        assert litebert("predict", "run", *words, "here.csv").status == 0
        ended = litebert("predict", "hf:me/classifier", *words, "there.csv")
        assert ended.status == 0, ended.err
        answers, same = (
            (tmp_path / "work" / f"{name}.csv").read_text().splitlines()[1:]
            for name in ("here", "there")
        )
        assert [line.split(",")[0] for line in answers] == [line.split(",")[0] for line in same]

    def test_what_transformers_has_no_class_for_goes_as_a_litebert_folder(
        self, litebert: Litebert, server: Hub, tmp_path: Path
    ) -> None:
        odd = tiny(("mlm",), norm="pre", max_positions=64)
        save_litebert(odd, small_tokenizer(), tmp_path / "odd")
        server.add("me/odd", {"config.json": b"{}", "pytorch_model.bin": b"", "notes.txt": b"kept"})
        ended = litebert("push", tmp_path / "odd", "hf:me/odd", **self.TOKEN)
        assert ended.status == 0, ended.err
        assert "litebert folder" in ended.err
        files = server.repositories["me/odd"].commits[commit_of(server, "me/odd")]
        assert "recipe.json" in files
        assert not {"config.json", "pytorch_model.bin"} & set(files)  # of the model before
        assert files["notes.txt"] == b"kept"
        ended = embed(litebert, "hf:me/odd")
        assert ended.status == 0, ended.err

    def test_what_is_refused(self, litebert: Litebert, server: Hub, model_folder: Path) -> None:
        server.add("me/public", {})
        before = dict(server.repositories["me/public"].refs)
        push = partial(litebert, "push", model_folder)
        assert "hf auth login" in last(push("hf:me/model"))
        assert "hf auth login" in last(push("hf:me/model", HF_TOKEN="hf_other"))
        assert "everyone can read it" in last(push("hf:me/public", "--private", **self.TOKEN))
        assert "hf:OWNER/NAME" in last(push("me/model"))
        assert "@v2" in last(push("hf:me/model@v2"))
        assert "hf:OWNER/model" in last(push("hf:model", **self.TOKEN))
        offline = {**self.TOKEN, "HF_HUB_OFFLINE": "1"}
        assert "HF_HUB_OFFLINE" in last(push("hf:me/model", **offline))
        unreachable = {**self.TOKEN, "HF_ENDPOINT": "http://127.0.0.1:9"}
        assert "cannot be reached" in last(push("hf:me/model", **unreachable))
        assert server.repositories["me/public"].refs == before
        assert "me/model" not in server.repositories


class TestEnvironment:
    """Nonsense in the environment is one sentence, and a Hub that never answers is given up."""

    @pytest.mark.parametrize(
        "variables",
        [
            {"HF_ENDPOINT": "http://127.0.0.1:99999"},
            {"HF_ENDPOINT": "http://["},
            {"HF_ENDPOINT": "nonsense"},
            {"HF_HUB_ETAG_TIMEOUT": "x"},
            {"HF_HUB_DOWNLOAD_TIMEOUT": "1m"},
        ],
    )
    @pytest.mark.parametrize("verb", ["embed", "push"])
    def test_nonsense_is_one_sentence(
        self, variables: dict[str, str], verb: str, process: Callable[..., Ended], home: Path
    ) -> None:
        words = {
            "embed": (f"hf:{NAME}", "--input", "table.csv", "--out", "vectors.npy"),
            "push": ("model", "hf:me/model"),
        }[verb]
        save_litebert(tiny(("mlm",)), small_tokenizer(), Path("model"))
        said = last(process(verb, *words, **variables))
        assert any(name in said or value in said for name, value in variables.items()), said

    def test_a_hub_that_never_answers_is_given_up(
        self, litebert: Litebert, model_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fetching, "ANSWER_SECONDS", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"http://127.0.0.1:{silent.getsockname()[1]}"
            said = last(
                litebert("push", model_folder, "hf:me/model", HF_ENDPOINT=address, HF_TOKEN="hf_x")
            )
        assert "cannot be reached" in said


def last(ended: Ended) -> str:
    """The sentence with which a command ends that is refused, after what it says of its work."""
    assert ended.status == 2, ended.err
    assert "Traceback" not in ended.err
    return ended.err.splitlines()[-1]
