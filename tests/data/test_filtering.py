"""`prepare --filters`: what is dropped is counted and shown, whoever does the work and however."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import litebert
from litebert.base.errors import DataError, MissingExtraError
from litebert.cli import main
from litebert.data import dealing, shard_files
from litebert.data.prepare import PrepareConfig, prepare, prepare_part
from litebert.data.shards import Shards
from toys.prepare import SHARD_BYTES, Interrupted, content
from toys.refusals import refused
from toys.typed import typed

FILTERS = ("fineweb", "c4", "gopher")
CONFIG = PrepareConfig(heldout=0.1, shard_bytes=SHARD_BYTES, filters=FILTERS)


@pytest.fixture(scope="module")
def corpus(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages, some of which break a rule, in three files with duplicates within and across."""
    words, draw = sorted(set(tiny_corpus.read_text().lower().replace(".", "").split())), Random(0)
    pages = []
    for number in range(60):
        lines = [f"The {' '.join(draw.sample(words, 20))} of the word to end." for _ in range(9)]
        if number % 6 == 1:
            lines = [line[:20] for line in lines]
        if number % 6 == 2:
            lines = [f"- {line}" for line in lines]
        if number % 6 == 3:
            lines = [*lines, "Home | About us", "We use cookies on this page."]
        if number % 6 == 4:
            lines = [*lines, "if (a) { return b; }"]
        pages.append("\n".join(lines))
    folder = tmp_path_factory.mktemp("pages") / "text"
    folder.mkdir()
    for name, some in {"a": pages[:30], "b": pages[10:50], "c": [*pages[40:], *pages[:9]]}.items():
        (folder / f"{name}.txt").write_text("\n\n".join(some))
    return folder


