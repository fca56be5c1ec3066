"""How every package reads and writes the disk: whole files and folders, checksums, JSON files,
locks.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, TextIO

from litebert.base.errors import ConfigError, LitebertError
from litebert.base.json_reader import read_json

UNFINISHED = ".tmp-"
"""Names of files and folders that are being written begin like this."""
_WEEK = 7 * 24 * 3600
LOCK = ".lock"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The system's error numbers for a full disk, a quota, or a limit of file sizes."""


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """Give a path to write a file or a folder to, which then takes the name `path`, complete and on
    the disk, or never does.

    A file of that name, or an empty folder, is replaced, and the new file keeps its mode. A
    symbolic link keeps leading to the file. Files get the read permissions of their folder. Of two
    processes that write to one path, the last to end wins.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    owner = f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"  # the machine and the process
    aside = target.with_name(f"{_stem(target)}{owner}")
    _sweep(target)
    try:
        yield aside
        for written in (*sorted(aside.rglob("*"), reverse=True), aside):
            # safetensors writes for the owner alone, whatever the umask.
            if aside.is_dir() and written.is_file():
                written.chmod(aside.stat().st_mode & 0o666)
            sync(written)
        if target.is_file():
            about = target.stat()
            with suppress(OSError, AttributeError):  # of systems without owners
                os.chown(aside, about.st_uid, about.st_gid)
            with suppress(OSError):
                aside.chmod(stat.S_IMODE(about.st_mode))
        os.replace(aside, target)
    except BaseException as error:
        with suppress(OSError):  # a read-only file system refuses even to delete what is not there
            remove(aside)
        if isinstance(error, OSError) and error.filename is not None:
            # People know the name they gave.
            error.filename = os.fsdecode(error.filename).replace(str(aside), str(path))
        elif isinstance(error, OSError) and error.errno in FULL:
            error.filename = str(path)
        raise
    sync(target.parent)


def _stem(target: Path) -> str:
    # File systems allow 255 bytes for a name.
    name = target.name if len(os.fsencode(target.name)) < 210 else target.name[:50]
    return f"{UNFINISHED}{name}."


@cache
def _machine() -> str:
    """A mark of this machine since it started, and of this container: elsewhere, a process id is
    that of another process. Containers may share the name of the machine."""
    mark, boot = platform.node(), Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        mark += boot.read_text() + os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(mark.encode()):08x}"


def _sweep(target: Path) -> None:
    """Delete what killed processes left of writing to `target`: at once where they were of this
    machine, else when nothing was written for a week."""
    owned = re.compile(
        re.escape(_stem(target)) + r"(?:([0-9a-f]{8})-(\d+)-[0-9a-f]{8}|[0-9a-f]{4}-\d+)"
    )
    with suppress(OSError):
        for name in os.listdir(target.parent):
            if match := owned.fullmatch(name):
                left, is_ours = target.with_name(name), match[1] == _machine()
                times = (path.lstat().st_mtime for path in (left, *left.rglob("*")))
                if not _alive(int(match[2])) if is_ours else max(times) < time.time() - _WEEK:
                    remove(left)


def _alive(process: int) -> bool:
    """True where a process of this machine runs; where the system cannot tell, it may."""
    if os.name == "nt":  # os.kill would end it
        return True
    try:
        os.kill(process, 0)
        # A zombie has ended; its parent has not asked yet, and in a container may never ask.
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state not in (b"Z", b"X")
    except ProcessLookupError:
        return False
    except (OSError, OverflowError, IndexError):
        return True


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name complete and on the disk, or not at all; see
    `write_whole`.

    A device, a pipe and standard output are written into, so what was written stays there.
    """
    if is_written_into(path):
        with io.BufferedWriter(_NamedFile(_descriptor(path), path)) as file:
            yield file
        return
    with write_whole(path) as aside, io.BufferedWriter(_NamedFile(aside, path)) as file:
        yield file


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system that names no file name this one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def check_output(path: Path, option: str = "--out") -> None:
    """Refuse a name, given by `option`, that no file can be written to, before any work for it."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not str(path) or path.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"cannot write {path}; give {option} a file in a folder that exists")
    if not is_written_into(path) and not os.access(target.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"cannot write {path}, for its folder may not be written to; give {option} another file"
        )


@contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """The same for UTF-8 text, whose line ends stay as they are.

    Bytes of a file's name that are not UTF-8 are halves of surrogate pairs, and \\udcff here.
    """
    with (
        atomic_write(path) as raw,
        io.TextIOWrapper(raw, "utf-8", "backslashreplace", newline="") as file,
    ):
        yield file


def is_written_into(path: Path) -> bool:
    """True where a path leads to no regular file, or to a stream that this process has open."""
    try:
        return (not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()) or _open_stream(
            path
        ) is not None
    except OSError:
        return False


def _open_stream(path: Path) -> int | None:
    """The descriptor behind /dev/stdout, /dev/fd/3, or the file that is standard output."""
    folder = os.path.realpath(path.parent)
    if path.name.isdecimal() and folder in ("/dev/fd", os.path.realpath("/proc/self/fd")):
        return int(path.name)
    about = path.stat()
    if os.path.samestat(about, os.stat(os.devnull)):  # which any number of streams may be
        return None
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(about, os.fstat(number)):
                return number
    return None


def _descriptor(path: Path) -> int:
    with naming(path):
        number = _open_stream(path)
        if number is None:
            return os.open(path, os.O_WRONLY)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # what was printed before comes before
        return os.dup(number)


class _NamedFile(io.FileIO):
    """The system's file, whose errors name the path that a person gave."""

    def __init__(self, opened: int | Path, path: Path) -> None:
        super().__init__(opened, "w")
        self._path = path

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        with naming(self._path):
            return super().write(data)


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file as a person reads it; see `json_text`."""
    with atomic_text(path) as file:
        file.write(json_text(data))


def json_text(data: Any, indent: int | None = 2) -> str:
    """Strict JSON and a line break; a number that is not finite becomes null."""
    text = json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode()  # JSON spells a half pair \udcff


def _finite(value: Any) -> Any:
    if hasattr(value, "item"):  # a number of torch or numpy
        value = value.item()
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def is_inside(name: object, *, below: bool = False) -> bool:
    """True where a name from outside (a store, the Hub, a file) names a file in its folder, or with
    `below` in a folder there, on every system.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    is_relative = not {"", ".", ".."} & {*parts} and (below or len(parts) == 1)
    return is_relative and re.search(r"[\\\0]|^[A-Za-z]:", str(name)) is None


