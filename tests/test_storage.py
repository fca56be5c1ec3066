"""Whole files and folders, and the lock of a folder."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
from safetensors.numpy import save_file

from litebert.base import storage
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.base.json_reader import read_json
from litebert.base.storage import atomic_write, check_output, lock_folder, write_json, write_whole
from toys.killed import leave_unfinished
from toys.refusals import refused

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="kills and forks are POSIX's")


def write_file(path: Path, text: str) -> None:
    path.write_text(text)


def write_folder(path: Path, text: str) -> None:
    path.mkdir()
    (path / "inside").write_text(text)


def text_of(path: Path) -> str:
    return (path / "inside" if path.is_dir() else path).read_text()


def write_half(path: Path, write: Callable[[Path, str], None]) -> None:
    with write_whole(path) as aside:
        write(aside, "half")
        raise RuntimeError


@needs_fork
@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_path_appears_whole_or_not_at_all(
    write: Callable[[Path, str], None], tmp_path: Path
) -> None:
    path = tmp_path / "path"
    with pytest.raises(RuntimeError):
        write_half(path, write)
    assert list(tmp_path.iterdir()) == []
    leave_unfinished(path)
    with write_whole(path) as aside:
        write(aside, "all of it")
        assert not path.exists()
    assert text_of(path) == "all of it"
    assert list(tmp_path.iterdir()) == [path]


@needs_fork
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells of zombies")
def test_a_zombie_has_ended(tmp_path: Path) -> None:
    """The first process of a container may never ask how its children ended."""
    left = leave_unfinished(tmp_path / "path", is_reaped=False)
    assert left.exists()
    write_json(tmp_path / "path", {})
    assert [path.name for path in tmp_path.iterdir()] == ["path"]


@needs_fork
def test_a_container_of_the_same_name_does_not_delete_what_another_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process ids tell nothing there. What nobody has written to for a week goes."""
    monkeypatch.setattr(storage, "_machine", lambda: "0123abcd")
    left = leave_unfinished(tmp_path / "path")
    monkeypatch.undo()
    before = {*left.iterdir()}
    write_json(tmp_path / "path", {})
    assert {*left.iterdir()} == before
    for path in (left, *before):
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    write_json(tmp_path / "path", {})
    assert [path.name for path in tmp_path.iterdir()] == ["path"]


def test_two_threads_write_one_path_at_once(tmp_path: Path) -> None:
    with write_whole(tmp_path / "path") as first, write_whole(tmp_path / "path") as second:
        first.write_text("one")
        second.write_text("two")
    assert (tmp_path / "path").read_text() == "one"


@pytest.mark.parametrize(
    ("name", "alone", "below"),
    [
        ("a", True, True),
        ("a b.c", True, True),
        ("...", True, True),
        ("a/b", False, True),
        *((name, False, False) for name in ("", ".", "..", "/", "/a", "a/../b", "a/..", "a//b")),
        *((name, False, False) for name in ("../a", "a/", "..\\a", "a\\b", "C:a", "a\0b", 5, None)),
    ],
)
def test_a_name_from_outside_stays_in_its_folder(name: Any, alone: bool, below: bool) -> None:
    assert storage.is_inside(name) is alone
    assert storage.is_inside(name, below=True) is below


def test_names_that_are_not_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"file": "tr\udce4n"})
    assert read_json(tmp_path / "a.json", RunError, "") == {"file": "tr\udce4n"}
    with storage.atomic_text(tmp_path / "a.txt") as file:
        file.write("tr\udce4n")
    assert (tmp_path / "a.txt").read_bytes() == b"tr\\udce4n"


def test_a_file_is_replaced_by_a_whole_one_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError):
        write_half(path, write_file)
    assert path.read_bytes() == b"before"
    with atomic_write(path) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after"


def test_a_json_object_comes_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"é": [1, 0.1, None]})
    assert read_json(tmp_path / "a.json", RunError, "") == {"é": [1, 0.1, None]}


# ----------------------------------------------------------------------------------------- the lock


def _hold(folder: Path, held: Any) -> None:
    with lock_folder(folder, RunError):
        child = os.fork()  # a worker that outlives a kill of its parent
        if child:
            (folder / "worker").write_text(str(child))
            held.set()
        time.sleep(60)


def test_a_second_owner_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with lock_folder(folder, RunError):
        with refused(DataError, folder, f"process {os.getpid()}"), lock_folder(folder, DataError):
            pytest.fail("entered twice")
        with refused(RunError, folder), lock_folder(folder, RunError):
            pytest.fail("the refusal dropped the lock")
    with lock_folder(folder, RunError):
        pass


@needs_fork
def test_the_lock_dies_with_its_process_even_if_a_worker_lives(
    tmp_path: Path, processes: Any
) -> None:
    held = processes.Event()
    owner = processes.Process(target=_hold, args=(tmp_path, held))
    owner.start()
    assert held.wait(60)
    with refused(RunError, tmp_path, owner.pid), lock_folder(tmp_path, RunError):
        pytest.fail("entered while another process holds it")
    owner.kill()
    owner.join()
    worker = int((tmp_path / "worker").read_text())
    try:
        for _ in range(100):  # a worker lets go first thing, which a busy machine may put off
            os.kill(worker, 0)  # it lives
            with suppress(RunError), lock_folder(tmp_path, RunError):
                break
            time.sleep(0.1)
        else:
            pytest.fail("the worker holds the lock")
    finally:
        os.kill(worker, signal.SIGKILL)


