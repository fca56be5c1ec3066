"""Text to shards: the same bytes however many processes and whatever interrupts it, in flat memory."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.data import prepare as preparing
from litebert.data import shards as disk
from litebert.data.corpus import Document, documents, split_sentences
from litebert.data.journal import Journal
from litebert.data.prepare import prepare
from litebert.data.shards import Shards
from litebert.data.tokenizer import Tokenizer
from litebert.errors import DataError

SHARD_BYTES = 20_000
"""Of text: the 60 kB of `tiny_corpus` make several shards."""


def run(corpus: Path, out: Path, tokenizer: Path, **options: Any) -> Shards:
    settings = {"heldout": 0.1, "processes": 1, "shard_bytes": SHARD_BYTES, "progress": False, **options}
    return prepare([str(corpus)], out, tokenizer=tokenizer, **settings)


def fails(corpus: Path, out: Path, tokenizer: Path, **options: Any) -> str:
    with pytest.raises(DataError) as error:
        run(corpus, out, tokenizer, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def texts_of(split: disk.Split, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(split.sentences_of(number)[0].tolist()) for number in range(split.documents)]


@pytest.fixture(scope="session")
def whole(tiny_corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an uninterrupted run makes of `tiny_corpus`."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    run(tiny_corpus, folder, tiny_tokenizer)
    assert len(list(folder.glob("train-*.arrow"))) >= 3
    return folder


# ---- what is made --------------------------------------------------------------------------------------------------


def test_every_sentence_of_every_document_is_there(tiny_corpus: Path, tiny_tokenizer: Path, whole: Path) -> None:
    shards = Shards.open(whole, verify=True)
    tokenizer = Tokenizer.load(tiny_tokenizer)
    wanted = {}
    for document in documents([str(tiny_corpus)]):
        ids = tokenizer.encode(split_sentences(document.text))
        wanted[tuple(i for sentence in ids for i in sentence)] = np.cumsum([0, *map(len, ids)]).tolist()
    found = {}
    for split in (shards.train, shards.heldout):
        for number in range(split.documents):
            ids, starts = split.sentences_of(number)
            found[tuple(ids.tolist())] = starts.tolist()
    assert found == wanted
    assert shards.tokenizer.fingerprint == tokenizer.fingerprint
    in_train = [shards.train.sentences_of(number)[0].tolist() for number in range(shards.train.documents)]
    assert in_train == [list(ids) for ids in wanted if list(ids) in in_train], "in the order of the sources"


def test_unigram_entropy_and_top_share_are_those_of_the_train_split(whole: Path) -> None:
    shards = Shards.open(whole)
    ids = np.concatenate([shards.train.sentences_of(number)[0] for number in range(shards.train.documents)])
    shares = np.unique(ids, return_counts=True)[1] / len(ids)
    assert shards.unigram_entropy == pytest.approx(-np.sum(shares * np.log(shares)), rel=1e-12)
    assert shards.top_piece_share == pytest.approx(shares.max(), rel=1e-12)


def test_heldout_documents_are_in_no_train_shard(whole: Path, tiny_tokenizer: Path) -> None:
    shards, tokenizer = Shards.open(whole), Tokenizer.load(tiny_tokenizer)
    train, heldout = texts_of(shards.train, tokenizer), texts_of(shards.heldout, tokenizer)
    assert not set(train) & set(heldout)
    assert len(train) + len(heldout) == 200
    assert 8 <= len(heldout) <= 36, "a tenth, within three standard errors"


@pytest.mark.parametrize(
    ("count", "heldout", "splits"),
    [(1, 0.5, (1, 0)), (2, 0.001, (1, 1)), (2, 0.999, (1, 1)), (40, 0.001, (39, 1)), (40, 0.0, (40, 0))],
)
def test_small_corpora_have_something_in_each_split(
    tmp_path: Path, tiny_tokenizer: Path, count: int, heldout: float, splits: tuple[int, int]
) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n\n".join(f"Number {i} of some." for i in range(count)))
    shards = run(corpus, tmp_path / "out", tiny_tokenizer, heldout=heldout)
    assert (shards.train.documents, shards.heldout.documents) == splits


def test_which_documents_are_held_out_depends_on_their_text_alone(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    texts = tiny_corpus.read_text().strip().split("\n\n")
    random.Random(1).shuffle(texts)
    corpus = tmp_path / "shuffled.txt"
    corpus.write_text("\n\n".join(texts))
    tokenizer = Tokenizer.load(tiny_tokenizer)
    shuffled = run(corpus, tmp_path / "out", tiny_tokenizer)
    first = Shards.open(whole)
    assert sorted(texts_of(shuffled.heldout, tokenizer)) == sorted(texts_of(first.heldout, tokenizer))


def test_exact_duplicates_are_dropped_and_counted(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    texts = tiny_corpus.read_text().strip().split("\n\n")
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n\n".join([*texts[:50], *texts[10:30], texts[0], " " + texts[1] + "  "]))
    shards = run(corpus, tmp_path / "out", tiny_tokenizer)
    assert shards.train.documents + shards.heldout.documents == 50
    assert shards.index["documents"] == {"kept": 50, "duplicates": 22, "empty": 0}


def test_hashes_that_share_bytes_are_told_apart() -> None:
    seen = preparing._Seen()
    first, second = b"ab" + bytes(range(8)), b"ab" + bytes(range(8, 16))
    across = b"ab" + bytes(range(4, 12))  # the end of the first and the start of the second in memory
    assert [seen.is_new(digest) for digest in (first, second, across, first, second, across)] == [True] * 3 + [
        False
    ] * 3
    assert seen.is_new(b"ba" + bytes(range(8)))
    assert seen.duplicates == 3


def test_documents_without_a_single_piece_are_left_out(tmp_path: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("Some text.\n\n\x01\x02\n\nMore text.\n\nAnd more.\n\n\x03")
    shards = run(corpus, tmp_path / "out", tiny_tokenizer)
    assert shards.train.documents + shards.heldout.documents == 3
    assert shards.index["documents"] == {"kept": 5, "duplicates": 0, "empty": 2}
    corpus.write_text("\x01\x02\n\n\x03")
    assert fails(corpus, tmp_path / "none", tiny_tokenizer).startswith("the tokenizer leaves nothing of")


# ---- the same bytes ------------------------------------------------------------------------------------------------


def test_the_number_of_processes_does_not_show(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "CHUNK_BYTES", 2000)  # several chunks a shard, more than wait at a time
    run(tiny_corpus, tmp_path / "two", tiny_tokenizer, processes=2)
    assert content(tmp_path / "two") == content(whole)
    monkeypatch.setattr(preparing, "_cores", lambda: 1)
    run(tiny_corpus, tmp_path / "all", tiny_tokenizer, processes=0)
    assert content(tmp_path / "all") == content(whole)


KILLED_WHILE_WRITING = textwrap.dedent("""
    import functools, os, signal, sys
    from litebert.data.prepare import prepare

    corpus, folder, tokenizer, shard_bytes = *sys.argv[1:4], int(sys.argv[4])

    def child(out, instant):
        calls = 0
        def counted(call):
            @functools.wraps(call)
            def deadly(*arguments):
                nonlocal calls
                result = call(*arguments)
                calls += 1
                if calls == instant:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result
            return deadly
        os.fsync, os.replace = counted(os.fsync), counted(os.replace)
        prepare([corpus], out, tokenizer=tokenizer, heldout=0.1, processes=1, shard_bytes=shard_bytes, progress=False)

    def run(out, instant):
        process = os.fork()  # spares the imports
        if process == 0:
            try:
                child(out, instant)
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr)
                os._exit(1)
        status = os.waitpid(process, 0)[1]
        assert status in (0, signal.SIGKILL), status
        return status == 0

    instants = 0
    while not run(f"{folder}/{1 + 3 * instants}", 1 + 3 * instants):
        assert run(f"{folder}/{1 + 3 * instants}", 0)
        instants += 1
    assert instants >= 6, instants
    kills = 0
    while not run(f"{folder}/many", 9):  # each run gets a little further
        kills += 1
    assert kills >= 2, kills
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_killed_at_any_instant_of_writing_the_same_command_ends_with_the_same_bytes(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    arguments = [str(tiny_corpus), str(tmp_path), str(tiny_tokenizer), str(SHARD_BYTES)]
    subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, *arguments], check=True, timeout=120)
    wanted = content(whole)
    for folder in sorted(tmp_path.iterdir()):
        assert content(folder) == wanted, f"killed at {folder.name}"


