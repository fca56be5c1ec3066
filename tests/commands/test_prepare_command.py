"""`litebert prepare` as a user types it: what it reports, what it refuses, and files as they come
from real life.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from litebert.base.registry import SOURCES, Registry
from litebert.data.shards import Shards
from toys.refusals import names
from toys.typed import typed

Run = Callable[..., tuple[int, str, str]]
Prepare = Callable[..., dict[str, Any]]
Refuse = Callable[..., None]


@pytest.fixture
def prepare_sources(run: Run, tmp_path: Path, tiny_tokenizer: Path) -> Prepare:
    """Prepare the sources; what it says in JSON."""

    def call(*words: object, out: str = "out") -> dict[str, Any]:
        options = typed(
            "--tokenizer {} --out {} --processes 1 --json", tiny_tokenizer, tmp_path / out
        )
        status, output, error = run("prepare", *words, *options)
        assert status == 0, error
        result: dict[str, Any] = json.loads(output)
        assert (
            result["summary"] == json.loads((tmp_path / out / "index.json").read_text())["summary"]
        )
        return result

    return call


@pytest.fixture
def expect_refusal(run: Run, tmp_path: Path, tiny_tokenizer: Path) -> Refuse:
    """Prepare words that are refused in one line that names every place."""

    def call(*words: object, places: tuple[object, ...]) -> None:
        out = tmp_path / "refused"
        alone = () if "--processes" in words else ("--processes", 1)
        status, output, error = run(
            "prepare", "--tokenizer", tiny_tokenizer, "--out", out, *alone, *words
        )
        assert (status, output) == (2, "")
        names(error.strip().splitlines()[-1], *places)

    return call


def write_file(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def sentences(count: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    words = re.findall(
        r"\w+", "the small red house stands by a long road near an old river where people walk"
    )
    return " ".join(
        " ".join(draw.choices(words, k=draw.randint(5, 14))).capitalize() + "."
        for _ in range(count)
    )


# ------------------------------------------------------------------- what was read and what was not


def test_a_folder_tells_what_it_passed_over(
    tmp_path: Path,
    prepare_sources: Prepare,
    log_messages: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "texts"
    write_file(folder / "README.md", "Read me.\n\nAnd me.")
    write_file(
        folder / "rows.jsonl.gz",
        gzip.compress(b'{"text": "A row."}\n{"text": " "}\n\n{"text": null}\n'),
    )
    unseen = "a.docx b.docx c.PDF Makefile .hidden.txt .git/config.txt locked/d.txt"
    for name in unseen.split():
        write_file(folder / name, "unseen")
    (folder / "nowhere.txt").symlink_to("missing")
    (folder / "linked").symlink_to(folder / "locked")
    os.mkfifo(folder / "pipe.txt")
    scandir = os.scandir

    def scan_unlocked(place: Any) -> Any:
        # The superuser, whom tests may run as, can read all folders.
        if str(place).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", scan_unlocked)
    record = prepare_sources(folder)
    summary = record["summary"]
    assert summary["files"] == {".md": 1, ".jsonl.gz": 1}
    assert summary["skipped"] == {
        ".docx": 2,
        ".pdf": 1,
        "no suffix": 1,
        "hidden files and folders": 2,
        "links that lead nowhere": 1,
        "links to folders": 1,
        "folders that cannot be read": 1,
        "pipes and devices": 1,
    }
    assert (summary["rows"], summary["empty_rows"], summary["documents"]) == (3, 2, 3)
    assert any(".docx (2)" in line for line in log_messages)


def test_a_folder_without_readable_files_names_what_it_holds(
    tmp_path: Path, expect_refusal: Refuse, run: Run
) -> None:
    write_file(tmp_path / "texts" / "a.docx", "x")
    expect_refusal(tmp_path / "texts", places=(tmp_path / "texts", ".docx", ".txt"))
    status, _, error = run("tokenizer", "train", tmp_path / "texts", "--out", tmp_path / "t")
    assert status == 2
    names(error, tmp_path / "texts", ".docx")


def test_the_table_and_the_lines_after_it(
    run: Run, tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    out = tmp_path / "a folder"
    words = shlex.split(
        f"prepare {tiny_corpus} --tokenizer {tiny_tokenizer} --language de --out "
        f"'{out}' --processes 1"
    )
    status, output, error = run(*words)
    assert status == 0
    assert re.search(r"^sentence rules +de *$", output, re.M)
    named = ("files read", ".txt (1)", "documents read", "unknown tokens", "tokens per word", "±")
    for what in (*named, "held out"):
        assert what in output
    assert f"litebert pretrain albert-next-tiny --shards '{out}'" in error
    assert run(*words)[:2] == (0, output), "the same command again shows the same"


@pytest.mark.parametrize(
    ("name", "content", "places"),
    [
        ("a.csv", "text,text\na,b\n", ("first line", "'text'")),
        ("a.csv", "id,text\n1,a\n2,b,c\n", (":3", "3", "2")),
        ("a.tsv", "id\ttext\n1\n", (":2", "1", "2")),
        ("a.jsonl", '{"text": "a"}\n{"text": "b", "text": "c"}\n', (":2", "'text'")),
        ("a.jsonl", '{"text": ' + "[" * 100_000, (":1",)),
        ("a.jsonl", '{"text": "a", "more": ' + '{"a":' * 100_000, (":1",)),
    ],
)
def test_rows_that_would_lose_text_name_their_line(
    tmp_path: Path, expect_refusal: Refuse, name: str, content: str, places: tuple[str, ...]
) -> None:
    path = write_file(tmp_path / name, content)
    named = [f"{path}{place}" if place.startswith(":") else place for place in places]
    expect_refusal(path, places=(*named, path))


def test_long_rows_and_half_characters_are_counted(
    tmp_path: Path, prepare_sources: Prepare
) -> None:
    long = sentences(25_000)
    assert len(long) > 1 << 20
    content = json.dumps({"text": long}) + '\n{"text": "half \\ud83d of \\udc00 it"}\n'
    rows = write_file(tmp_path / "a.jsonl", content)
    summary = prepare_sources(rows)["summary"]
    assert (summary["rows"], summary["cuts"], summary["replaced_characters"]) == (2, 1, 2)
    assert summary["documents"] == 3
    lines = write_file(tmp_path / "a.txt", f"Short.\n{long}\n")
    assert prepare_sources(lines, "--split", "line", out="lines")["summary"]["cuts"] == 1
    assert prepare_sources(lines, out="paragraphs")["summary"]["cuts"] == 1


def test_a_tokenizer_that_does_not_know_the_text_is_remarked(
    tmp_path: Path, prepare_sources: Prepare, tiny_corpus: Path, log_messages: list[str]
) -> None:
    summary = prepare_sources(tiny_corpus)["summary"]
    assert (summary["unknown_pieces"], summary["unknown_share"]) == (0, 0)
    words = len(tiny_corpus.read_text().split())
    assert summary["words"] == words
    assert summary["pieces_per_word"] == pytest.approx(summary["pieces"] / words)
    assert not any("unknown" in line for line in log_messages)
    foreign = write_file(tmp_path / "a.txt", "猫が好き。\n\n犬も好き。")
    summary = prepare_sources(foreign, out="foreign")["summary"]
    assert summary["unknown_share"] > 0.3
    assert any("unknown" in line for line in log_messages)


# -------------------------------------------------------------------------------- the held-out part


@pytest.mark.parametrize(
    ("documents", "least", "most"), [(2, 1, 1), (10, 1, 2), (100, 4, 9), (400, 18, 26)]
)
def test_a_small_corpus_holds_out_enough_for_a_score(
    tmp_path: Path, prepare_sources: Prepare, documents: int, least: int, most: int
) -> None:
    path = write_file(tmp_path / "a.txt", "\n\n".join(sentences(5, i) for i in range(documents)))
    record = prepare_sources(path)
    held = record["summary"]["heldout"]
    assert least <= record["heldout"]["documents"] == held["documents"] <= most
    assert held["masked_accuracy_error"] == pytest.approx(50 / round(0.15 * held["tokens"]) ** 0.5)
    assert held["pair_accuracy_error"] == pytest.approx(50 / held["documents"] ** 0.5)
    assert prepare_sources(path, "--heldout", 0, out="none")["heldout"]["documents"] == 0


def test_one_document_holds_out_nothing_and_says_so(
    tmp_path: Path, prepare_sources: Prepare, run: Run, log_messages: list[str]
) -> None:
    path = write_file(tmp_path / "a.txt", sentences(5))
    assert prepare_sources(path)["summary"]["heldout"]["masked_accuracy_error"] is None
    assert any("--split" in line for line in log_messages)
    status, _, error = run(
        "pretrain", "albert-tiny", "--shards", tmp_path / "out", "--out", tmp_path / "run"
    )
    assert status == 2
    names(error, tmp_path / "out", "--split")
    assert "--heldout" not in error, "the option is not to blame"


# ---------------------------------------------------------------------- encodings, wrapping, markup


def test_encodings_by_mark_and_by_pattern(
    tmp_path: Path, prepare_sources: Prepare, expect_refusal: Refuse
) -> None:
    folder = tmp_path / "texts"
    text = "Größe und Straße.\n\nZwei Wörter."
    encodings = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1250")
    for number, encoding in enumerate(encodings):
        write_file(folder / f"{encoding}.txt", f"{number} {text}".encode(encoding))
    expect_refusal(folder, places=(f"{folder}/cp1250.txt:1", "--encoding 'cp1250.txt=latin-1'"))
    named = ("--encoding", "cp*.txt=cp1250", "--encoding", "latin-1.txt=latin-1")
    summary = prepare_sources(folder, *named)["summary"]
    assert summary["encodings"] == {"utf-8": 2, "utf-16": 1, "utf-32": 1, "latin-1": 1, "cp1250": 1}
    assert summary["documents"] == 12
    single = prepare_sources(folder / "latin-1.txt", "--encoding", "latin-1", out="one")
    assert single["summary"]["documents"] == 2
    expect_refusal(folder, "--encoding", "a.txt=utf-9", places=("'utf-9'",))
    twice = ("--encoding", "latin-1", "--encoding", "cp1252")
    expect_refusal(folder, *twice, places=("latin-1", "cp1252"))
    expect_refusal(folder, *named, "--encoding", "=cp1252", places=("=cp1252",))


def test_hard_wrapped_text_is_remarked_and_unwrapped(
    tmp_path: Path, prepare_sources: Prepare, expect_refusal: Refuse, log_messages: list[str]
) -> None:
    paragraphs = [sentences(6, i) for i in range(20)]
    flat = write_file(tmp_path / "flat.txt", "\n\n".join(paragraphs))
    wrapped = write_file(
        tmp_path / "wrapped.txt", "\n\n".join(textwrap.fill(text, 70) for text in paragraphs)
    )
    plain = prepare_sources(flat, out="flat")
    assert not any("--unwrap" in line for line in log_messages)
    cut = prepare_sources(wrapped, out="cut")
    assert any(str(wrapped) in line and "--unwrap" in line for line in log_messages)
    assert (cut["summary"]["hard_wrapped_files"], plain["summary"]["hard_wrapped_files"]) == (1, 0)
    assert cut["train"]["sentences"] > 1.3 * plain["train"]["sentences"]
    joined = prepare_sources(wrapped, "--unwrap", out="joined")
    assert (joined["train"], joined["heldout"]) == (plain["train"], plain["heldout"])
    expect_refusal(wrapped, "--unwrap", "--split", "line", places=("--unwrap", "--split"))


PAGE = """<html><head><title>No</title><style>p {}</style><meta charset="iso-8859-1"></head>
<body><h1>A head</h1>
<p>This <b>is</b> caf\xe9 &amp; more.<script>no()</script></p>
<h2>Second</h2><ul><li>One.<li>Two.</ul></body></html>"""
NOTES = (
    "# Notes *here*\n\nSome `code` and a [link](http://no) that\ngoes on.\n\n- "
    "item\n\n```\nno\n```\n\n## More\n\nLast."
)


def test_markup_is_stripped_where_asked_and_kept_otherwise(
    tmp_path: Path,
    prepare_sources: Prepare,
    monkeypatch: pytest.MonkeyPatch,
    expect_refusal: Refuse,
) -> None:
    from litebert.text.sources import Reading, read_documents

    pytest.importorskip("selectolax")
    folder = tmp_path / "texts"
    page = write_file(folder / "a.html", PAGE.encode("latin-1"))
    notes = write_file(folder / "b.md", NOTES)
    summary = prepare_sources(folder)["summary"]
    assert (summary["files"], summary["skipped"]) == ({".md": 1}, {".html": 1})
    stripped = prepare_sources(folder, "--markup", "strip", out="stripped")["summary"]
    assert stripped["files"] == {".html": 1, ".md": 1}
    documents = read_documents([str(page), str(notes)], Reading(markup="strip"))
    assert [document.text for document in documents] == [
        "A head\nThis is café & more.",
        "Second\nOne.\nTwo.",
        "Notes here\nSome code and a link that goes on.\nitem",
        "More\nLast.",
    ]
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    expect_refusal(folder, "--markup", "strip", places=("selectolax", "litebert[markup]"))


# ------------------------------------------------------------------------------- files as they come


def test_names_that_are_not_utf8(
    tmp_path: Path, prepare_sources: Prepare, expect_refusal: Refuse
) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.txt")
    Path(name).write_text("One.\n\nTwo.")
    for _ in range(2):
        assert prepare_sources(name)["summary"]["documents"] == 2
    rows = os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.parquet")
    with open(rows, "wb") as file:
        pq.write_table(pa.table({"text": ["One.", "Two."]}), file)
    assert prepare_sources(rows, out="rows")["summary"]["documents"] == 2
    Path(name).write_bytes(b"\xff\xfe\xfd bad")
    expect_refusal(name, "--encoding", "utf-8", places=(".txt:1",))


@pytest.mark.thorough
def test_pipes_and_standard_input(tmp_path: Path, tiny_tokenizer: Path, tiny_corpus: Path) -> None:
    command = f"{sys.executable} -m litebert prepare"
    options = f"--tokenizer {tiny_tokenizer} --processes 1 --json"
    script = f"""
        cd {tmp_path}
        {command} <(cat {tiny_corpus}) {options} --out a
        mkfifo b.jsonl && (echo '{{"text": "One."}}' > b.jsonl &)
        {command} b.jsonl {options} --out b
        cat {tiny_corpus} | {command} - {options} --out c
        {command} - {options} --out d <&-
        echo "status $?"
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.endswith("status 2\n")
    names(done.stderr.strip().splitlines()[-1], "standard input")
    counts = [Shards.open(tmp_path / folder).index["summary"]["documents"] for folder in "abc"]
    assert counts == [200, 1, 200]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv"])
