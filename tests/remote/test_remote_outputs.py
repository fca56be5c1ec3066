"""Sets and parts are written to a store, bit for bit as to the disk, whenever they are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import litebert
from answer.test_engines import model_folder
from litebert.base import storage
from litebert.base.errors import DataError
from litebert.data import shards as disk
from litebert.data.building import Journal
from litebert.data.shards import Shards
from litebert.parts import MARKER, Part, Turns
from litebert.parts.windows import Window, write_part
from litebert.remote import cache, stores
from litebert.remote.target import open_target
from toys.prepare import SHARD_BYTES, content, run_part, start, tree
from toys.prepare import run as prepare
from toys.refusals import refused
from toys.s3 import SECRET, Fault, Store

Run = Callable[..., tuple[int, str, str]]
URL = "s3://texts/data"


@pytest.fixture(scope="module")
def whole(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The set on the disk."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    prepare(tiny_corpus, folder, tiny_tokenizer)
    return folder


def test_a_set_in_a_store_is_that_on_the_disk(
    whole: Path, store: Store, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    """Nothing else stays there, and the command given again writes nothing."""
    shards = prepare(tiny_corpus, URL, tiny_tokenizer)
    assert store.content("data/") == content(whole)
    assert shards.name == URL
    assert shards.train.documents == Shards.open(whole).train.documents
    writes = [line for line in store.requests if line.startswith("PUT")]
    assert writes[-1].startswith(f"PUT /texts/data/{disk.INDEX}"), "the index comes last"
    store.requests.clear()
    prepare(tiny_corpus, URL, tiny_tokenizer)
    assert [line for line in store.requests if not line.startswith(("GET", "HEAD"))] == []
    assert not list(cache.find_folder().glob(".writing-*/files/*.arrow"))


@pytest.mark.thorough
def test_faults_change_no_byte(
    whole: Path, store: Store, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    store.faults = [
        Fault("busy", 2, "PUT", "train-00001"),
        Fault("reset", 2, "PUT", "train-00000"),
        Fault("busy", 2, "PUT", "index.json"),
        Fault("cut", 1, "PUT", "tokenizer.json"),
        Fault("busy", 2, "DELETE"),
        Fault("busy", 2, "HEAD"),
    ]
    prepare(tiny_corpus, URL, tiny_tokenizer)
    assert store.content("data/") == content(whole)
    assert not any(fault.times for fault in store.faults), "the faults happened"


@pytest.mark.thorough
def test_a_store_that_fails_for_good_is_named_and_the_set_continues(
    whole: Path, store: Store, tiny_corpus: Path, tiny_tokenizer: Path, run: Run
) -> None:
    store.faults = [Fault("busy", -1, "PUT", "train-00001")]
    words = ("prepare", tiny_corpus, "--tokenizer", tiny_tokenizer, "--out")
    with refused(DataError, f"{URL}/train-00001.arrow"):
        prepare(tiny_corpus, URL, tiny_tokenizer)
    assert disk.INDEX not in store.content("data/")
    with refused(DataError, URL, disk.INDEX):
        Shards.open(URL)
    store.faults.clear()
    prepare(tiny_corpus, URL, tiny_tokenizer)
    assert store.content("data/") == content(whole)
    for bucket in ("no-such-bucket", "texts"):
        store.requests.clear()
        store.faults = [Fault("busy", -1)] if bucket == "texts" else []
        status, _, err = run(*words, f"s3://{bucket}/other")
        assert status == 2
        assert f"s3://{bucket}/other" in err
        if bucket == "no-such-bucket":
            assert "does not exist" in err
            assert [line for line in store.requests if line.startswith("PUT")] == []
        assert SECRET not in err


@pytest.mark.thorough
def test_two_machines_that_write_one_folder_are_told_of_each_other(
    whole: Path,
    store: Store,
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other machine begins after this one has sent a shard, and is warned."""
    write, names = stores.write_file, list[str]()

    def begin_another(url: str, sent: bytes | Path) -> None:
        write(url, sent)
        if url.endswith("train-00000.arrow") and not names:
            names.append("other")
            with monkeypatch.context() as patch:
                patch.setattr(socket, "gethostname", lambda: "other")
                patch.setenv("LITEBERT_CACHE", str(tmp_path / "other"))
                prepare(tiny_corpus, URL, tiny_tokenizer)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "first-machine")
        patch.setattr(stores, "write_file", begin_another)
        with caplog.at_level("WARNING"):
            prepare(tiny_corpus, URL, tiny_tokenizer)
    assert names == ["other"]
    (warned,) = [text for text in caplog.messages if "began to write" in text]
    assert warned.startswith(f"first-machine began to write {URL} at 2")
    assert store.content("data/") == content(whole), "no name of a machine is left"
    caplog.clear()
    write(f"{URL}/writer.json", b"torn")
    prepare(tiny_corpus, URL, tiny_tokenizer)
    assert "began to write" not in caplog.text