def test_killed_after_the_index_was_written(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Journal) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", interrupted)
        with pytest.raises(Interrupted):
            run(tiny_corpus, tmp_path / "out", tiny_tokenizer)
    assert (tmp_path / "out" / disk.INDEX).exists()
    run(tiny_corpus, tmp_path / "out", tiny_tokenizer)
    assert content(tmp_path / "out") == content(whole)


COMMAND = """
import sys
from litebert.data.prepare import prepare
if __name__ == "__main__":
    prepare(sys.argv[1:2], sys.argv[2], tokenizer=sys.argv[3], heldout=float(sys.argv[4]), processes=2,
            shard_bytes=int(sys.argv[5]), progress=False)
"""


def start(tmp_path: Path, *arguments: object) -> subprocess.Popen[bytes]:
    script = tmp_path / "command.py"  # a file, since spawned workers import it
    script.write_text(COMMAND)
    return subprocess.Popen([sys.executable, str(script), *map(str, arguments)])


def tree(process: int) -> list[int]:
    """The process and all below it."""
    found = [process]
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return found
    return found + [below for child in children for below in tree(int(child))]


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")


@needs_proc
def test_killed_with_workers_at_work(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path) -> None:
    corpus = tmp_path / "a.txt"
    texts = tiny_corpus.read_text().strip().split("\n\n")
    corpus.write_text("\n\n".join(f"Edition {i}. {text}" for i in range(20) for text in texts))
    out = tmp_path / "out"
    process = start(tmp_path, corpus, out, tiny_tokenizer, 0.1, SHARD_BYTES)
    try:
        wait_for(lambda: len(list(out.glob("*.arrow"))) >= 3)
        workers = tree(process.pid)[1:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / disk.INDEX).exists()
    assert len(workers) >= 2
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("*.arrow")}
    run(corpus, out, tiny_tokenizer)
    again = sum(path.stat().st_mtime_ns != kept[path.name] for path in out.glob("*.arrow") if path.name in kept)
    assert again <= 1, "finished shards are not made again; at most the one not yet in the journal"
    run(corpus, tmp_path / "uninterrupted", tiny_tokenizer)
    assert content(out) == content(tmp_path / "uninterrupted")


