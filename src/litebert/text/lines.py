"""From the bytes of a file, compressed or plain, or of standard input, to lines of text.

Everything streams in blocks of a megabyte. Text that cannot be read is an error that names the file
and the line; it is never skipped silently.
"""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from litebert.errors import DataError

BLOCK = 1 << 20
COMPRESSIONS = (".gz", ".xz", ".zst")
STANDARD_INPUT = "-"


@dataclass
class Meter:
    """Bytes of the source files read so far, for a progress bar; `total` is None where it cannot be
    known.
    """

    total: int | None = None
    read: int = 0


def find_suffix(path: Path) -> str:
    """The suffix in lower case, without that of a compression."""
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return plain.suffix.lower()


# -------------------------------------------------------------------------------------------- bytes


def read_blocks(source: str | Path, meter: Meter) -> Iterator[bytes]:
    """The decompressed content of a file or of standard input (`-`); `meter` counts the bytes as
    they lie on disk.
    """
    if str(source) == STANDARD_INPUT:
        yield from _read_standard_input(meter)
        return
    path, before = Path(source), meter.read
    try:
        with open(path, "rb") as raw:
            stream = _open_decompressor(raw, path.suffix.lower())
            seekable = raw.seekable()  # a pipe has no place
            while block := stream.read(BLOCK):
                meter.read = before + raw.tell() if seekable else meter.read + len(block)
                yield block
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if (
            isinstance(error, OSError) and error.errno
        ):  # the system's, where those of the decompressors have no number
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        raise DataError(
            f"{path} is cut short or damaged ({error}); make or fetch the file again"
        ) from error


def _read_standard_input(meter: Meter) -> Iterator[bytes]:
    try:
        if sys.stdin is None or sys.stdin.buffer is None:
            raise OSError("it is closed")
        while block := sys.stdin.buffer.read(BLOCK):
            meter.read += len(block)
            yield block
    except (OSError, ValueError) as error:
        raise DataError(
            f"standard input cannot be read ({error}); pipe text into it, or name a file"
        ) from error


def _open_decompressor(raw: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    if suffix == ".zst":
        import pyarrow as pa  # late: worker processes do not need it

        return pa.CompressedInputStream(raw, "zstd")
    return raw


# --------------------------------------------------------------------------------------------- text


def decode_blocks(
    data: Iterable[bytes], name: str, encoding: str = "utf-8", *, prose: bool = False
) -> Iterator[str]:
    """Blocks of text, up to the first that is not text.

    Args:
        prose: for a corpus, of any origin: every line end becomes "\\n", byte-order marks vanish, a
            zero byte is the sign that a file is no text. Without it, for the rows of a task: all
            characters stay.

    Raises DataError where the bytes are not of the encoding, or no text; the message names the
    line.
    """
    named = f"'{Path(name).name}=latin-1'" if name != "standard input" else "latin-1"
    remedy = (
        f"name its encoding, e.g. --encoding {named}" if prose else "save the whole file as UTF-8"
    )
    decoder = codecs.getincrementaldecoder(encoding)()
    ends = io.IncrementalNewlineDecoder(None, translate=True)
    shown = encoding.upper() if encoding == "utf-8" else encoding
    narrow = not codecs.lookup(encoding).name.startswith(
        ("utf-16", "utf-32")
    )  # those have zero bytes
    number, before = 1, 0  # where the next block starts: line, and bytes of that line
    head, mark = b"", len("".encode(encoding))
    for block in itertools.chain(data, [b""]):
        if narrow and number == 1 and not head:
            head = block[:64]
            if len(head) > 3 and not (any(head[::2]) and any(head[1::2])):
                raise DataError(
                    f"{name}:1 is not {shown} (every second byte is zero, as in UTF-16); {remedy}"
                )
        state, bad = decoder.getstate(), None
        zero = block.find(b"\0") if narrow and prose else -1
        try:
            text = decoder.decode(block[:zero] if zero >= 0 else block, final=not block)
        except UnicodeDecodeError as error:
            bad = error
            again = codecs.getincrementaldecoder(encoding)("ignore")
            again.setstate(state)
            text = again.decode(block[: max(0, error.start - len(state[0]))])
        except (
            UnicodeError
        ) as error:  # UTF-16 or UTF-32 without the byte-order mark that says which of two it is
            raise DataError(f"{name}:1 is not {shown} ({error}); {remedy}") from error
        if prose:
            text = ends.decode(text, final=not block)
        number += text.count("\n")
        line = text[text.rfind("\n") + 1 :]
        before = (
            (before if len(line) == len(text) else 0) + len(line.encode(encoding, "replace")) - mark
        )
        yield text.replace("\ufeff", "") if prose else text
        if bad is not None and zero >= 0:
            raise DataError(
                f"{name}:{number} is not text (it has zero bytes); leave the file out, or {remedy}"
            )
        if bad is not None:
            message = (
                f"is not {shown} (byte 0x{bad.object[bad.start]:02x} after {before:,} "
                f"others); {remedy}"
            )
            raise DataError(f"{name}:{number} {message}") from bad
        if zero >= 0:
            message = (
                f"is not text (byte 0x00 after {before:,} others); leave the file out, or {remedy}"
            )
            raise DataError(f"{name}:{number} {message}")


class CutCounter(Protocol):
    """Counts how often text was cut."""

    cuts: int


def split_blocks(
    texts: Iterable[str], longest: int | None = None, tally: CutCounter | None = None
) -> Iterator[str]:
    """The lines without their ends; with `longest` (characters), longer ones are cut at a sentence
    end or a space.

    `tally` counts the cuts.
    """
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        if longest is not None and (
            len(rest) > longest or any(len(line) > longest for line in whole)
        ):
            pieces = [piece for line in whole for piece in split_text(line, longest)]
            *more, rest = split_text(rest, longest)
            if tally is not None:
                tally.cuts += len(pieces) - len(whole) + len(more)
            whole = pieces + more
        yield from whole
    if rest:
        yield rest


def split_text(text: str, longest: int) -> list[str]:
    """Pieces of at most `longest` characters, cut at a line end, else a sentence end, a space, or
    anywhere.
    """
    pieces = []
    start = 0
    while len(text) - start > longest:
        for mark in ("\n", ". ", "。", " "):
            at = text.rfind(mark, start + longest // 2, start + longest)
            if at >= 0:
                end = at + len(mark)
                break
        else:
            end = start + longest
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
