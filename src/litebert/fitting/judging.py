"""Judges methods on rows that they did not learn from: of few rows each third in turn for the cheap
methods, and one third for those that train a network; of many rows one part. The method that is
taken learns from all rows. What few rows cannot tell apart is decided as on other tasks: trained
networks are better than frozen vectors, and these better than TF-IDF, by `EXPECTED`.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.answer.model import load
from litebert.base import progress
from litebert.base.errors import DataError, RunError
from litebert.base.storage import atomic_text, write_whole
from litebert.config import replace
from litebert.finetuning.heads import fit_head
from litebert.fitting.methods import (
    METHODS,
    TRAINED,
    Learned,
    Material,
    MethodName,
    OutOfTime,
    read_vectors,
)
from litebert.fitting.second_round import add_texts, learn_again
from litebert.judge.calibration import calibrate_part, scale_logits, trace_part
from litebert.judge.seeds import compute_share_error
from litebert.tasks.rows import number_groups
from litebert.tasks.task import Task, choose_examples, write_examples
from litebert.tasks.text_outputs import Number, SeveralLabels
from litebert.tasks.texts import Example
from litebert.tasks.values import EncodedPart, Item, Logits
from litebert.text.records import Notes

log = logging.getLogger("litebert")

FEW_ROWS, FOLDS = 2000, 3
"""Rows below which the cheap methods judge each row once, in so many folds."""
READING, MOST_READ = 0.25, 60_000
"""The share of the time that is left in which the encoder reads rows, and how many, at most: a
linear model learns little from more."""
JUDGED, MOST_JUDGED = 0.2, 4000
"""Share and number of many rows that judge."""
HALVES = 2000
"""Rows that judge, from which on one half of them chooses the method, and the other scores it."""
EXPECTED: Mapping[MethodName, tuple[float, float]] = {
    "frozen": (0.15, 0.2),
    "contrastive": (0.15, 0.12),
    "finetune": (0.15, 0.12),
}
"""The share of the errors that a method takes away from the one that it builds on (frozen vectors
from TF-IDF, a trained network from frozen vectors), and its standard deviation: a round number for
what MiniLM did on reviews and on topics with 8 to 500 labels a class, in trials that no report
keeps."""
LEAST_SPREAD = 0.02
"""The least standard deviation of a score's gain."""
KEPT = 0.5
"""A second round is kept that is better by this share of its error."""
WORTH = 0.01
"""A gain over TF-IDF that is smaller than this and than its error is not worth an encoder."""
TIMED = 256
"""Texts that tell how fast a model answers."""
_BLOCKS = 20
Prefer = Literal["balance", "score"]
Answers = tuple[NDArray[np.int64], Logits]
"""Places of rows, and what a method answered to these."""


@dataclass(frozen=True)
class Judged:
    """A method, and what its answers to rows that it had not read were worth."""

    method: MethodName
    score: float
    error: float
    """The standard error of the score."""
    rows: int
    """How many rows judged it."""
    seconds: float
    """It learned in."""
    texts_per_second: float
    megabytes: float
    """Of the model folder."""


