"""Checkpoints under kills, damage and full disks, and the lock of a run folder."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from litebert.base.errors import RunError
from litebert.train import checkpoint
from litebert.train.checkpoint import find_newest, prune, save, tidy
from toys.refusals import refused

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "index.json")
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="kills and forks are POSIX's")


def content(step: int) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """The content that the checkpoint of a step must hold."""
    model = {
        "weight": torch.full((5, 3), float(step)),
        "bias": torch.arange(4, dtype=torch.bfloat16),
    }
    return (
        model,
        {"weight.step": torch.tensor(float(step)), "empty": torch.zeros(0)},
        {"tokens": 100 * step, "note": "é"},
    )


def save_step(folder: Path, step: int) -> Path:
    return save(folder / "checkpoints", step, *content(step))


def assert_whole(folder: Path, *steps: int) -> int:
    """The newest checkpoint is that of one of the steps, to the bit; returns its step."""
    newest = find_newest(folder / "checkpoints")
    assert newest is not None
    assert newest.step in steps
    model, optimizer, state = content(newest.step)
    for expected, tensors in ((model, newest.load_model()), (optimizer, newest.load_optimizer())):
        assert expected.keys() == tensors.keys()
        for name, tensor in expected.items():
            assert torch.equal(tensors[name], tensor)
    assert newest.state == {**state, "step": newest.step}
    return newest.step


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    assert find_newest(tmp_path / "checkpoints") is None
    path = save_step(tmp_path, 1200)
    assert path == tmp_path / "checkpoints" / "step-00001200"
    assert sorted(item.name for item in path.iterdir()) == sorted(FILES)
    index = json.loads((path / "index.json").read_text())
    assert index["format"] == 1
    assert index["files"]["state.json"]["bytes"] == (path / "state.json").stat().st_size
    assert_whole(tmp_path, 1200)
    save_step(tmp_path, 900)
    save_step(tmp_path, 123_456_789)
    assert assert_whole(tmp_path, 123_456_789)
    newest = find_newest(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.damaged == ()


def test_tensors_that_need_grad_or_are_not_contiguous_are_saved(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    save(
        tmp_path / "checkpoints", 1, {"a": weight, "b": torch.arange(6.0).reshape(2, 3).t()}, {}, {}
    )
    newest = find_newest(tmp_path / "checkpoints")
    assert newest is not None
    assert torch.equal(newest.load_model()["a"], weight)
    assert torch.equal(newest.load_model()["b"], weight.t())


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_checkpoint_may_be_read_by_whom_the_umask_lets(
    mask: int, mode: int, tmp_path: Path
) -> None:
    before = os.umask(mask)
    try:
        path = save_step(tmp_path, 1)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {mode}


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints", 3, {"weight": torch.zeros(2)}, {}, {})
    save_step(tmp_path, 3)
    assert_whole(tmp_path, 3)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003"]


def cut_bytes(data: bytes, at: int) -> bytes:
    return data[:at]


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def grow(data: bytes, at: int) -> bytes:
    return data + bytes(at + 1)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [cut_bytes, flip, grow])
def test_damage_anywhere_falls_back_to_the_one_before_and_is_told(
    name: str, change: Callable[[bytes, int], bytes], tmp_path: Path
) -> None:
    save_step(tmp_path, 1)
    path = save_step(tmp_path, 2)
    whole = (path / name).read_bytes()
    places = (
        range(len(whole))
        if name == "index.json"
        else random.Random(0).sample(range(len(whole)), 25)
    )
    for at in places:
        (path / name).write_bytes(change(whole, at))
        newest = find_newest(tmp_path / "checkpoints")
        assert newest is not None
        assert newest.step == 1, f"{change.__name__} at byte {at} of {name} was not seen"
        assert [(where.name, name in reason) for where, reason in newest.damaged] == [
            ("step-00000002", True)
        ]
    (path / name).write_bytes(whole)
    assert_whole(tmp_path, 2)


OTHER_SHAPES = ["[]", '{"format": 2}', '{"format": 1, "files": []}', '{"format": 1, "files": {}}']


@pytest.mark.parametrize(
    ("name", "text"),
    [*((name, None) for name in FILES), *(("index.json", text) for text in OTHER_SHAPES)],
)
def test_a_missing_file_and_an_index_of_another_shape_are_damage(
    name: str, text: str | None, tmp_path: Path
) -> None:
    save_step(tmp_path, 1)
    file = save_step(tmp_path, 2) / name
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    assert assert_whole(tmp_path, 1)
    assert name in find_newest(tmp_path / "checkpoints").damaged[0][1]  # type: ignore[union-attr]


def test_a_run_with_only_damaged_checkpoints_is_not_started_over(tmp_path: Path) -> None:
    for step in (1, 2):
        (save_step(tmp_path, step) / "state.json").write_text("{}")
    with refused(
        RunError, tmp_path / "checkpoints", "step-00000002", "step-00000001", "state.json"
    ):
        find_newest(tmp_path / "checkpoints")


def test_pruning_keeps_the_newest_whole_ones(tmp_path: Path) -> None:
    for step in range(1, 7):
        save_step(tmp_path, step)
    (tmp_path / "checkpoints" / "step-00000005" / "model.safetensors").write_bytes(b"")
    prune(tmp_path / "checkpoints", 2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000004", "step-00000005", "step-00000006"]
    prune(tmp_path / "checkpoints", 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000006"]
    prune(tmp_path / "absent", 1)


@needs_fork
def test_everything_is_on_the_disk_before_the_name_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, then their folder, then the rename, then its folder: a power cut leaves no name
    without its bytes.
    """
    calls: list[int | str] = []
    fsync, replace = os.fsync, os.replace

    def note_and_fsync(file: int) -> None:
        calls.append(os.fstat(file).st_ino)
        fsync(file)

    def note_and_replace(*paths: Any) -> None:
        calls.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", note_and_fsync)
    monkeypatch.setattr(os, "replace", note_and_replace)
    path = save_step(tmp_path, 1)
    paths = (*path.iterdir(), path, path.parent, tmp_path)
    names = {item.stat().st_ino: item.relative_to(tmp_path).name for item in paths}
    events = [call if isinstance(call, str) else names[call] for call in calls]
    assert sorted(events[:4]) == sorted(FILES)
    assert events[4:] == ["step-00000001", "rename", "checkpoints", ""]


