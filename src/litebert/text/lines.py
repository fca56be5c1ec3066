"""The bytes of a file, compressed or plain, or of standard input, decoded to lines of text. Text
that cannot be read is an error that names the file and the line, and never skipped.
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

from litebert.base.errors import DataError
from litebert.remote.names import path_of, shorten
from litebert.remote.reading import open_file

BLOCK = 1 << 20
COMPRESSIONS = (".gz", ".xz", ".zst")
STANDARD_INPUT = "-"


@dataclass
class Meter:
    """Counts the bytes of the source files read so far, of `total` if that is known."""

    total: int | None = None
    read: int = 0


def find_suffix(name: str | Path) -> str:
    path = path_of(name)
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return plain.suffix.lower()


# -------------------------------------------------------------------------------------------- bytes


def read_blocks(source: str | Path, meter: Meter) -> Iterator[bytes]:
    """Yield the decompressed content of a file, here or in a store, or of standard input (`-`).
    `meter` counts the bytes as they lie on disk.
    """
    if str(source) == STANDARD_INPUT:
        yield from _read_standard_input(meter)
        return
    label, before = shorten(source), meter.read
    try:
        with open_file(source) as raw:
            stream = _open_decompressor(raw, path_of(source).suffix.lower())
            seekable = raw.seekable()  # a pipe has no position
            while block := stream.read(BLOCK):
                meter.read = before + raw.tell() if seekable else meter.read + len(block)
                yield block
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        # Errors of the system have a number, those of the decompressors do not.
        if isinstance(error, OSError) and error.errno:
            raise DataError(f"{label} cannot be read: {error.strerror}") from error
        raise DataError(
            f"{label} is cut short or damaged ({error}); make or fetch the file again"
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
    """Decode blocks of bytes to blocks of text, up to the first that is not text.

    In `prose`, a corpus of any origin, every line end becomes "\\n", byte-order marks vanish, and a
    zero byte is the sign that a file is no text. In the rows of a task all characters stay.
    """
    remedy = "save the whole file as UTF-8"
    if prose:
        files = "" if name == "standard input" else f"{Path(name).name}="
        remedy = "name its encoding, e.g. --encoding " + (
            f"'{files}latin-1'" if files else "latin-1"
        )
    if not prose and encoding == "utf-8":
        remedy += ", or name its encoding with --encoding, such as cp1252"
    label = encoding.upper() if encoding == "utf-8" else encoding
    decoder = codecs.getincrementaldecoder(encoding)()
    ends = io.IncrementalNewlineDecoder(None, translate=True)
    # Text in UTF-16 and UTF-32 is full of zero bytes.
    may_have_zeros = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    # Where the next block starts: its line, and the bytes of that line in earlier blocks.
    number, before = 1, 0
    head, mark = b"", len("".encode(encoding))
    for block in itertools.chain(data, [b""]):
        if not may_have_zeros and number == 1 and not head:
            head = block[:64]
            # Every second byte is zero, as in Latin text in UTF-16.
            if len(head) > 3 and not (any(head[::2]) and any(head[1::2])):
                raise DataError(
                    f"{name}:1 is not {label} (every second byte is zero, as in UTF-16); {remedy}"
                )
        zero = block.find(b"\0") if prose and not may_have_zeros else -1
        try:
            text, fault = _decode_valid(
                decoder, block[:zero] if zero >= 0 else block, encoding, final=not block
            )
        except UnicodeError as error:  # UTF-16 or UTF-32 without the mark that tells the byte order
            raise DataError(f"{name}:1 is not {label} ({error}); {remedy}") from error
        if prose:
            text = ends.decode(text, final=not block)
        number += text.count("\n")
        line = text[text.rfind("\n") + 1 :]
        if len(line) < len(text):
            before = 0
        before += len(line.encode(encoding, "replace")) - mark
        # The text before a fault is yielded first, so that its own errors are reported first.
        yield text.replace("\ufeff", "") if prose else text
        if fault is not None and zero < 0:
            byte = f"byte 0x{fault.object[fault.start]:02x} after {before:,} others"
            raise DataError(f"{name}:{number} is not {label} ({byte}); {remedy}") from fault
        if zero >= 0:
            reason = f"byte 0x00 after {before:,} others" if fault is None else "it has zero bytes"
            raise DataError(
                f"{name}:{number} is not text ({reason}); leave the file out, or {remedy}"
            )


def _decode_valid(
    decoder: codecs.IncrementalDecoder, block: bytes, encoding: str, final: bool
) -> tuple[str, UnicodeDecodeError | None]:
    """Decode a block up to the first byte that is not of the encoding, and return that error."""
    state = decoder.getstate()
    try:
        return decoder.decode(block, final=final), None
    except UnicodeDecodeError as error:
        lenient = codecs.getincrementaldecoder(encoding)("ignore")
        lenient.setstate(state)
        # The error counts from the bytes that the decoder still held from the block before.
        return lenient.decode(block[: max(0, error.start - len(state[0]))]), error


class CutCounter(Protocol):
    cuts: int


def split_blocks(
    texts: Iterable[str], longest: int | None = None, tally: CutCounter | None = None
) -> Iterator[str]:
    """Split blocks of text into lines without their ends. Lines of more than `longest` characters
    are cut at a sentence end or a space, and `tally` counts the cuts.
    """
    rest = ""
    for text in texts:
        *complete, rest = (rest + text).split("\n")
        if longest is not None and (
            len(rest) > longest or any(len(line) > longest for line in complete)
        ):
            parts = [part for line in complete for part in split_text(line, longest)]
            *more, rest = split_text(rest, longest)
            if tally is not None:
                tally.cuts += len(parts) - len(complete) + len(more)
            complete = parts + more
        yield from complete
    if rest:
        yield rest


def split_text(text: str, longest: int) -> list[str]:
    """Split a text into parts of at most `longest` characters, at a line end, else at a sentence
    end, at a space, or anywhere.
    """
    parts = []
    start = 0
    while len(text) - start > longest:
        for mark in ("\n", ". ", "。", " "):
            at = text.rfind(mark, start + longest // 2, start + longest)
            if at >= 0:
                end = at + len(mark)
                break
        else:
            end = start + longest
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]
