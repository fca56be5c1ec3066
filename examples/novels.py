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


def list_lines(element: ElementTree.Element) -> Iterator[str]:
    """The lines of an element and of those below it; an empty one before each chapter."""
    for child in element:
        if child.tag in LINES:
            if line := " ".join("".join(child.itertext()).split()):
                yield line
            continue
        if child.tag == f"{TEI}div":
            yield ""
        yield from list_lines(child)


def main() -> None:
    folder, out, *names = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    paths = {
        path.stem: path for level in (0, 1) for path in Path(folder).glob(f"level{level}/*.xml")
    }
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