def remove(path: Path) -> None:
    """Delete a file or a folder, where there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder where the system can, to the disk itself."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """The user's cache of litebert: compiled libraries, and what else can be made again."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "litebert")


def sha256_of(path: Path) -> str:
    """Hexadecimal checksum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# -------------------------------------------------------------------------------------- checkpoints

CHECKPOINT = re.compile(r"step-(\d{8,})(\.old)?")
"""Names of checkpoints; one ends in .old while it is being replaced."""


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, newest first; one set aside comes after the one that replaces it."""
    names = (
        [CHECKPOINT.fullmatch(name.name) for name in folder.iterdir()] if folder.is_dir() else []
    )
    return [folder / name for _, name in sorted((-int(name[1]), name[0]) for name in names if name)]


def newest_whole(
    folder: Path, damage: Callable[[Path], str | None]
) -> tuple[Path | None, list[tuple[Path, str]]]:
    """The newest checkpoint without `damage`, and the damage of the newer ones."""
    damaged: list[tuple[Path, str]] = []
    for path in checkpoints(folder):
        problem = damage(path)
        if problem is None:
            return path, damaged
        damaged.append((path, problem))
    return None, damaged


INDEX_FORMAT = 1


def file_record(file: Path) -> dict[str, int | str]:
    """The record of a file in an index: its bytes and its sha256."""
    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}


def index_text(files: Mapping[str, Any]) -> str:
    """The text of an index.json that holds the records of some files by name."""
    return json.dumps({"format": INDEX_FORMAT, "files": files}, indent=2) + "\n"


def hash_fault(folder: Path, name: str, index: str = "index.json") -> str | None:
    """Say what is wrong with a file of a folder by its index, as the end of a sentence, or None."""
    try:
        recorded = read_json(folder / index, LitebertError)
        whole = recorded["files"][name]["sha256"] == sha256_of(folder / name)
    except OSError as error:
        return f"cannot be read ({Path(str(error.filename)).name}: {error.strerror})"
    except LitebertError as error:
        return f"cannot be used ({error})"
    except (KeyError, TypeError):
        whole = False
    return None if whole else f"is damaged ({name} does not match its {index})"


@contextmanager
def lock_folder(folder: Path, error: type[LitebertError]) -> Iterator[None]:
    """Take the right to write into a folder, made if need be, until the process dies; forks do not
    keep it. `folder`/.lock holds the owner's process id.
    """
    from filelock import FileLock, Timeout  # late, for `litebert --help` should take no longer

    file = folder / LOCK
    # A kept lock file also means: no silent fall-back where the file system has no locks.
    lock = FileLock(file, timeout=0, preserve_lock_file=True, on_acquired=_write_owner)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        owner = "unknown"
        with suppress(OSError):  # Windows lets nobody read a locked file
            owner = file.read_text("ascii", "replace").strip() or owner
        reason = f"is in use by process {owner}; wait until it ends, or choose another folder"
        raise error(f"the folder {folder} {reason}") from None
    except OSError as problem:
        without = problem.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
        reason = "is on a file system without locks" if without else "cannot be opened"
        raise error(
            f"the folder {folder} {reason} ({problem.strerror}); choose another one"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _write_owner(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()}\n".encode())
