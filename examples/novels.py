"""Write novels of ELTeC as text files that `litebert prepare` reads.

python novels.py FOLDER OUT [NAME...]    # python novels.py ELTeC-eng novels ENG18652_Carroll

FOLDER is a clone of a collection, such as https://github.com/COST-ELTeC/ELTeC-eng. A line of OUT is
a heading, a paragraph or a verse, and an empty line stands between chapters. Title pages and notes
are left out. Without names, all novels are written. It needs no library.
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

TEI = "{http://www.tei-c.org/ns/1.0}"
LINES = {f"{TEI}{name}" for name in ("head", "p", "l")}
OMITTED = {f"{TEI}{name}" for name in ("note", "ref")}
APART = LINES | {f"{TEI}{name}" for name in ("lb", "pb", "quote", "lg")}


def read_text(element: ElementTree.Element) -> str:
    """The text of an element without its notes."""
    pieces = [element.text or ""]
    for child in element:
        if child.tag not in OMITTED:
            text = read_text(child)
            pieces.append(f" {text} " if child.tag in APART else text)
        pieces.append(child.tail or "")
    return "".join(pieces)


def list_lines(element: ElementTree.Element) -> Iterator[str]:
    """The lines of an element and of those below it; an empty one before each chapter."""
    for child in element:
        if child.tag in OMITTED:
            continue
        if child.tag in LINES:
            if line := " ".join(read_text(child).split()):
                yield line
            continue
        if child.tag == f"{TEI}div":
            yield ""
        yield from list_lines(child)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("give the folder of a collection and the folder to write")
    folder, out, *names = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    paths = {
        path.stem: path for level in (0, 1) for path in Path(folder).glob(f"level{level}/*.xml")
    }
    if not paths:
        sys.exit(f"{folder} has no novels in level0/ or level1/")
    for name in names or sorted(paths):
        if name not in paths:
            sys.exit(f"{folder} has no novel {name} in level0/ or level1/")
        body = ElementTree.parse(paths[name]).find(f"{TEI}text/{TEI}body")
        if body is None:
            sys.exit(f"{paths[name]} has no text/body of TEI")
        text = "\n".join([*list_lines(body), ""]).lstrip("\n")
        (Path(out) / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
