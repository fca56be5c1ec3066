"""Near-duplicates: signatures beside exact similarities and datasketch, and prepare with them."""

from __future__ import annotations

import json
import runpy
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.cli import main
from litebert.data.near_duplicates import (
    SHINGLE,
    choose_bands,
    estimate,
    find_near_duplicates,
    sign,
    write_signatures,
)
from litebert.data.prepare import PrepareConfig, prepare
from litebert.data.shard_files import Block
from litebert.data.shards import Shards
from toys.prepare import content
from toys.refusals import refused

Ids = npt.NDArray[np.int64]


def make_block(documents: list[Ids]) -> Block:
    """One sentence a document."""
    ends = np.cumsum([0, *map(len, documents)]).astype(np.int32)
    ids = np.concatenate([*documents, np.empty(0)]).astype(np.uint16)
    return Block(ids, ends, np.arange(len(ends), dtype=np.int32))


PLANTED = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "near_duplicates.py"))


def plant(count: int, seed: int) -> tuple[list[Ids], list[tuple[int, int, float]]]:
    """Make documents with near-duplicates of five kinds, and list each pair and its similarity."""
    documents, versions = PLANTED["plant"](count, seed)
    pairs = [(original, number, value) for number, (_, original, value) in versions.items()]
    return documents, pairs


def list_runs(ids: Ids) -> set[tuple[int, ...]]:
    count = len(ids) - SHINGLE + 1
    return {tuple(ids[i : i + SHINGLE].tolist()) for i in range(count)} or {tuple(ids.tolist())}


def find(documents: list[Ids], similarity: float, tmp_path: Path) -> npt.NDArray[np.bool_]:
    with open(tmp_path / "signatures", "w+b") as file:
        count = write_signatures(file, [make_block(documents)])
        return find_near_duplicates(file, similarity, np.zeros(count, bool)).dropped


def test_estimates_are_those_of_exact_similarities() -> None:
    documents, pairs = plant(2000, 0)
    signatures = sign(make_block(documents))
    left, right, similarity = (np.array(values) for values in zip(*pairs, strict=True))
    errors = estimate(signatures[left], signatures[right]) - similarity
    # The standard error of 128 minima is at most 4.5 points.
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.045


def test_estimates_are_as_near_as_those_of_datasketch() -> None:
    datasketch = pytest.importorskip("datasketch")
    documents, pairs = plant(600, 1)
    signatures = sign(make_block(documents))
    sketches = []
    for document in documents:
        sketch = datasketch.MinHash(num_perm=128)
        sketch.update_batch([repr(run).encode() for run in list_runs(document)])
        sketches.append(sketch)
    differences = np.array(
        [
            (
                estimate(signatures[[left]], signatures[[right]])[0] - similarity,
                sketches[left].jaccard(sketches[right]) - similarity,
            )
            for left, right, similarity in pairs
        ]
    )
    error, peer_error = np.sqrt((differences**2).mean(axis=0))
    assert error < 1.3 * peer_error


@pytest.mark.parametrize("similarity", [0.75, 0.8, 0.85])
def test_planted_near_duplicates_are_dropped_and_no_others(
    similarity: float, tmp_path: Path
) -> None:
    documents, pairs = plant(2000, 2)
    dropped = find(documents, similarity, tmp_path)
    originals = np.ones(len(documents), bool)
    originals[[right for _, right, _ in pairs]] = False
    assert not dropped[originals].any(), "the first of each group stays"
    # An estimate may miss by a few points, so pairs near the border may fall on either side.
    certain = [right for _, right, value in pairs if value >= similarity + 0.08]
    others = [right for _, right, value in pairs if value <= similarity - 0.08]
    assert len(certain) > 5
    assert dropped[certain].mean() > 0.97
    assert dropped[others].sum() <= 0.05 * len(others)


def test_a_chain_of_versions_leaves_its_first(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    versions = [draw.integers(0, 8000, 400)]
    for _ in range(5):
        versions.append(np.concatenate([versions[-1][20:], draw.integers(0, 8000, 20)]))
    assert find(versions, 0.7, tmp_path).tolist() == [False, True, True, True, True, True]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=12))