@pytest.fixture(scope="module")
def single(corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process writes."""
    out = tmp_path_factory.mktemp("single") / "data"
    prepare([str(corpus)], out, tokenizer=tiny_tokenizer, processes=1, config=CONFIG)
    return out


def test_rules_are_counted_and_shown(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data"
    words = typed("prepare {} --tokenizer {} --processes 1 --out {}", corpus, tiny_tokenizer, out)
    words += ["--filters", "gopher", "c4"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "dropped by filters" in shown
    assert "if (a) { return b; }" not in shown, "an example is the beginning of a document"
    index = json.loads((out / "index.json").read_text())
    counts = index["filters"]
    assert counts["gopher-bullets"]["documents"] == 10
    assert counts["c4-curly-bracket"]["documents"] == 10
    assert counts["c4-line-ends"]["lines"] == counts["c4-policies"]["lines"] == 10
    assert set(counts["c4-policies"]["examples"]) == {"We use cookies on this page."}
    assert all(example[0] == "-" for example in counts["gopher-bullets"]["examples"])
    assert len(counts["gopher-bullets"]["examples"]) == 3
    dropped = sum(count["documents"] for count in counts.values() if "words" in count)
    assert dropped + index["documents"]["kept"] == 60
    assert index["documents"]["duplicates"] == 39
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["filters"] == counts
    assert main([*words, "fineweb"]) == 2
    assert "filters" in capsys.readouterr().err


def test_documents_of_few_sentences_are_dropped(tiny_tokenizer: Path, tmp_path: Path) -> None:
    sentence = "This is one more sentence. "
    (tmp_path / "a.txt").write_text(f"{sentence * 4}\n\n{sentence * 5}")
    config = PrepareConfig(filters=["c4"])
    source, out = str(tmp_path / "a.txt"), tmp_path / "d"
    shards = prepare([source], out, tokenizer=tiny_tokenizer, config=config)
    assert shards.index["filters"]["c4-sentences"] == {
        "documents": 1,
        "words": 20,
        "examples": [(sentence * 4)[:80] + "…"],
    }
    assert shards.train.sentences == 5


def test_processes_change_nothing(
    corpus: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    single: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dealing, "CHUNK_BYTES", 2000)
    prepare([str(corpus)], tmp_path / "data", tokenizer=tiny_tokenizer, processes=2, config=CONFIG)
    assert Shards.open(tmp_path / "data").index == Shards.open(single).index


@pytest.mark.parametrize("count", [1, 3, 4])
@pytest.mark.parametrize("near", [0.0, 0.8])
def test_parts_are_what_one_machine_writes(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path, single: Path, count: int, near: float
) -> None:
    out, config = tmp_path / "data", replace(CONFIG, near_duplicates=near)
    if near:
        single = tmp_path / "single"
        prepare([str(corpus)], single, tokenizer=tiny_tokenizer, processes=1, config=config)
    for number in range(count, 0, -1):
        part = f"{number}/{count}"
        prepare_part(part, [str(corpus)], out, tokenizer=tiny_tokenizer, processes=1, config=config)
    litebert.merge(out)
    assert content(out) == content(single)


@pytest.mark.parametrize("writes", [1, 2, 4])
def test_an_interrupted_prepare_continues(
    corpus: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    single: Path,
    writes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, made = shard_files.write_shard, list[Path]()

    def write_some(path: Path, *rest: Any) -> None:
        if len(made) == writes:
            raise Interrupted
        made.append(path)
        write(path, *rest)

    sources, out = [str(corpus)], tmp_path / "data"
    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "write_shard", write_some)
        with pytest.raises(Interrupted):
            prepare(sources, out, tokenizer=tiny_tokenizer, processes=1, config=CONFIG)
    shards = prepare(sources, out, tokenizer=tiny_tokenizer, processes=1, config=CONFIG)
    assert content(out) == content(single)
    assert shards.fingerprint == Shards.open(single).fingerprint


def test_an_unknown_filter_is_refused() -> None:
    with refused(DataError, "'gofer'", "gopher"):
        PrepareConfig(filters=["gofer"])


# -------------------------------------------------------------------------------------- languages

TEXTS = {
    "en": "The old man walked slowly through the forest and thought of the days of his youth.",
    "de": "Der alte Mann ging langsam durch den Wald und dachte an die Tage seiner Jugend.",
    "fr": "Le vieil homme marchait lentement dans la forêt et pensait à sa jeunesse.",
    "ja": "老人は森の中をゆっくり歩き、若いころの日々を思い出していた。",
    "unknown": "12345 67890 13579",
}


def test_other_languages_are_dropped_and_counted(
    tiny_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lingua")
    texts = [f"{text} {number}" for number in range(8) for text in TEXTS.values()]
    (tmp_path / "a.txt").write_text("\n\n".join([*texts, *texts[:7]]))
    source = tmp_path / "a.txt"
    words = typed("prepare {} --tokenizer {} --processes 1", source, tiny_tokenizer)
    words += ["--keep-languages", "de", "en"]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    assert "dropped by language" in capsys.readouterr().out
    index = Shards.open(tmp_path / "one").index
    counts = index["languages"]
    assert {code: count["documents"] for code, count in counts.items()} == dict.fromkeys(TEXTS, 8)
    assert [code for code, count in counts.items() if count["stays"]] == ["de", "en"]
    assert [example[:20] for example in counts["fr"]["examples"]] == [TEXTS["fr"][:20]] * 3
    assert index["documents"]["kept"] == 16
    assert index["documents"]["duplicates"] == 7
    for number in (1, 2):
        part = ["--out", str(tmp_path / "two"), "--part", f"{number}/2"]
        assert main([*words, *part]) == 0
    litebert.merge(tmp_path / "two")
    assert content(tmp_path / "two") == content(tmp_path / "one")
    assert main([*words[:-2], "klingon", "--out", str(tmp_path / "x")]) == 2
    assert "'klingon'" in capsys.readouterr().err


def test_a_document_that_a_filter_drops_has_no_language(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Its text is emptied before, so its language would be unknown."""
    pytest.importorskip("lingua")
    long = " ".join([TEXTS["en"]] * 6)
    (tmp_path / "a.txt").write_text(f"{long}\n\nNo mark ends this line of words\n\n{TEXTS['en']}\n")
    config = PrepareConfig(filters=["c4"], keep_languages=["en"])
    source, out = str(tmp_path / "a.txt"), tmp_path / "data"
    shards = prepare([source], out, tokenizer=tiny_tokenizer, processes=1, config=config)
    counts = shards.index["languages"]
    assert {code: count["documents"] for code, count in counts.items()} == {"en": 1}
    assert shards.index["filters"]["c4-sentences"]["documents"] == 2


def test_filters_that_drop_everything_are_named(tiny_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{TEXTS['en']}\n\n{TEXTS['de']}\n")
    source, config = str(tmp_path / "a.txt"), PrepareConfig(filters=["gopher"])
    with refused(DataError, "filters leave nothing", "gopher-word-count dropped 2 documents"):
        prepare([source], tmp_path / "data", tokenizer=tiny_tokenizer, processes=1, config=config)


def test_languages_need_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lingua", None)
    with refused(MissingExtraError, "litebert[languages]"):
        PrepareConfig(keep_languages=["de"])