@pytest.mark.thorough
def test_another_machine_continues_and_other_settings_are_refused(
    whole: Path, store: Store, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    store.faults = [Fault("busy", -1, "PUT", "train-00002")]
    with refused(DataError, URL):
        prepare(tiny_corpus, URL, tiny_tokenizer)
    assert Journal.NAME in store.content("data/")
    store.faults.clear()
    shutil.rmtree(cache.find_folder())
    with refused(DataError, URL, "heldout"):
        prepare(tiny_corpus, URL, tiny_tokenizer, heldout=0.2)
    store.requests.clear()
    prepare(tiny_corpus, URL, tiny_tokenizer)
    assert store.content("data/") == content(whole)
    writes = [line for line in store.requests if line.startswith("PUT")]
    assert not any("train-00000" in line for line in writes), "a finished shard stays"
    with refused(DataError, URL, "heldout"):
        prepare(tiny_corpus, URL, tiny_tokenizer, heldout=0.2)


def test_a_folder_with_other_files_is_refused(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    store.put("data/holiday.jpg", b"")
    with refused(DataError, URL, "holiday.jpg"):
        prepare(tiny_corpus, URL, tiny_tokenizer)


def test_an_error_deletes_the_name_of_this_machine_alone(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    """A killed process left its name, or another machine writes."""
    store.put("data/holiday.jpg", b"")
    for host, stays in ((socket.gethostname(), False), ("other", True)):
        writer = json.dumps({"host": host, "began": "2026-01-01T00:00:00Z"}).encode()
        store.put("data/writer.json", writer)
        with refused(DataError, URL, "holiday.jpg"):
            prepare(tiny_corpus, URL, tiny_tokenizer)
        assert ("writer.json" in store.content("data/")) is stays
    # The other machine begins after this one.
    target = open_target(URL)
    with target.open() as folder:
        (folder / "index.json").write_text("{}")
        target.send("index.json")
        assert json.loads(store.content("data/")["writer.json"])["host"] == socket.gethostname()
        store.put("data/writer.json", writer)
    assert store.content("data/")["writer.json"] == writer


def make_part(part: str, corpus: Path, tokenizer: Path, out: str = URL, **options: Any) -> Any:
    return run_part(part, corpus, out, tokenizer, **options)


@pytest.mark.thorough
@pytest.mark.parametrize("near_duplicates", [0.0, 0.8])
def test_parts_in_a_store_are_merged_there(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path, near_duplicates: float
) -> None:
    prepare(tiny_corpus, tmp_path / "data", tiny_tokenizer, near_duplicates=near_duplicates)
    for part in ("2/3", "3/3", "1/3"):
        make_part(part, tiny_corpus, tiny_tokenizer, near_duplicates=near_duplicates)
        if part != "1/3":
            with refused(DataError, "1/3", f"{URL}.parts/1-of-3/{MARKER}"):
                litebert.merge(URL)
    store.requests.clear()
    make_part("1/3", tiny_corpus, tiny_tokenizer, near_duplicates=near_duplicates)
    assert not [line for line in store.requests if line.startswith("PUT")], "it is finished"
    litebert.merge(URL)
    assert store.content("data/") == content(tmp_path / "data")
    prepare(tiny_corpus, f"{URL}2", tiny_tokenizer, near_duplicates=near_duplicates)
    assert store.content("data2/") == content(tmp_path / "data")
    assert store.content("data2.parts/") == {}


@pytest.mark.parametrize(
    "key",
    [
        "data.parts/1-of-1/tokenizer/../../../../../../../{outside}",
        "data.parts/1-of-1/tokenizer/..\\..\\{outside}",
        "data.parts/1-of-1/a//{outside}",
        "data.parts/1-of-1/./x/{outside}",
        "data/tokenizer/..",
    ],
)
def test_a_bucket_writes_no_file_elsewhere(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path, key: str
) -> None:
    make_part("1/1", tiny_corpus, tiny_tokenizer)
    litebert.merge(URL)
    outside = tmp_path / "outside.txt"
    shutil.rmtree(tmp_path / "cache")
    store.put(key.format(outside=str(outside).lstrip("/")), b"written by the bucket")
    with refused(DataError, "not the name of a file in this folder"):
        _ = Shards.open(URL) if key.startswith("data/") else litebert.merge(URL)
    assert not outside.exists()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ""]


@pytest.mark.parametrize("digest", ["../../../outside", "", "g" * 64, "A" * 64, "a" * 63])
def test_a_checksum_that_is_none_names_no_file(store: Store, tmp_path: Path, digest: str) -> None:
    store.put("x.arrow", b"12")
    with refused(DataError, "s3://texts/x.arrow", "sha256"):
        cache.fetch("s3://texts/x.arrow", 2, digest)
    assert not (tmp_path / "cache").exists()


@pytest.mark.thorough
def test_a_set_in_a_store_is_searched_for_held_out_texts(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """After its shards have left this machine; by parts too."""
    check = {"check_against": ["heldout"]}
    prepare(tiny_corpus, tmp_path / "data", tiny_tokenizer, **check)
    prepare(tiny_corpus, URL, tiny_tokenizer, **check)
    assert store.content("data/") == content(tmp_path / "data")
    for part in ("1/2", "2/2"):
        make_part(part, tiny_corpus, tiny_tokenizer, out=f"{URL}2", **check)
    litebert.merge(f"{URL}2")
    assert store.content("data2/") == content(tmp_path / "data")


@pytest.mark.thorough
def test_a_small_cache_changes_no_merge(
    store: Store,
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tokenizer of a part stays in it until the merge ends."""
    monkeypatch.setenv(cache.SIZE_VARIABLE, "0.00001")
    prepare(tiny_corpus, tmp_path / "data", tiny_tokenizer, near_duplicates=0.8)
    for part in ("1/2", "2/2"):
        make_part(part, tiny_corpus, tiny_tokenizer, near_duplicates=0.8)
    litebert.merge(URL)
    assert store.content("data/") == content(tmp_path / "data")


def test_a_folder_that_a_console_made_is_empty(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    store.put("data/", b"")
    assert prepare(tiny_corpus, URL, tiny_tokenizer).train.documents > 0


@pytest.mark.thorough
def test_the_command_line_writes_to_a_store(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    words = ("prepare", tiny_corpus, "--tokenizer", tiny_tokenizer, "--processes", "1", "--out")
    assert run(*words, tmp_path / "data")[0] == 0
    status, out, err = run(*words, URL)
    assert status == 0
    assert f"--shards {URL}" in out + err
    assert store.content("data/") == content(tmp_path / "data")
    for part in ("1/2", "2/2"):
        status, out, err = run(*words, f"{URL}-merged", "--part", part)
        assert status == 0, err
        assert f"merge {URL}-merged" in out + err
    assert run("merge", f"{URL}-merged")[0] == 0
    assert store.content("data-merged/") == content(tmp_path / "data")
    status, _, err = run("merge", "s3://texts/none")
    assert status == 2
    assert "s3://texts/none.parts" in err


@pytest.mark.thorough
def test_answers_vectors_and_scores_are_written_to_a_store(
    store: Store, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    """As files here, whole and in parts that are merged; nothing stays in the cache."""
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    rows = [f"text {number} of some words,{('red', 'blue')[number % 2]}" for number in range(1_100)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    source = ("--input", tmp_path / "rows.csv")
    verbs = {
        "answers.csv": ("predict", model, *source),
        "answers.jsonl": ("predict", model, *source),
        "vectors.npy": ("embed", model, *source, "--vector-dtype", "int8"),
        "vectors.jsonl": ("embed", model, *source),
        "scores.json": ("evaluate", model, "--data", tmp_path / "rows.csv"),
    }
    local = tmp_path / "local"
    local.mkdir()
    for name, words in verbs.items():
        status, _, err = run(*words, "--out", local / name)
        assert status == 0, err
        if name != "scores.json":  # which is not divided
            for part in ("2/2", "1/2"):
                status, out, err = run(*words, "--out", f"s3://texts/parts/{name}", "--part", part)
                assert status == 0, err
                assert f"merge s3://texts/parts/{name}" in out + err
            status, out, err = run("merge", f"s3://texts/parts/{name}")
            assert status == 0, err
        store.requests.clear()
        status, out, err = run(*words, "--out", f"s3://texts/whole/{name}")
        assert status == 0, err
        assert "s3://texts/whole/" in out + err or name == "scores.json"
    expected = content(local)
    assert store.content("whole/") == expected
    merged = store.content("parts/")
    del expected["scores.json"]
    assert {name: data for name, data in merged.items() if ".parts/" not in name} == expected
    left = [path for path in cache.find_folder().glob(".writing-*/**/*") if path.is_file()]
    assert {path.name for path in left} <= {storage.LOCK}


def test_a_part_in_a_store_continues_on_another_machine(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It computes only the windows that the store lacks."""
    identity = {"verb": "embed", "version": "1", "fingerprint": "f", "input": {}, "settings": {}}
    computed: list[int] = []

    def compute(turns: Turns) -> Iterator[Window]:
        for number in range(6):
            if number in turns:
                if len(computed) == 2:
                    raise KeyboardInterrupt
                computed.append(number)
                yield [{"n": number}], None

    def write() -> int:
        out, part = "s3://texts/out.jsonl", Part(1, 2)
        return write_part(out, part, identity, compute, lambda: {"rows": 6})

    with pytest.raises(KeyboardInterrupt):
        write()
    assert computed == [0, 2]
    monkeypatch.setenv("LITEBERT_CACHE", str(tmp_path / "other"))
    computed.clear()
    assert write() == 3
    assert computed == [4]
    assert write() == 3
    assert computed == [4]
    assert set(store.content("out.jsonl.parts/1-of-2/")) == {"part.json", "windows.jsonl"}


@pytest.mark.thorough
def test_an_output_in_a_store_keeps_the_answers_before_a_bad_row(
    store: Store, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    rows = "\n".join('{"text": "good"}' for _ in range(300))
    (tmp_path / "rows.jsonl").write_text(f"{rows}\n{{bad\n")
    words = ("predict", model, "--input", tmp_path / "rows.jsonl", "--out")
    status, _, err = run(*words, tmp_path / "here.csv")
    assert status == 2
    status, _, err = run(*words, "s3://texts/there.csv")
    assert status == 2
    assert store.content("there")[".csv"] == (tmp_path / "here.csv").read_bytes()
    assert "to s3://texts/there.csv" in err
    assert ".writing" not in err
    for out in (
        *("s3://texts/", "s3://texts", "nosuch://a/b.csv", "file:///tmp/x.csv"),
        "s3://no-such-bucket/there.csv",
    ):
        status, _, err = run(*words, out)
        assert (status, len(err.strip().split("\n"))) == (2, 1), err
        assert "rows.jsonl" not in err, "it is refused before a row is read"


@pytest.mark.thorough
def test_an_output_that_a_store_refuses_stays_here(
    store: Store, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    """And vectors never get the scale of others."""
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text(f"{number} text of words\n" * (2 * number))
    words = ("embed", model, "--vector-dtype", "int8", "--input")
    assert run(*words, tmp_path / "1.txt", "--out", tmp_path / "v.npy")[0] == 0
    assert run(*words, tmp_path / "1.txt", "--out", "s3://texts/v.npy")[0] == 0
    store.faults.append(Fault("busy", -1, "PUT", "v.npy"))
    status, _, err = run(*words, tmp_path / "2.txt", "--out", "s3://texts/v.npy")
    assert status == 2
    (folder,) = cache.find_folder().glob("unsent-*")
    assert str(folder) in err
    assert "v.npy" not in store.content(), "with the new scale it would be other vectors"
    store.faults.clear()
    assert run(*words, tmp_path / "2.txt", "--out", tmp_path / "v.npy")[0] == 0
    assert (folder / "output.npy").read_bytes() == (tmp_path / "v.npy").read_bytes()
    assert run(*words, tmp_path / "2.txt", "--out", "s3://texts/v.npy")[0] == 0
    assert store.content("v") == {
        name: (tmp_path / f"v{name}").read_bytes() for name in (".npy", ".scale.npy")
    }
    assert not folder.exists()


@pytest.mark.thorough
def test_a_long_name_and_another_spelling_of_the_input(
    store: Store, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    store.put("in.jsonl", b'{"text": "good"}\n')
    words = ("predict", model, "--input", "s3://texts/in.jsonl", "--out")
    name = f"{'n' * 300}.jsonl"
    assert run(*words, f"s3://texts/{name}")[0] == 0
    assert name in store.content()
    status, _, err = run(*words, "s3a://texts/in.jsonl")
    assert status == 2
    assert "--input itself" in err
    assert store.content()["in.jsonl"] == b'{"text": "good"}\n'


def test_no_secret_is_recorded(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    from litebert.data.prepare import PrepareConfig, TextCorpus
    from litebert.remote import stores
    from litebert.tokenizer import Tokenizer

    stores.write_file("memory://me:hush@corpus/a.txt", tiny_corpus.read_bytes())
    sources, tokenizer = ["memory://me:hush@corpus/a.txt"], Tokenizer.load(tiny_tokenizer)
    header = json.dumps(TextCorpus(sources, "", PrepareConfig(), tokenizer, 1).header)
    assert "hush" not in header
    assert "memory://...@corpus/a.txt" in header


@pytest.mark.slow
def test_killed_at_random_instants_it_ends_with_the_same_bytes(
    whole: Path, store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """And no killed run leaves a folder that opens."""
    draw, kills = random.Random(0), 0
    arguments = (tmp_path, tiny_corpus, URL, tiny_tokenizer, 0.1, SHARD_BYTES)
    assert start(*arguments).wait() == 0
    total = count_writes(store)
    for _ in range(6):
        store.clear()
        is_killed = True
        while is_killed:
            store.requests.clear()
            process, writes = start(*arguments), draw.randint(1, total)
            while process.poll() is None and count_writes(store) < writes:
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.1))
            is_killed = process.poll() is None
            for number in tree(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()
            kills += is_killed
            if disk.INDEX not in store.content("data/"):
                with refused(DataError, URL):
                    Shards.open(URL)
        assert process.returncode == 0
        assert store.content("data/") == content(whole)
    assert kills >= 6


def count_writes(store: Store) -> int:
    return sum(line.startswith("PUT") for line in store.requests)