def test_documents_of_any_length_equal_only_their_likes(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[int]]
) -> None:
    """At similarity 1, exactly the documents with the runs of an earlier one are dropped."""
    documents = [np.array(ids) for ids in drawn]
    dropped = find(documents, 1.0, tmp_path_factory.mktemp("drawn"))
    seen: set[frozenset[tuple[int, ...]]] = set()
    for document, drop in zip(documents, dropped, strict=True):
        runs = frozenset(list_runs(document))
        assert drop == (runs in seen)
        seen.add(runs)


def test_signatures_do_not_depend_on_the_block() -> None:
    documents, _ = plant(300, 4)
    whole = sign(make_block(documents))
    alone = np.concatenate([sign(make_block([document])) for document in documents])
    assert (whole == alone).all()


@pytest.mark.thorough
def test_memory_is_less_than_60_bytes_a_document(tmp_path: Path) -> None:
    """The signatures lie on the disk. The hashes of exact duplicates are not counted here."""
    count, file = 200_000, tmp_path / "signatures"
    draw = np.random.default_rng(0)
    with open(file, "wb") as out:
        for _ in range(20):
            out.write(draw.integers(0, 2**32, (count // 20, 128), np.uint32).data)
    tracemalloc.start()
    try:
        with open(file, "rb") as signatures:
            find_near_duplicates(signatures, 0.8, np.zeros(count, bool))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / count < 60


def test_bands_find_pairs_that_are_as_similar_as_asked() -> None:
    for similarity in np.linspace(0.5, 1, 26):
        bands, rows = choose_bands(float(similarity))
        assert bands * rows <= 128
        assert 1 - (1 - similarity**rows) ** bands >= 0.95


# -------------------------------------------------------------------------------- through prepare


@pytest.fixture
def versions(tiny_corpus: Path, tmp_path: Path) -> Path:
    """A corpus in which ten documents come back with another beginning, five as they are, and three
    of the ten once more."""
    texts = tiny_corpus.read_text().strip().split("\n\n")
    long = [f"{texts[i]} {texts[i + 1]} {texts[i + 2]}" for i in range(0, 60, 3)]
    near = [f"Boda. {text}" for text in long[:10]]
    file = tmp_path / "versions.txt"
    file.write_text("\n\n".join([*long, *near, *long[:5], *texts[60:], *near[:3]]))
    return file


def test_prepare_drops_near_duplicates_and_shows_some(
    versions: Path, tiny_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prepare", str(versions), "--tokenizer", str(tiny_tokenizer), "--processes", "1"]
    words += ["--near-duplicates", "0.7", "--out", str(tmp_path / "data")]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "near-duplicates dropped" in out
    assert "dropped at" in out
    index = json.loads((tmp_path / "data" / "index.json").read_text())
    assert index["near_duplicates"]["documents"] == 10
    assert index["documents"]["duplicates"] == 8
    for example in index["near_duplicates"]["examples"]:
        assert example["dropped"].startswith("boda.")
        assert example["dropped"].removeprefix("boda. ")[:20] in example["kept"]
    assert not (tmp_path / "data.parts").exists()
    before = content(tmp_path / "data")
    assert main(words) == 0, "a finished folder is opened"
    assert content(tmp_path / "data") == before
    assert main([*words[:-3], "0.9", "--out", str(tmp_path / "data")]) == 2
    assert "near_duplicates" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_drop_the_same_near_duplicates(
    count: int, versions: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    whole = prepare(
        [str(versions)],
        tmp_path / "whole",
        tokenizer=tiny_tokenizer,
        processes=1,
        config=PrepareConfig(heldout=0.1, near_duplicates=0.7),
    )
    out = tmp_path / "data"
    words = ["prepare", str(versions), "--tokenizer", str(tiny_tokenizer), "--processes", "1"]
    words += ["--heldout", "0.1", "--near-duplicates", "0.7", "--out", str(out)]
    for number in range(count, 0, -1):
        assert main([*words, "--part", f"{number}/{count}"]) == 0
    assert main(["merge", str(out)]) == 0
    merged = Shards.open(out)
    assert merged.fingerprint == whole.fingerprint
    assert merged.index["near_duplicates"] == whole.index["near_duplicates"]


def test_similarities_out_of_range_are_refused(
    versions: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    with refused(DataError, "near_duplicates"):
        prepare(
            [str(versions)],
            tmp_path / "x",
            tokenizer=tiny_tokenizer,
            config=PrepareConfig(near_duplicates=0.3),
        )