def wait_for(condition: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Interrupted(BaseException):
    pass


@pytest.fixture
def unfinished(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> Path:
    """A folder with two shards done."""
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        add = Journal.add

        def interrupted(self: Journal, info: Any) -> None:
            add(self, info)
            if len(self.finished) == 2:
                raise Interrupted

        patch.setattr(Journal, "add", interrupted)
        with pytest.raises(Interrupted):
            run(tiny_corpus, out, tiny_tokenizer)
    assert not (out / disk.INDEX).exists()
    return out


def test_finished_shards_are_kept(
    tiny_corpus: Path, tiny_tokenizer: Path, unfinished: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name for path in unfinished.glob("*.arrow")}
    made = []
    write = disk.write_shard
    monkeypatch.setattr(disk, "write_shard", lambda path, *rest: (made.append(path.name), write(path, *rest)))
    run(tiny_corpus, unfinished, tiny_tokenizer)
    assert len(before) == 2
    assert sorted(made) == sorted({path.name for path in whole.glob("*.arrow")} - before)
    assert content(unfinished) == content(whole)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "journal torn", "journal line lost"])
def test_what_is_damaged_meanwhile_is_made_again(
    tiny_corpus: Path, tiny_tokenizer: Path, unfinished: Path, whole: Path, damage: str
) -> None:
    path = sorted(unfinished.glob("*.arrow"))[0]
    data, journal = path.read_bytes(), unfinished / Journal.NAME
    if damage == "flip":
        path.write_bytes(data[:500] + bytes([data[500] ^ 1]) + data[501:])
    elif damage == "truncate":
        path.write_bytes(data[:500])
    elif damage == "remove":
        path.unlink()
    elif damage == "journal torn":
        journal.write_bytes(journal.read_bytes()[:-30])
    else:
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    run(tiny_corpus, unfinished, tiny_tokenizer)
    assert content(unfinished) == content(whole)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("heldout", 0.2, "heldout=0.1, not 0.2"),
        ("language", "de", "language='en', not 'de'"),
        ("split", "line", "split='blank-line', not 'line'"),
        ("shard_bytes", 999, f"shard_bytes={SHARD_BYTES}, not 999"),
        ("encoding", "latin-1", "encoding='utf-8', not 'latin-1'"),
    ],
)
def test_other_settings_into_the_same_folder_are_refused(
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    unfinished: Path,
    whole: Path,
    finished: bool,
    name: str,
    value: object,
    said: str,
) -> None:
    out = whole if finished else unfinished
    before = content(out)
    assert fails(tiny_corpus, out, tiny_tokenizer, **{name: value}).startswith(f"{out} is made with {said};")
    assert content(out) == before, "nothing is lost"