@needs_fork
def test_a_forked_child_that_leaves_the_block_does_not_drop_the_lock(
    tmp_path: Path, processes: Any
) -> None:
    child = processes.Process(target=_leave_in_child, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 0


def _leave_in_child(folder: Path) -> None:
    with lock_folder(folder, RunError):
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            with refused(RunError, folder), lock_folder(folder, RunError):
                pass
    if not child:
        os._exit(0)


def test_a_folder_that_cannot_be_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with refused(RunError, tmp_path / "file"), lock_folder(tmp_path / "file", RunError):
        pytest.fail("locked a file")

    def no_locks(self: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "_acquire", no_locks)
    with refused(RunError, tmp_path, "No locks available"), lock_folder(tmp_path, RunError):
        pytest.fail("locked without locks")


def test_whoever_may_read_a_folder_may_read_its_files(tmp_path: Path) -> None:
    """safetensors writes for the owner alone; the umask decides, as for every other file."""
    before = os.umask(0o027)
    try:
        for number, umask in enumerate((0o027, 0o022, 0o077)):
            os.umask(umask)
            with write_whole(tmp_path / str(number)) as aside:
                aside.mkdir()
                save_file({"a": np.zeros(2)}, aside / "weights.safetensors")
            assert (
                tmp_path / str(number) / "weights.safetensors"
            ).stat().st_mode & 0o777 == 0o666 & ~umask
    finally:
        os.umask(before)


# -------------------------------------------------------------------- what a person names as output


def test_a_replaced_file_keeps_its_mode_and_a_link_its_file(tmp_path: Path) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    place.write_text("before")
    place.chmod(0o640)
    link.symlink_to(place)
    with atomic_write(link) as file:
        file.write(b"after")
    assert link.is_symlink()
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("after", 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "place"]


def test_a_link_to_a_file_that_is_not_there_yet_makes_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"all of it")
    assert (tmp_path / "new").read_text() == "all of it"
    assert (tmp_path / "link").is_symlink()


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path, processes: Any) -> None:
    path, begun = tmp_path / "file", processes.Event()
    other = processes.Process(target=_write_slowly, args=(path, begun))
    other.start()
    assert begun.wait(60)
    with atomic_write(path) as file:
        file.write(b"mine")
    assert path.read_text() == "mine"
    (tmp_path / "go on").touch()
    other.join(60)
    assert other.exitcode == 0
    assert path.read_text() == "the other's, whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "go on"]


def _write_slowly(path: Path, begun: Any) -> None:
    with atomic_write(path) as file:
        file.write(b"the other's, ")
        file.flush()
        begun.set()
        while not path.with_name("go on").exists():
            time.sleep(0.01)
        file.write(b"whole")


@needs_fork
def test_what_a_killed_writer_left_is_cleared_away_by_the_next(
    tmp_path: Path, processes: Any
) -> None:
    path, begun = tmp_path / "file", processes.Event()
    other = processes.Process(target=_write_slowly, args=(path, begun))
    other.start()
    assert begun.wait(60)
    other.kill()
    other.join()
    assert len(list(tmp_path.iterdir())) == 1
    with atomic_write(path) as file:
        file.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    with atomic_write(path) as file:
        file.write(b"all of it")
    assert path.read_text() == "all of it"


@needs_fork
def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with atomic_write(pipe) as file:
        file.write(b"through it")
    reader.join(10)
    assert read == [b"through it"]
    assert pipe.is_fifo()


@needs_fork
def test_a_descriptor_is_written_into_where_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "wb", buffering=0) as file:
        file.write(b"before, ")
        with atomic_write(Path(f"/dev/fd/{file.fileno()}")) as output:
            output.write(b"meanwhile, ")
        file.write(b"after")
    assert log.read_text() == "before, meanwhile, after"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="the system has no full device")
def test_a_full_device_is_named_and_stays_one() -> None:
    device = Path("/dev/full")
    with pytest.raises(OSError, match="/dev/full") as caught, atomic_write(device) as file:
        file.write(b"some")
    assert caught.value.errno == errno.ENOSPC
    assert device.is_char_device()


@needs_fork
def test_a_file_on_a_full_disk_is_named_and_stays_as_it_was(tmp_path: Path, processes: Any) -> None:
    for name in ("file", "folder"):
        path = tmp_path / name
        child = processes.Process(target=_write_beyond_a_limit, args=(path,))
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert (tmp_path / "file").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def _write_beyond_a_limit(path: Path) -> None:
    import resource

    if path.name == "file":
        path.write_text("before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with pytest.raises(OSError) as caught:
        _write_much(path)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(path)


def _write_much(path: Path) -> None:
    if path.name == "file":
        with atomic_write(path) as file:
            file.write(bytes(20_000))
        return
    with write_whole(path) as aside:
        aside.mkdir()
        (aside / "inside").write_bytes(bytes(20_000))


def test_a_folder_that_may_not_be_written_to_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    check_output(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    check_output(Path(os.devnull))
    with refused(ConfigError, path, "--page"):
        check_output(path, "--page")
    for place in (tmp_path, tmp_path / "none" / "file", Path("")):
        with refused(ConfigError, place, "--out"):
            check_output(place)


def test_a_file_system_that_refuses_everything_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"

    def refuse(name: Path, *rest: object, **more: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(name))

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="Read-only") as caught, atomic_write(path) as file:
        file.write(b"some")
    assert caught.value.filename == str(path)