# -------------------------------------------------------------------------------------------- kills


def _save_and_die(folder: Path, steps: list[int], at: int) -> None:
    """Save the steps, keeping one; kill the process just before the `at`-th call that changes the
    disk.
    """
    calls = 0

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def fail_at(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return fail_at

    for owner, names in (
        (os, ("fsync", "rename", "replace", "rmdir", "unlink")),
        (Path, ("mkdir", "write_text")),
        (checkpoint, ("save_file",)),
    ):
        for name in names:
            setattr(owner, name, deadly(getattr(owner, name)))
    for step in steps:
        save_step(folder, step)
        prune(folder / "checkpoints", 1)


def _save_for_ever(folder: Path, started: Any) -> None:
    step = 1
    while True:
        save(
            folder / "checkpoints",
            step,
            {"big": torch.full((300_000,), float(step))},
            {},
            {"tokens": step},
        )
        prune(folder / "checkpoints", 2)
        started.set()
        step += 1


@needs_fork
def test_a_kill_at_any_write_leaves_a_whole_checkpoint(tmp_path: Path, processes: Any) -> None:
    """The child writes step 2, then writes it again in place of the first."""
    at, died = 0, True
    while died:
        at += 1
        folder = tmp_path / str(at)
        save_step(folder, 1)
        child = processes.Process(target=_save_and_die, args=(folder, [2, 2], at))
        child.start()
        child.join()
        died = child.exitcode == -signal.SIGKILL
        assert died or child.exitcode == 0
        reached = assert_whole(folder, 1, 2)
        tidy(folder / "checkpoints")  # what the next run does first
        names = [path.name for path in (folder / "checkpoints").iterdir()]
        assert all(name.removeprefix("step-").isdigit() for name in names), names
        assert assert_whole(folder, 1, 2) == reached
        save_step(folder, 3)
        assert_whole(folder, 3)
        shutil.rmtree(folder)
    assert at > 30  # it really died at that many places


@needs_fork
def test_kills_at_random_instants_leave_a_whole_checkpoint(tmp_path: Path, processes: Any) -> None:
    generator = random.Random(0)
    for round_ in range(12):
        folder = tmp_path / str(round_)
        started = processes.Event()
        child = processes.Process(target=_save_for_ever, args=(folder, started))
        child.start()
        assert started.wait(60)
        time.sleep(generator.uniform(0, 0.06))
        child.kill()
        child.join()
        newest = find_newest(folder / "checkpoints")
        assert newest is not None
        assert newest.damaged == ()
        assert torch.equal(newest.load_model()["big"], torch.full((300_000,), float(newest.step)))
        assert newest.state == {"tokens": newest.step, "step": newest.step}


# --------------------------------------------------------------------------------------- full disks


def _raises(error: Exception) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (
            checkpoint,
            "save_file",
            SafetensorError("I/O error: No space left on device (os error 28)"),
        ),
        (os, "fsync", OSError(errno.ENOSPC, "No space left on device")),
        (Path, "write_text", OSError(errno.EDQUOT, "Disk quota exceeded")),
    ],
)
def test_a_full_disk_names_the_folder_the_need_and_the_mend(
    owner: Any, name: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_step(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, _raises(error))
        with refused(RunError, tmp_path / "checkpoints", "step 2", "72 bytes", "the disk is full"):
            save_step(tmp_path, 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    assert_whole(tmp_path, 1)
    save_step(tmp_path, 2)
    assert_whole(tmp_path, 2)


@pytest.mark.parametrize("step", [1, 2])
def test_a_rename_that_fails_keeps_the_checkpoint_before(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_step(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _raises(OSError(errno.EIO, "Input/output error")))
        with refused(RunError, tmp_path / "checkpoints", "Input/output error"):
            save_step(tmp_path, step)
    assert_whole(tmp_path, 1)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs to mount a small disk"
)
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        save_step(tmp_path, 1)
        big: tuple[Any, Any, Any]
        for big in (({"x": torch.ones(100_000)}, {}, {}), ({}, {}, {"x": "y" * 400_000})):
            with refused(RunError, tmp_path / "checkpoints", "the disk is full"):
                save(tmp_path / "checkpoints", 2, *big)
            assert_whole(tmp_path, 1)
        save_step(tmp_path, 2)
        assert_whole(tmp_path, 2)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file in the way")
    with refused(RunError, tmp_path / "checkpoints", "step 1"):
        save_step(tmp_path, 1)


# ------------------------------------------------------------------------------- what a kill leaves


def test_tidying_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_step(tmp_path, step)
    parent = tmp_path / "checkpoints"
    shutil.copytree(parent / "step-00000003", parent / ".tmp-step-00000004")
    shutil.copytree(parent / "step-00000002", parent / "step-00000002.old")
    os.rename(parent / "step-00000003", parent / "step-00000003.old")
    (parent / "notes.txt").write_text("a person's own file")
    assert_whole(tmp_path, 3)
    tidy(parent)
    names = sorted(path.name for path in parent.iterdir())
    assert names == ["notes.txt", "step-00000001", "step-00000002", "step-00000003"]
    assert_whole(tmp_path, 3)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=8), st.sampled_from(DTYPES), SHAPES), max_size=6))
def test_tensors_are_written_as_the_library_writes_them(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[str, torch.dtype, tuple[int, ...]]],
) -> None:
    folder = tmp_path_factory.mktemp("tensors")
    tensors = {name: torch.ones(shape).to(dtype) for name, dtype, shape in drawn}
    path = save(folder, 1, tensors, {}, {})
    save_file(tensors, folder / "expected")
    assert (path / "model.safetensors").read_bytes() == (folder / "expected").read_bytes()


def test_a_transposed_tensor_is_written_in_its_own_order(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).t()
    save(tmp_path, 1, {"weight": tensor}, {}, {})
    newest = find_newest(tmp_path)
    assert newest is not None
    assert torch.equal(newest.load_model()["weight"], tensor)