def test_other_text_into_the_same_folder_is_refused(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    texts = tiny_corpus.read_text()
    corpus.write_text(texts)
    out = tmp_path / "out"
    run(corpus, out, tiny_tokenizer)
    (out / disk.INDEX).rename(tmp_path / "index.json")
    index = json.loads((tmp_path / "index.json").read_text())
    header = {"settings": index["settings"], "tokenizer": index["tokenizer"]}
    lines = [header, *index["shards"]]
    (out / Journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = texts[:-100] + texts[-100:].swapcase()  # as many bytes, other text
    corpus.write_text(changed)
    assert "was begun with other text than the sources hold now" in fails(corpus, out, tiny_tokenizer)
    corpus.write_text(texts + "\n\nMore.")
    assert "is made from sources that changed since" in fails(corpus, out, tiny_tokenizer)
    assert "is made with sources=" in fails(tiny_corpus, out, tiny_tokenizer)


def test_another_tokenizer_is_refused(
    tiny_corpus: Path, tmp_path: Path, unfinished: Path, tiny_tokenizer: Path
) -> None:
    from litebert.data.tokenizer import train_tokenizer

    train_tokenizer(tiny_corpus.read_text().split("\n\n"), kind="unigram", vocab_size=300).save(tmp_path / "other")
    assert "is made with another tokenizer" in fails(tiny_corpus, unfinished, tmp_path / "other")
    assert "is made with another tokenizer" not in str(run(tiny_corpus, unfinished, tiny_tokenizer))


def test_a_command_may_be_corrected_while_no_shard_is_finished(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    from litebert.data.tokenizer import train_tokenizer

    train_tokenizer(tiny_corpus.read_text().split("\n\n"), kind="unigram", vocab_size=300).save(tmp_path / "other")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff")
    out = tmp_path / "out"
    assert "(0xff) is not utf-8" in fails(bad, out, tmp_path / "other", heldout=0.2)
    run(tiny_corpus, out, tiny_tokenizer)
    assert content(out) == content(whole)


def test_a_finished_folder_returns_at_once(
    tiny_corpus: Path, tiny_tokenizer: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> Iterator[Document]:
        raise AssertionError("the text is read again")

    monkeypatch.setattr(preparing, "documents", never)
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert run(tiny_corpus, whole, tiny_tokenizer).train.documents > 0
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_the_index_is_written_last(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    replace = os.replace

    def noted(source: Any, target: Any) -> None:
        names.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    run(tiny_corpus, tmp_path / "out", tiny_tokenizer)
    assert names[0] == "tokenizer"
    assert names[-1] == "index.json"
    assert names.count("index.json") == 1


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_worker_that_dies_is_reported_and_the_work_continues(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(*arguments: Any, **options: Any) -> Iterator[Document]:
        for number, document in enumerate(documents(*arguments, **options)):
            if number == 150:
                wait_for(multiprocessing.active_children)
                for child in multiprocessing.active_children():
                    child.kill()
                    child.join()
            yield document

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "documents", deadly)
        patch.setattr(preparing, "LOOKAHEAD_BYTES", 1)
        message = fails(tiny_corpus, tmp_path / "out", tiny_tokenizer, processes=2)
    assert message.startswith("a worker process died (killed, or out of memory); run the same command again")
    run(tiny_corpus, tmp_path / "out", tiny_tokenizer)
    assert content(tmp_path / "out") == content(whole)


def test_a_full_disk(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = disk.write_shard

    def short(path: Path, *rest: Any) -> None:
        if path.name == "train-00001.arrow":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *rest)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_shard", short)
        assert fails(tiny_corpus, out, tiny_tokenizer) == (
            f"{out} lies on a disk that is full; free some space and run the same command again to continue"
        )
    run(tiny_corpus, out, tiny_tokenizer)
    assert content(out) == content(whole)


def test_bad_text_stops_and_what_is_done_stays(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    good = tiny_corpus.read_bytes()
    corpus.write_bytes(good + b"\n\nbad \xff\n")
    out = tmp_path / "out"
    assert f"{corpus}: byte {len(good) + 6:,} (0xff)" in fails(corpus, out, tiny_tokenizer)
    assert not (out / disk.INDEX).exists()
    with pytest.raises(DataError, match="no whole set"):
        Shards.open(out)


def test_half_a_surrogate_pair_names_the_line(tmp_path: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text('{"text": "good"}\n{"text": "\\ud83d bad"}\n')
    assert fails(corpus, tmp_path / "out", tiny_tokenizer).startswith(f"{corpus}:2 holds half a surrogate pair")


def test_an_empty_corpus(tmp_path: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n \n")
    assert fails(corpus, tmp_path / "out", tiny_tokenizer) == (
        f"there is no text in {corpus}; give files that hold some"
    )
    assert not (tmp_path / "out" / disk.INDEX).exists()


def test_folders_that_are_not_for_it(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("mine")
    assert "holds other files" in fails(tiny_corpus, tmp_path / "full", tiny_tokenizer)
    assert content(tmp_path / "full") == {"precious.txt": b"mine"}
    assert f"{tiny_corpus} cannot be written" in fails(tiny_corpus, tiny_corpus, tiny_tokenizer)


def test_two_commands_in_one_folder(tiny_corpus: Path, tiny_tokenizer: Path, unfinished: Path) -> None:
    pytest.importorskip("fcntl")
    import fcntl

    with open(unfinished / Journal.NAME, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "is being written by another litebert prepare" in fails(tiny_corpus, unfinished, tiny_tokenizer)
    run(tiny_corpus, unfinished, tiny_tokenizer)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heldout": 1.0}, "heldout is 1.0"),
        ({"heldout": -0.1}, "heldout is -0.1"),
        ({"shard_bytes": 0}, "shard_bytes is 0"),
        ({"processes": -1}, "processes -1"),
        ({"language": "english"}, "language 'english'"),
    ],
)
def test_bad_options(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, options: dict[str, Any], said: str
) -> None:
    assert said in fails(tiny_corpus, tmp_path / "out", tiny_tokenizer, **options)
    assert not (tmp_path / "out").exists()


def test_progress_goes_to_standard_error(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tiny_corpus, tmp_path / "out", tiny_tokenizer, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "200 documents" in shown.err
    assert content(tmp_path / "out") == content(whole)


# ---- memory --------------------------------------------------------------------------------------------------------


def resident(process: int) -> int:
    """Bytes resident in a process and all below it; what they share counts once for each."""
    total = 0
    for one in tree(process):
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def generate(path: Path, size: int, base: list[str]) -> None:
    """About `size` bytes of documents, no two the same."""
    with open(path, "w") as file:
        number = 0
        while file.tell() < size:
            file.write("\n\n".join(f"Edition {number}. {text}" for text in base) + "\n\n")
            number += 1


def memory_of_preparing(tmp_path: Path, corpus: Path, tokenizer: Path, shard_bytes: int) -> list[int]:
    """Resident bytes of the whole process tree, sampled while it prepares `corpus`."""
    samples = []
    process = start(tmp_path, corpus, tmp_path / "out", tokenizer, 0.01, shard_bytes)
    while process.poll() is None:
        samples.append(resident(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0
    return samples


@needs_proc
def test_memory_is_flat(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    generate(corpus, 60_000_000, tiny_corpus.read_text().strip().split("\n\n"))
    samples = memory_of_preparing(tmp_path, corpus, tiny_tokenizer, shard_bytes=4 << 20)
    assert max(samples) < 700e6
    early, late = max(samples[: len(samples) // 2]), max(samples[len(samples) // 2 :])
    assert late - early < 25e6, "the second half of the text alone is 30 MB"


@pytest.mark.slow
@needs_proc
def test_a_gigabyte_stays_under_a_gigabyte_of_memory(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    generate(corpus, 1_000_000_000, tiny_corpus.read_text().strip().split("\n\n"))
    samples = memory_of_preparing(tmp_path, corpus, tiny_tokenizer, shard_bytes=32 << 20)
    assert max(samples) < 1e9
