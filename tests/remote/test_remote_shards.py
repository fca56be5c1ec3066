"""Shards of a store are read through a bounded cache, as they are read from the disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litebert.base.errors import ConfigError, DataError
from litebert.data import shards as disk
from litebert.data.shards import Shards
from litebert.remote import cache
from litebert.train.pretrain import pretrain
from toys.prepare import run as prepare
from toys.pretraining import config, result
from toys.refusals import refused
from toys.s3 import Fault, Store

Run = Callable[..., tuple[int, str, str]]
URL = "s3://texts/data"


@pytest.fixture
def data(tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path, store: Store) -> Path:
    """A set of a dozen shards, here and in the store."""
    folder = tmp_path / "data"
    prepare(tiny_corpus, folder, tiny_tokenizer, shard_bytes=5000)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(f"data/{path.relative_to(folder)}", path.read_bytes())
    return folder


def limit_cache(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setenv(cache.SIZE_VARIABLE, str(size / 1e9))


def measure_cache() -> int:
    """The bytes of shards; the tokenizer and index of a set stay while it may be in use."""
    return sum(path.stat().st_size for path in cache.find_folder().glob("*.arrow"))


def list_fetches(store: Store) -> list[str]:
    return [line for line in store.requests if line.startswith("GET") and ".arrow" in line]


def test_documents_are_those_of_the_disk(data: Path, store: Store) -> None:
    local, remote = Shards.open(data), Shards.open(URL)
    assert list_fetches(store) == [], "an open set fetches nothing that is not read"
    assert remote.fingerprint == local.fingerprint
    order = np.random.default_rng(1).integers(0, local.train.documents, 100)
    expected, documents = local.train.read(order), remote.train.read(order)
    assert documents.tokens.tolist() == expected.tokens.tolist()
    for number in range(local.train.documents):
        ids, starts = remote.train.read_document(number)
        assert ids.tolist() == local.train.read_document(number)[0].tolist()
        assert starts.tolist() == local.train.read_document(number)[1].tolist()
    assert remote.train.document_tokens.tolist() == local.train.document_tokens.tolist()


@pytest.mark.thorough
def test_pretraining_is_that_of_local_shards_bit_for_bit(
    data: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the cache holds three of the shards, and while the network fails."""
    point = config()
    pretrain(point, data, tmp_path / "local")
    pretrain(point, URL, tmp_path / "remote")
    assert result(tmp_path / "remote") == result(tmp_path / "local")
    record, expected = (
        json.loads((tmp_path / name / "run.json").read_text()) for name in ("remote", "local")
    )
    assert record["data_fingerprint"] == expected["data_fingerprint"]
    assert record["data"] == URL

    store.requests.clear()
    pretrain(point, URL, tmp_path / "again")
    assert list_fetches(store) == [], "the cache has everything"

    shutil.rmtree(cache.find_folder())
    limit_cache(monkeypatch, 3 * max(path.stat().st_size for path in data.glob("*.arrow")))
    store.faults = [Fault(kind, 1) for kind in ("busy", "cut", "short", "reset")]
    pretrain(point, URL, tmp_path / "small")
    small = result(tmp_path / "small")
    lines = small["metrics"].splitlines()
    assert b"LITEBERT_CACHE_GB" in lines[0]
    assert {**small, "metrics": b"\n".join(lines[1:]) + b"\n"} == result(tmp_path / "local")
    assert list_fetches(store)
    pretrain(point, data, tmp_path / "remote")  # the run is that of the shards, not of the URL


@pytest.mark.thorough
def test_processes_that_make_batches_open_the_store(
    data: Path, store: Store, tmp_path: Path
) -> None:
    point = config(train={"batch_processes": 2, "budget": "4 steps"})
    pretrain(point, data, tmp_path / "local")
    pretrain(point, URL, tmp_path / "remote")
    assert result(tmp_path / "remote") == result(tmp_path / "local")


