"""Join the texts of all sources, each once, without those of the sets that judge; add questions,
and sentences of our own.

    python runs/encoder/corpus.py OUT DATA

reads OUT/texts/SOURCE.txt (of extract.py) for every row of sources.tsv and writes OUT/corpus.txt,
a text a line, and OUT/counts.json. DATA holds what judges: glue/STS-B, glue/SST-2, glue/CoLA,
glue/RTE, squad, race, wnut17.
"""

from __future__ import annotations

import csv
import itertools
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentences  # type: ignore[import-not-found]

RUN, STRIDE = 32, 12
"""A text is left out if it shares a run of RUN letters and digits, which starts at a multiple of
STRIDE in it, with one that judges.
"""
DOCUMENTATION = 6000
MOST = {
    "anarchism": 36_000,
    "novels-en": 330_000,
    "dict-gcide": 130_000,
    "dict-wn": 170_000,
    "sword-comm-mhcc": 20_000,
    "sword-text-kjv": 8_000,
    "sword-text-web": 8_000,
    "botocore": 16_000,
    "google-api-python-client": 12_000,
    "linux-doc-6.1": 12_000,
}


def letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def read_tsv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def judging_sets(data: Path) -> dict[str, list[str]]:
    """The texts of each set that judges. One that DATA lacks is an error."""
    sets: dict[str, list[str]] = {}
    for part in ("dev", "test"):
        head, *rows = read_tsv(data / f"glue/STS-B/{part}.tsv")
        first, second = head.index("sentence1"), head.index("sentence2")
        sets[f"STS-B {part}"] = [r[i] for r in rows if len(r) > second for i in (first, second)]
    sets["SST-2 dev"] = [row[0] for row in read_tsv(data / "glue/SST-2/dev.tsv")[1:]]
    sets["CoLA dev"] = [row[3] for row in read_tsv(data / "glue/CoLA/dev.tsv")]
    sets["RTE dev"] = [text for row in read_tsv(data / "glue/RTE/dev.tsv")[1:] for text in row[1:3]]
    for name in ("dev-v1.1", "part-v2.0"):
        texts = sets[f"SQuAD {name}"] = []
        for article in json.loads((data / f"squad/{name}.json").read_text("utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                texts += [paragraph["context"], *(qa["question"] for qa in paragraph["qas"])]
    passages = sorted((data / "race/dev").glob("*/*.txt")) or sorted(
        (data / "race/dev").glob("*/*")
    )
    sets["RACE dev"] = [json.loads(path.read_text("utf-8"))["article"] for path in passages]
    texts = sets["WNUT-17 dev and test"] = []
    for path in sorted(p for part in ("dev", "test") for p in (data / "wnut17").glob(f"*{part}*")):
        for block in re.split(r"\n\s*\n", path.read_text("utf-8-sig")):
            texts.append(" ".join(line.split("\t")[0] for line in block.splitlines()))
    return sets


class Judged:
    """Which set that judges a text is from, if any."""

    def __init__(self, sets: dict[str, list[str]]) -> None:
        self.whole: dict[str, str] = {}
        self.runs: dict[str, str] = {}
        for name, texts in sets.items():
            for text in map(letters, texts):
                if len(text) >= 8:
                    self.whole.setdefault(text, name)
                for i in range(len(text) - RUN + 1):
                    self.runs.setdefault(text[i : i + RUN], name)

    def __call__(self, text: str) -> str | None:
        if text in self.whole:
            return self.whole[text]
        for i in range(0, len(text) - RUN + 1, STRIDE):
            if found := self.runs.get(text[i : i + RUN]):
                return found
        return None


VERB = r"is|was|are|were|has been|had|has|can|could|will|would|did"
STATES = re.compile(
    rf"^((?:The |An? |In [^,]{{3,30}}, )?[A-Z][^,.;:()\"]{{2,45}}?) ({VERB}) "
    r"([^.;:()\"]{12,140})\.$"
)
DOES = re.compile(
    r"^((?:The )?[A-Z][^,.;:()\"]{2,40}?) "
    r"([a-z]{3,}ed|began|became|took|made|won|wrote|led|held|gave|found|built|fought|came|went|grew"
    r"|lost|left|contains|includes|provides|requires|allows|supports|uses) "
    r"([^.;:()\"]{12,120})\.$"
)
PLACE = re.compile(
    r"^(.{6,}) (in|by|at|on|from|for|to|with|of) ((?:the |a |an )?[^ ]+(?: [^ ]+){0,4})$"
)
NO_SUBJECT = re.compile(
    r"(It|There|This|That|He|She|They|We|You|I|What|If|As|In|When|These|Those|But|And|So) "
)
TIME = re.compile(
    r"\d{3,4}|century|January|March|April|June|July|August|September|October|November|December|morning|night|year"
)
PERSON = re.compile(r"[a-z] [A-Z]|^[A-Z][a-z]+$")


def question(text: str, rng: random.Random) -> str | None:
    """A question that the sentence answers, by its form; None where it has none of these forms."""
    match = STATES.match(text)
    if match and not NO_SUBJECT.match(match[1] + " "):
        name, verb, rest = match.groups()
        subject = name[0].lower() + name[1:] if re.match(r"(The|An?|His|Her|Its) ", name) else name
        if verb == "has been":
            verb, rest = "has", f"been {rest}"
        pick, place = rng.random(), PLACE.match(rest)
        if place and pick < 0.7:
            body, preposition, thing = place.groups()
            if verb in ("had", "has") and not body.startswith("been"):
                return None
            if preposition == "by":
                who = rng.choice(["Who", "What"])
                return f"{who} {verb} {subject} {body} by?"
            if preposition not in ("in", "on", "at"):
                return f"What {verb} {subject} {body} {preposition}?"
            year = ["When", "In what year", "What year"] if re.search(r"\d{4}", thing) else ["When"]
            return f"{rng.choice(year) if TIME.search(thing) else 'Where'} {verb} {subject} {body}?"
        if verb in ("is", "was", "are", "were") and pick < 0.85:
            return (
                f"{'Who' if PERSON.search(name) and rng.random() < 0.5 else 'What'} {verb} {rest}?"
            )
        return None if verb in ("had", "has") else f"{verb.capitalize()} {subject} {rest}?"
    match = DOES.match(text)
    if match and not NO_SUBJECT.match(match[1] + " "):
        name, verb, rest = match.groups()
        who = (
            "Who"
            if PERSON.search(name) and rng.random() < 0.5
            else rng.choice(["What", f"Which {name.split()[-1]}"])
        )
        return f"{who} {verb} {rest}?"
    return None


def questions(text: str, name: str, kind: str, rng: random.Random) -> Iterator[str]:
    if rng.random() < (0.3 if kind == "documentation" else 0.5):
        asked = question(text if len(text) < 220 else re.split(r"(?<=\.) (?=[A-Z])", text)[0], rng)
        if asked and len(asked) < 160:
            yield asked
    if name == "dict-wn" and ": " in text[:40]:
        word, gloss = text.split(": ", 1)
        if re.search(r"\(\d{4}-\d{2,4}\)|born in", gloss):
            yield f"Who was {word.title()}?"
        elif rng.random() < 0.12:
            yield rng.choice(
                ["What is {}?", "What does {} mean?", "What is the meaning of {}?"]
            ).format(word)


def some(texts: list[str], most: int, rng: random.Random) -> list[str]:
    """About `most` texts, in stretches, so that a paragraph stays beside its sentences."""
    if len(texts) <= most * 1.05:
        return texts
    starts = list(range(0, len(texts), 16))
    rng.shuffle(starts)
    return [text for start in sorted(starts[: most // 16]) for text in texts[start : start + 16]]


def main() -> None:
    out, data = Path(sys.argv[1]), Path(sys.argv[2])
    judged = Judged(judging_sets(data))
    rows = read_tsv(Path(__file__).parent / "sources.tsv")[1:]
    seen: set[int] = set()
    left: Counter[str] = Counter()
    counts: dict[str, int] = {}
    reviews: list[str] = []
    with (out / "corpus.txt").open("w", encoding="utf-8") as file:

        def add(name: str, texts: Iterable[str]) -> None:
            counts.setdefault(name, 0)
            for text in texts:
                key = letters(text)
                if len(key) < 8 or hash(key) in seen:
                    continue
                seen.add(hash(key))
                if found := judged(key):
                    left[f"{found}: {name}"] += 1
                    continue
                file.write(text + "\n")
                counts[name] += 1
                if name == "vaderSentiment":
                    reviews.append(text)

        for name, kind, *_ in rows:
            rng = random.Random(name)
            if name in sentences.OWN:
                write, number = sentences.OWN[name]
                add(name, itertools.islice(write(rng), number))
            elif name == "spliced":
                add(name, itertools.islice(sentences.spliced(reviews, rng), sentences.SPLICED))
            else:
                most = MOST.get(name, DOCUMENTATION if kind == "documentation" else 60_000)
                texts = some((out / f"texts/{name}.txt").read_text("utf-8").splitlines(), most, rng)
                asking = name != "vaderSentiment"
                add(
                    name,
                    (
                        x
                        for t in texts
                        for x in (t, *(questions(t, name, kind, rng) if asking else ()))
                    ),
                )
    (out / "counts.json").write_text(json.dumps(counts, indent=1))
    print(f"{sum(counts.values()):,} texts in {out / 'corpus.txt'}")
    for name, number in left.most_common():
        print(f"left out, a text of {name}: {number}")


if __name__ == "__main__":
    main()