class Runner:
    """Judges methods on the same rows, chooses one, and lets it learn from all rows."""

    def __init__(self, material: Material, folder: Path, notes: list[str]) -> None:
        self.material, self.folder, self.notes = material, folder, notes
        self.items = material.task.plain_items(material.examples)
        self.folds = split_rows(material.task, self.items, material.seed)
        self.judged: dict[MethodName, Judged] = {}
        self.answers: dict[MethodName, Answers] = {}
        self.learned: dict[MethodName, Learned] = {}
        self.taught: Material | None = None
        """The rows and texts without labels, if a second round with these is better."""
        self.left_out: list[MethodName] = []
        """For want of time."""
        self.stopped = False
        """No more is learned, for want of time or by Ctrl-C."""
        self.interrupted = False
        """By Ctrl-C."""
        if len({item.group for item in self.items}) == 1 and self.items[0].group is not None:
            self._note("all rows are of one group, so groups keep no rows apart")

    def judge(self, methods: Sequence[MethodName]) -> None:
        for method in METHODS:
            if method not in methods or self.stopped:
                continue
            folds = self.folds[:1] if method in TRAINED else self.folds
            began = time.monotonic()
            try:
                if method != "tfidf" and not self.material.items:
                    self.material = _read(self.material, np.any(self.folds, 0), self.notes)
                    began = time.monotonic()
                cost, places, logits = self._answer(method, folds)
            except OutOfTime:
                self._note(f"{method} was left out: it does not fit into the time that is left")
                self.left_out.append(method)
                continue
            except DataError as fault:
                if method != "tfidf":
                    raise
                self._note(f"tfidf was left out: {fault}")
                continue
            except KeyboardInterrupt:
                if not self.judged:
                    raise
                self.stopped = self.interrupted = True
                self._note("stopped: the best method so far is taken")
                continue
            self.answers[method] = places, logits
            score, error = self.measure(self.answers[method])
            count = len(places) // 2 if len(places) >= HALVES else len(places)
            entry = Judged(method, score, error, count, *cost)
            self.judged[method] = entry
            log.info(
                f"{method}: {self.material.task.metric} {score:.4g} ± {error:.2g} on "
                f"{len(places):,} rows ({time.monotonic() - began:.1f} s)"
            )

    def _answer(
        self, method: MethodName, folds: Sequence[NDArray[np.bool_]]
    ) -> tuple[list[float], NDArray[np.int64], Logits]:
        """Answer the held rows of each fold; kept, so that a run that was killed goes on.

        Returns:
            Seconds of learning, texts a second and megabytes; the places of the rows; the answers.
        """
        file = self.folder / f"{method}.npz"
        if file.is_file():
            with suppress(OSError, ValueError, KeyError), np.load(file) as saved:
                return saved["cost"].tolist(), saved["places"], list(saved["logits"])
        places, logits, seconds = [], list[Any](), 0.0
        for held in folds:
            material, learn = self.material, np.flatnonzero(~held).tolist()
            if method in TRAINED:  # what is taken learns once more, from all rows
                material = self._limit(material, len(learn))
            began = time.monotonic()
            learned = METHODS[method](material, learn)
            seconds += time.monotonic() - began
            tried = np.flatnonzero(held)
            places.append(tried)
            logits += learned.logits(tried.tolist())
            self.learned[method] = learned
        every = np.concatenate(places)
        timed = [self.material.examples[place] for place in np.resize(every, TIMED).tolist()]
        cost = [round(seconds / len(folds), 2), *_measure_model(learned, timed)]
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as aside, open(aside, "wb") as opened:
            np.savez(opened, places=every, logits=np.stack(logits), cost=cost)
        return cost, every, logits

    def _limit(self, material: Material, rows: int) -> Material:
        left = material.deadline - time.monotonic()
        share = rows / (rows + len(self.items))
        return replace(material, deadline=time.monotonic() + left * share)

    def teach(self, method: MethodName, texts: Sequence[Example], count: int) -> None:
        """Judge a second round of the method with `texts` out of `count`, on the rows that judged
        the first, by models that learned from none of them; `finish` repeats it if it is better."""
        output, rows = self.material.task.output, len(self.items)
        if not output.exclusive:
            self._note("more texts teach classes only, so these were not used")
            return
        if not texts:
            self._note("every other text is one of the labeled ones, so these teach nothing")
            return
        if self.stopped:
            return
        folds = self.folds[:1] if method in TRAINED else self.folds
        file = self.folder / f"{method}-again.npz"
        places, logits = [np.flatnonzero(held) for held in folds], list[Any]()
        try:
            left = READING * (self.material.deadline - time.monotonic())
            material = add_texts(self.material, method, texts, left)
            if file.is_file():
                with suppress(OSError, ValueError, KeyError), np.load(file) as saved:
                    logits = list(saved["logits"])
            if not logits:
                for held, tried in zip(folds, places, strict=True):
                    learn = np.flatnonzero(~held).tolist()
                    limited = self._limit(material, len(learn)) if method in TRAINED else material
                    first = self.learned.get(method) if len(folds) == 1 else None
                    logits += learn_again(limited, method, learn, rows, first).logits(
                        tried.tolist()
                    )
                with write_whole(file) as aside, open(aside, "wb") as opened:
                    np.savez(opened, logits=np.stack(logits))
        except OutOfTime:
            self._note("more texts teach nothing in the time that is left")
            return
        except KeyboardInterrupt:
            self.stopped = self.interrupted = True
            self._note("stopped: the best method so far is taken")
            return
        again = np.concatenate(places), logits
        gain, error = self.measure(again, self.answers[method])
        kept = gain > KEPT * error
        read = len(material.examples) - rows
        of = f" of {count:,}" if read < count else ""
        verdict = "kept" if kept else "not kept"
        metric = self.material.task.metric
        note = f"with {read:,}{of} more texts: {metric} {gain:+.3f} ± {error:.3f}, {verdict}"
        self.notes.append(note)
        log.info(note)
        if kept:
            self.taught, self.learned, self.answers[method] = material, {}, again
            score, error = self.measure(again)
            self.judged[method] = replace(self.judged[method], score=score, error=error)

    def measure(self, answers: Answers, others: Answers | None = None) -> tuple[float, float]:
        """The score of answers and its error; with others, of the difference from these on the rows
        that both answer. Of many rows, those of scores and of differences are not the same."""
        places = answers[0] if others is None else np.intersect1d(answers[0], others[0])
        if len(places) >= HALVES:
            places = places[others is None :: 2]
        values = self._score_blocks(answers, places)
        if others is not None:
            values = values - self._score_blocks(others, places)
        score, parts = float(values[0]), values[1:]
        count = len(parts)
        error = float(np.sqrt((count - 1) / count * np.square(parts - parts.mean()).sum()))
        if others is None and 0 <= score <= 1 and not isinstance(self.material.task.output, Number):
            error = max(error, compute_share_error(score, len(places)))
        if others is not None:  # few rows that all agree still tell little
            error = max(error, 1 / (len(places) + 2))
        return score, error

    def _score_blocks(self, answers: Answers, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The score on places, then on them without one block each (a jackknife)."""
        task, examples = self.material.task, self.material.examples
        answered, logits = answers
        row_of = {place: row for row, place in enumerate(answered.tolist())}
        listed = places.tolist()
        chosen = [examples[place] for place in listed]
        items = [self.items[place] for place in listed]
        said = task.answers(chosen, items, [logits[row_of[place]] for place in listed])
        full = 100.0 if task.percent else 1.0
        blocks = np.arange(len(listed)) % min(_BLOCKS, len(listed))

        def score(keep: NDArray[np.bool_]) -> float:
            rows = np.flatnonzero(keep).tolist()
            if not rows:
                return 0.0
            scores = task.score([chosen[i] for i in rows], [said[i] for i in rows])
            value = scores[task.metric] / full
            return value if np.isfinite(value) else 0.0

        whole = score(np.ones(len(listed), bool))
        return np.array([whole, *(score(blocks != block) for block in range(blocks.max() + 1))])

    def choose(self, prefer: Prefer) -> tuple[MethodName, str]:
        """The method to take, and why."""
        if not self.judged:
            raise DataError(
                "no method could learn from these rows; give more, or a longer --budget"
            )
        cheapest = next(iter(self.judged))
        if len(self.judged) == 1:
            return cheapest, "the only method that was judged"
        worth: dict[MethodName, float] = {cheapest: 0.0}
        for method in list(self.judged)[1:]:
            ground: MethodName = "frozen" if "frozen" in worth and method != "frozen" else cheapest
            left = max(0.0, 1 - self.judged[ground].score)
            mean, spread = (share * left for share in EXPECTED[method])
            seen, error = self.measure(self.answers[method], self.answers[ground])
            same = any(map(self._is_one_answer, (self.answers[method], self.answers[ground])))
            if same and seen >= -2 * error:
                seen = mean  # with all rows to learn from, it may say more
            # Rows that speak against what is usual say that this task is not.
            surprise = max(0.0, (seen - mean) ** 2 - error**2)
            precision, prior = 1 / error**2, 1 / max(spread**2, LEAST_SPREAD**2, surprise)
            expected = (seen * precision + mean * prior) / (precision + prior)
            worth[method] = worth[ground] + expected
        best = max(worth, key=lambda method: worth[method])
        chosen = best
        if prefer == "balance" and best != "tfidf" and "tfidf" in worth:  # small and fast
            error = self.measure(self.answers[best], self.answers["tfidf"])[1]
            if worth[best] - worth["tfidf"] <= min(WORTH, error):
                chosen = "tfidf"
        return chosen, self._explain(chosen, best)

    def _is_one_answer(self, answers: Answers) -> bool:
        places, logits = answers
        targets = [self.items[place].target for place in places.tolist()]
        return self.material.task.output.one_answer(targets, logits)

    def _explain(self, chosen: MethodName, best: MethodName) -> str:
        metric, judged = self.material.task.metric, self.judged
        if chosen != best:
            fast = judged[chosen].texts_per_second / max(1.0, judged[best].texts_per_second)
            faster = f", and {fast:.0f} times as fast" if fast >= 2 else ""
            return f"as good as {best} here, inside the noise{faster}"
        others = [method for method in judged if method != chosen]
        rival = max(others, key=lambda method: judged[method].score)
        seen, error = self.measure(self.answers[chosen], self.answers[rival])
        apart = f"{seen:+.3f} ± {error:.3f} {metric} on the same rows"
        if seen > 2 * error:
            first = others[0]  # tfidf, if it is not the best themselves
            gain, noise = self.measure(self.answers[chosen], self.answers[first])
            more = f"; than {first} {gain:+.3f} ± {noise:.3f}" if first != rival else ""
            return f"better than {rival} ({apart}{more})"
        if list(judged).index(chosen) < list(judged).index(rival):
            return f"as good as {rival} here, inside the noise ({apart}), and cheaper"
        if seen < -2 * error:
            return f"on most tasks it is better than {rival}, though not on these rows ({apart})"
        return f"these rows do not tell it from {rival} ({apart}); on most tasks it is better"

    def doubt(self, method: MethodName) -> str:
        """Say what was not tried, and so if the method is not better than what reads no text."""
        untried = ""
        if self.left_out:
            names = " and ".join(self.left_out)
            untried = f"; {names} did not fit into the time, and a longer --budget tries it"
        places, _ = self.answers[method]
        some = self.items[:: -(-len(self.items) // FEW_ROWS)]
        alike = fit_head(self.material.task.output, np.zeros((len(some), 1), np.float32), some)
        same = places, alike.logits(np.zeros((len(places), 1), np.float32))
        gain, error = self.measure(self.answers[method], same)
        if gain > 2 * error:
            return untried
        score, metric = self.measure(same)[0], self.material.task.metric
        return (
            f"{untried}; but these rows do not tell it from one and the same answer to every text "
            f"({metric} {score:.3f}): give more rows, or see whether the texts hold what the "
            "labels say"
        )

    def finish(self, method: MethodName, folder: Path, card: str) -> None:
        """Let the method learn from all rows, and write the model."""
        task = self.material.task
        places, logits = self.answers[method]
        targets = [self.items[place].target for place in places.tolist()]
        calibration = calibrate_part(task.output, logits, targets)
        temperature = calibration.temperature if calibration else 1.0
        about: dict[str, Any] = {}
        if task.output.calibrates:
            scaled = scale_logits(logits, temperature)
            precision = trace_part(task.output, scaled, targets)
            about["precision"] = [asdict(point) for point in precision]
        learned = self.learned.get(method)
        if not self.stopped or learned is None:
            self.stopped = False
            try:
                with progress.task(f"learning from all {len(self.items):,} rows"):
                    rows = range(len(self.items))
                    if self.taught is None:
                        learned = METHODS[method](self.material, rows)
                    else:
                        learned = learn_again(self.taught, method, rows, len(rows), None)
            except (OutOfTime, KeyboardInterrupt) as cause:
                if learned is None and isinstance(cause, OutOfTime):
                    raise RunError(
                        f"no time is left for {method} to learn from all rows; run fit again with "
                        "a longer --budget"
                    ) from None
                if learned is None:
                    raise
                self.stopped = True
                self.interrupted |= isinstance(cause, KeyboardInterrupt)
        assert learned is not None
        if self.stopped:
            self._note("the model has learned from a part of the rows only")
        shutil.rmtree(folder, ignore_errors=True)
        learned.write(folder, about, temperature, card)
        part = EncodedPart("dev", [self.material.examples[i] for i in places.tolist()], [])
        write_examples(folder, choose_examples(task, part))

    def write_teacher(self, method: MethodName, folder: Path) -> None:
        """Write what the method learns without the rows of the first fold, and the rows of both
        parts as tables, so that no label of a row that judges a student reaches it."""
        task, held, output = self.material.task, self.folds[0], self.material.task.output
        learn = np.flatnonzero(~held).tolist()
        # Its time is the student's. A trained method has learned without these rows already.
        material = replace(self.taught or self.material, deadline=float("inf"))
        if method in TRAINED and method in self.learned:
            learned = self.learned[method]
        elif self.taught is None:
            learned = METHODS[method](material, learn)
        else:
            learned = learn_again(material, method, learn, len(self.items), None)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, places in (("train", learn), ("dev", np.flatnonzero(held).tolist())):
            with atomic_text(folder / f"{name}.jsonl") as file:
                for place in places:
                    example = self.material.examples[place]
                    label = example.label
                    if isinstance(output, SeveralLabels):
                        named = zip(output.labels, label, strict=True)
                        label = [called for called, flag in named if flag]
                    elif output.labels:
                        label = output.labels[label]
                    pair = {"pair": example.pair} if task.pair else {}
                    row = {"text": example.text, **pair, "label": label}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        learned.write(folder / "teacher", {}, 1.0, "")

    def _note(self, note: str) -> None:
        self.notes.append(note)
        log.warning(note)


def _read(material: Material, judging: NDArray[np.bool_], notes: list[str]) -> Material:
    """Read texts with the encoder: those that judge (N,), and of many others so many as a quarter
    of the time that is left allows."""
    task, start, examples = material.task, material.start, material.examples
    assert start is not None
    draw = np.random.default_rng(material.seed)
    others = draw.permutation(np.flatnonzero(~judging))
    places = np.concatenate((np.flatnonzero(judging), others))
    width = (4 if task.apart else 1) * start.encoder.hidden_size
    vectors = np.zeros((len(examples), width), np.float32)
    items: dict[int, Item] = {}
    cut = Notes()

    def read(some: Sequence[int]) -> None:
        texts = [examples[place] for place in some]
        encoded = task.encode(texts, start.tokenizer, material.length, cut)
        vectors[some] = read_vectors(start, encoded, material.machine)
        items.update(zip(some, encoded, strict=True))

    count = len(places)
    if count > FEW_ROWS:
        began = time.monotonic()
        read(places[:FEW_ROWS].tolist())
        now = time.monotonic()
        affordable = FEW_ROWS * READING * (material.deadline - now) / (now - began)
        count = min(count, MOST_READ, FEW_ROWS + max(0, int(affordable)))
        count = max(count, int(judging.sum()))
    if rest := places[len(items) : count].tolist():
        read(rest)
    notes += cut.notes()
    if count < len(places):
        note = f"the encoder reads {count:,} of the {len(places):,} rows, drawn at random"
        notes.append(note)
        log.info(note)
    return replace(material, items=items, vectors=vectors)


def _measure_model(learned: Learned, examples: Sequence[Any]) -> tuple[float, float]:
    """Texts a second and megabytes of the model as it will answer."""
    inputs = [example.text if example.pair is None else example[:2] for example in examples]
    with TemporaryDirectory() as folder:
        learned.write(Path(folder), {}, 1.0, "")
        megabytes = sum(file.stat().st_size for file in Path(folder).rglob("*")) / 1e6
        model = load(folder)
        model.predict(inputs[:1])
        began = time.monotonic()
        model.predict(inputs)
        return round(len(inputs) / max(1e-9, time.monotonic() - began)), round(megabytes, 3)


def split_rows(task: Task[Any], items: Sequence[Item], seed: int) -> list[NDArray[np.bool_]]:
    """Which rows each fold holds, (N,): every class in its share, and no group on two sides."""
    groups, rows = number_groups(items), len(items)
    if rows < 4:
        raise DataError(f"{rows} rows are too few to judge a model; give 4 or more, or --labels")
    draw = np.random.default_rng(seed)
    count = int(groups.max()) + 1
    first = np.full(count, -1)
    first[groups[::-1]] = np.arange(rows)[::-1]
    order = draw.permutation(count)
    if task.output.exclusive:
        classes = np.array([items[place].target for place in first[order].tolist()])
        order = order[np.argsort(classes, kind="stable")]
    # The folds of a class's groups follow one another.
    if rows < FEW_ROWS:
        folds = np.arange(count) % min(FOLDS, count)
        number = np.empty(count, np.int64)
        number[order] = folds
        return [number[groups] == fold for fold in range(min(FOLDS, count))]
    every = max(2, round(1 / min(JUDGED, MOST_JUDGED / rows)))
    number = np.empty(count, np.int64)
    number[order] = np.arange(count) % every
    return [number[groups] == 0]