def test_every_kind_in_every_compression(
    tmp_path: Path, prepare_sources: Prepare, kind: str, suffix: str
) -> None:
    content = {
        ".txt": "One.\n\nTwo.",
        ".jsonl": '{"text": "One."}\n{"text": "Two."}',
        ".csv": 'id,text\n1,"One."\n2,Two.',
        ".tsv": "id\ttext\n1\tOne.\n2\tTwo.",
    }[kind].encode()
    packers: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    }
    write_file(tmp_path / "texts" / f"a{kind}{suffix}", packers[suffix](content))
    summary = prepare_sources(tmp_path / "texts" / "*")["summary"]
    assert (summary["files"], summary["documents"]) == ({kind + suffix: 1}, 2)


# ------------------------------------------------------------------------- the folder that is there


def test_sources_spelled_another_way_are_the_same(
    tmp_path: Path, prepare_sources: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / "texts" / "a.txt", "One.\n\nTwo.")
    monkeypatch.chdir(tmp_path)
    first = prepare_sources("texts")
    for spelled in ("./texts", "texts/", tmp_path / "texts"):
        assert prepare_sources(spelled) == first


def test_a_reader_of_ones_own_counts_by_its_code(
    tmp_path: Path, run: Run, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Registry("source", **{name: SOURCES._parts[name] for name in ("python-docs", "hf:")})
    monkeypatch.setattr("litebert.text.sources.SOURCES", sources)
    monkeypatch.setattr("litebert.text.files.SOURCES", sources)
    monkeypatch.setattr("litebert.data.prepare.SOURCES", sources)

    def first(name: str, reading: object) -> Any:
        yield from (("One.", 1), ("Two.", 2))

    def second(name: str, reading: object) -> Any:
        yield from (("One.", 1), ("Three.", 2))

    words = typed(
        "prepare mine --tokenizer {} --out {} --processes 1", tiny_tokenizer, tmp_path / "out"
    )
    sources.add("mine", first)
    assert run(*words)[0] == 0
    assert run(*words)[0] == 0
    sources._parts["mine"] = second
    status, _, error = run(*words)
    assert status == 2
    names(error.splitlines()[-1], tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["shards"][0].update(file="../elsewhere.arrow"),
        lambda index: index["shards"][0].update(file="/etc/passwd"),
        lambda index: index["shards"][0].update(file=".."),
        lambda index: index["shards"][0].update(documents="3"),
        lambda index: index["shards"][0].update(bytes=-1),
        lambda index: index["shards"].append(7),
        lambda index: index.update(unigram_entropy="low"),
        lambda index: index.update(settings=[]),
        lambda index: index.pop("documents"),
    ],
)
def test_an_index_that_is_damaged_or_points_elsewhere(
    tmp_path: Path,
    run: Run,
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    change: Callable[[Any], object],
) -> None:
    out = tmp_path / "out"
    words = ("prepare", tiny_corpus, "--tokenizer", tiny_tokenizer, "--out", out, "--processes", 1)
    assert run(*words)[0] == 0
    index = json.loads((out / "index.json").read_text())
    change(index)
    (out / "index.json").write_text(json.dumps(index))
    for command in (words, ("pretrain", "albert-tiny", "--shards", out, "--out", tmp_path / "run")):
        status, _, error = run(*command)
        assert status == 2
        names(error.splitlines()[-1], out / "index.json")


@pytest.mark.parametrize(
    ("option", "value"), [("--processes", -3), ("--heldout", 1), ("--heldout", "nan")]
)
def test_options_out_of_range(
    tmp_path: Path, tiny_corpus: Path, expect_refusal: Refuse, option: str, value: object
) -> None:
    expect_refusal(tiny_corpus, option, value, places=(option.removeprefix("--"), value))


def test_long_reading_reports_itself(
    tmp_path: Path,
    prepare_sources: Prepare,
    tiny_corpus: Path,
    log_messages: list[str],
    monkeypatch: Any,
) -> None:
    from litebert.base import progress

    advance = progress.Task.advance

    def advance_slowly(job: progress.Task, by: float = 1) -> None:
        time.sleep(0.002)  # so that the thread that reports gets its turn
        advance(job, by)

    monkeypatch.setattr(progress, "EVERY", 0.0001)
    monkeypatch.setattr(progress.Task, "advance", advance_slowly)
    prepare_sources(tiny_corpus)
    # Both go on at the same time, and of such tasks one is reported.
    assert any(line.startswith(("reading text: ", "encoding: ")) for line in log_messages)