def test_the_cache_stays_within_its_limit_and_drops_the_oldest(
    data: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Shards.open(URL)
    files = sorted(data.glob("train-*.arrow"), key=lambda path: path.name)
    limit = 4 * max(path.stat().st_size for path in files)
    limit_cache(monkeypatch, limit)
    index = {entry["file"]: entry for entry in remote.index["shards"]}
    for path in files:
        entry = index[path.name]
        copy = cache.fetch(f"{URL}/{path.name}", entry["bytes"], entry["sha256"])
        assert copy.read_bytes() == path.read_bytes()
        assert measure_cache() <= limit
    present = [
        (cache.find_folder() / f"{index[path.name]['sha256']}.arrow").exists() for path in files
    ]
    assert present[-1]
    assert present[-3:] == [True] * 3
    assert not present[0]


def fetch_all(url: str, entries: list[tuple[str, int, str]]) -> None:
    for file, size, sha256 in entries:
        cache.fetch(f"{url}/{file}", size, sha256)


@pytest.mark.thorough
def test_processes_and_threads_that_share_a_cache_fetch_a_file_once(
    data: Path, store: Store
) -> None:
    entries = [
        (entry["file"], entry["bytes"], entry["sha256"])
        for entry in Shards.open(URL).index["shards"]
    ]
    store.requests.clear()
    code = (
        "import json, sys; from litebert.remote import cache\n"
        "for file, size, digest in json.loads(sys.argv[1]):\n"
        f"    cache.fetch('{URL}/' + file, size, digest)"
    )
    program = [sys.executable, "-c", code, json.dumps(entries)]
    processes = [subprocess.Popen(program) for _ in range(2)]
    threads = [threading.Thread(target=fetch_all, args=(URL, entries)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list_fetches(store)) == len(entries)


def test_a_shard_that_vanishes_from_the_cache_is_fetched_again(data: Path, store: Store) -> None:
    local, remote = Shards.open(data), Shards.open(URL)
    expected = local.train.read_document(0)[0].tolist()
    assert remote.train.read_document(0)[0].tolist() == expected
    for path in cache.find_folder().glob("*.arrow"):
        path.unlink()
    again = Shards.open(URL)
    assert again.train.read_document(0)[0].tolist() == expected


def test_a_damaged_shard_is_refused(data: Path, store: Store) -> None:
    name = "train-00000.arrow"
    content = bytearray((data / name).read_bytes())
    content[len(content) // 2] ^= 1
    store.put(f"data/{name}", bytes(content))
    with refused(DataError, f"{URL}/{name}", "sha256"):
        Shards.open(URL, verify=True)
    store.put(f"data/{name}", bytes(content[:-1]))
    with refused(DataError, f"{URL}/{name}", len(content)):
        _ = Shards.open(URL).train.document_tokens


def test_a_damaged_copy_is_replaced(data: Path, store: Store) -> None:
    remote = Shards.open(URL, verify=True)
    entry = remote.index["shards"][0]
    copy = cache.find_folder() / f"{entry['sha256']}.arrow"
    copy.write_bytes(b"\0" * entry["bytes"])
    Shards.open(URL, verify=True)
    assert copy.read_bytes() == (data / entry["file"]).read_bytes()


def test_what_is_no_finished_set_is_refused(data: Path, store: Store) -> None:
    with refused(DataError, "s3://texts/none"):
        Shards.open("s3://texts/none")
    store.client.delete_object(Bucket="texts", Key="data/index.json")
    with refused(DataError, URL, disk.INDEX):
        Shards.open(URL)
    store.put("data/index.json", b"{}")
    with refused(DataError, f"{URL}/{disk.INDEX}"):
        Shards.open(URL)


def test_a_limit_that_is_no_number_is_refused(
    data: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("much", "0", "-1", "nan", "inf"):
        monkeypatch.setenv(cache.SIZE_VARIABLE, value)
        with refused(ConfigError, cache.SIZE_VARIABLE, value):
            cache.read_limit()


def test_a_cache_that_cannot_be_written_is_named(
    data: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "file"))
    with refused(DataError, tmp_path / "file", cache.FOLDER_VARIABLE):
        Shards.open(URL)
