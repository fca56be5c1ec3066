"""Tagging: CoNLL files in, rows and windows, entity scores against the rules of conlleval, the same
lines out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import ConfigError, DataError
from litebert.tasks.registry import open_task
from litebert.tasks.tagging.files import Sentence
from litebert.tasks.tagging.scores import (
    Entity,
    EntityScores,
    as_iob2,
    find_entities,
    score_entities,
)
from litebert.tasks.tagging.task import TaggingFiles
from litebert.tasks.values import Answer, Item
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.refusals import names, refused
from toys.tasks import TaggingTask

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TRAIN = "ann\tB-per\nsaw\tO\nold\tB-loc\nrome\tI-loc\n\nit\tO\n"


def task_of(
    folder: Path, dev: str | bytes = TRAIN, train: str | bytes = TRAIN, part: str = "dev"
) -> TaggingTask:
    files = {"train": folder / "train.conll", part: folder / f"{part}.conll"}
    for path, text in zip(files.values(), (train, dev), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return TaggingTask(files)


def oracle(items: list[Item], labels: int) -> list[np.ndarray]:
    """Logits of someone who knows; on tokens that are not judged, nonsense."""
    logits = []
    for item in items:
        array = np.random.default_rng(0).normal(size=(len(item.target), labels)).astype(np.float32)
        judged = item.target >= 0
        array[judged] = np.eye(labels, dtype=np.float32)[item.target[judged]] * 9
        logits.append(array)
    return logits


# --------------------------------------- conlleval, written from its published rules, not from ours


def conlleval(
    truth: list[list[str]], guess: list[list[str]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Correct, true and guessed chunks by type, token by token as the Perl script walks (for B, I
    and O).
    """

    def split(tag: str) -> tuple[str, str]:
        return ("O", "") if tag == "O" else (tag[0], tag[2:])

    def ends(last: tuple[str, str], now: tuple[str, str]) -> bool:
        change = (last[0], now[0]) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
        return change or (last[0] != "O" and last[1] != now[1])

    def starts(last: tuple[str, str], now: tuple[str, str]) -> bool:
        change = (last[0], now[0]) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
        return change or (now[0] != "O" and last[1] != now[1])

    correct, true, guessed = Counter[str](), Counter[str](), Counter[str]()
    running = False
    last_true = last_guess = ("O", "")
    between = [("O", "O")]
    for pair in chain.from_iterable(
        [*zip(true_tags, guessed_tags, strict=True), *between]
        for true_tags, guessed_tags in zip(truth, guess, strict=True)
    ):
        now_true, now_guess = split(pair[0]), split(pair[1])
        if running:
            true_ends, guess_ends = ends(last_true, now_true), ends(last_guess, now_guess)
            if true_ends and guess_ends and last_true[1] == last_guess[1]:
                correct[last_true[1]] += 1
                running = False
            elif true_ends != guess_ends or now_true[1] != now_guess[1]:
                running = False
        if (
            starts(last_true, now_true)
            and starts(last_guess, now_guess)
            and now_true[1] == now_guess[1]
        ):
            running = True
        true[now_true[1]] += starts(last_true, now_true)
        guessed[now_guess[1]] += starts(last_guess, now_guess)
        last_true, last_guess = now_true, now_guess
    return correct, true, guessed


TAGS = st.sampled_from(["O", "O", "B-a", "I-a", "B-b-c", "I-b-c"])
PAIRS = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=8), max_size=4)


class TestScores:
    @pytest.mark.parametrize(
        ("tags", "expected"),
        [
            ("O O", []),
            ("", []),
            ("B-a I-a O", [("a", 0, 2)]),
            ("O I-a I-a", [("a", 1, 3)]),  # I- without B-
            ("B-a I-b I-b", [("a", 0, 1), ("b", 1, 3)]),  # the type changes inside
            ("I-a I-b", [("a", 0, 1), ("b", 1, 2)]),
            ("B-a B-a I-a", [("a", 0, 1), ("a", 1, 3)]),  # adjacent
            ("B-a O I-a", [("a", 0, 1), ("a", 2, 3)]),  # a gap
            ("B-a-b I-a-b", [("a-b", 0, 2)]),  # a type with a hyphen
            ("O B-a", [("a", 1, 2)]),  # at the very end
        ],
    )
    def test_entities(self, tags: str, expected: list[tuple[str, int, int]]) -> None:
        assert find_entities(tags.split()) == {Entity(*entity) for entity in expected}

    def test_nothing_there_scores_0(self) -> None:
        assert score_entities([["O"]], [["O"]]) == (EntityScores(0, 0, 0), {})
        assert score_entities([], []) == (EntityScores(0, 0, 0), {})

    @given(PAIRS)
    def test_as_conlleval(self, sentences: list[list[tuple[str, str]]]) -> None:
        truth = [[pair[0] for pair in sentence] for sentence in sentences]
        guess = [[pair[1] for pair in sentence] for sentence in sentences]
        correct, true, guessed = conlleval(truth, guess)
        overall, of_type = score_entities(truth, guess)
        for score, c, t, g in (
            (overall, sum(correct.values()), sum(true.values()), sum(guessed.values())),
            *((score, correct[name], true[name], guessed[name]) for name, score in of_type.items()),
        ):
            precision, recall = (c / g if g else 0), (c / t if t else 0)
            f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
            assert score == pytest.approx((precision, recall, f1))
        assert set(of_type) == {*(+true), *(+guessed)}

    @given(st.lists(TAGS))
    def test_iob2_keeps_the_entities(self, tags: list[str]) -> None:
        mended = as_iob2(tags)
        assert find_entities(mended) == find_entities(tags)
        assert as_iob2(mended) == mended
        for before, tag in zip(("O", *mended), mended, strict=False):
            assert tag[0] != "I" or before[2:] == tag[2:]


class TestReading:
    def test_labels_are_sorted_with_o_first(self, tmp_path: Path) -> None:
        task = task_of(tmp_path)
        assert task.output.labels == ("O", "B-loc", "B-per", "I-loc", "I-per")
        assert task.dev == ("dev",)
        assert task.read("train") == [
            Sentence(
                ("ann", "saw", "old", "rome"),
                ("B-per", "O", "B-loc", "I-loc"),
                ("ann\tB-per", "saw\tO", "old\tB-loc", "rome\tI-loc", ""),
                (0, 1, 2, 3),
            ),
            Sentence(("it",), ("O",), ("it\tO",), (0,)),
        ]
        assert task.notes == []

    def test_saved_labels_need_no_training_file(self, tmp_path: Path) -> None:
        saved = task_of(tmp_path, part="test").output.labels
        task = TaggingTask({"test": tmp_path / "test.conll"}, labels=saved)
        assert task.output.labels == saved
        assert len(task.read("test")) == 2
        assert TaggingTask(
            {"test": tmp_path / "test.conll"}, labels=["I-x", "O"]
        ).output.labels == ("I-x", "O")
        with refused(DataError, "tagging", "train", "test"):
            TaggingTask({"test": tmp_path / "test.conll"})
        with refused(ConfigError, "'E-x'", "O", "B-TYPE", "I-TYPE"):
            TaggingTask({"test": tmp_path / "test.conll"}, labels=["O", "B-x", "E-x"])

    def test_layouts_that_mean_the_same(self, tmp_path: Path) -> None:
        expected = [(example.words, example.tags) for example in task_of(tmp_path).read("dev")]
        more = (
            "-DOCSTART- -X- O\n\nann NN B-per\nsaw V O\nold  A   B-loc\nrome NN I-loc \n\n\nit "
            "P O\n\n"
        )
        for text in (
            TRAIN.replace("\t", " "),
            TRAIN.replace("\n", "\r\n"),
            TRAIN.replace("\n\n", "\n\t\n"),
            TRAIN.replace("\n\n", "\n\n\n \n-DOCSTART-\tO\n\n"),
            "\n" + TRAIN.removesuffix("\n"),
            "\ufeff" + TRAIN,
            more,
            more.replace("\n\n\n", "\n-DOCSTART- -X- O\n"),
        ):
            task = task_of(tmp_path, text)
            assert [(example.words, example.tags) for example in task.read("dev")] == expected, text
            assert task.notes == []

    def test_spaces_in_words_between_tabs(self, tmp_path: Path) -> None:
        task = task_of(tmp_path, "new york\tB-loc\n\u00a0\tO\n")
        assert task.read("dev")[0].words == ("new york", "\u00a0")

    def test_iob1_becomes_iob2(self, tmp_path: Path) -> None:
        task = task_of(tmp_path, "a I-per\nb I-per\nc B-per\nd I-loc\ne O\n\nf I-loc\n")
        assert [example.tags for example in task.read("dev")] == [
            ("B-per", "I-per", "B-per", "B-loc", "O"),
            ("B-loc",),
        ]
        (note,) = task.notes
        names(note, "IOB1", "IOB2", 3)
        labels = task_of(tmp_path, TRAIN, "a I-per\nb O\n").output.labels
        assert labels == ("O", "B-per", "I-per")

    def test_invalid_iob2_is_counted(self, tmp_path: Path) -> None:
        task = task_of(tmp_path, "a B-per\nb I-loc\nc O\nd I-per\n")
        assert task.read("dev")[0].tags == ("B-per", "B-loc", "O", "B-per")
        (note,) = task.notes
        names(note, "IOB2", 2)
        assert "IOB1" not in note

    def test_unseen_types_count_as_missed(self, tmp_path: Path, letters: Tokenizer) -> None:
        task = task_of(tmp_path, "a B-god\nb I-god\nc O\nd B-per\n")
        examples = task.read("dev")
        (note,) = task.notes
        names(note, "god", 1)
        items = task.encode(examples, letters, 16)
        assert items[0].target.tolist() == [-100, -100, -100, 0, 2, -100]
        answers = [Answer(("O", "O", "O", "B-per"), np.ones(4))]
        assert task.score(examples, answers) == pytest.approx(
            {"precision": 1, "recall": 1 / 2, "f1": 2 / 3, "f1_god": 0, "f1_per": 1}
        )

    def test_without_tags(self, tmp_path: Path, letters: Tokenizer) -> None:
        task = task_of(tmp_path, "ann\nsaw\n\nrome\n", part="test")
        examples = task.read("test")
        assert [(example.words, example.tags) for example in examples] == [
            (("ann", "saw"), None),
            (("rome",), None),
        ]
        items = task.encode(examples, letters, 16)
        assert [item.target for item in items] == [None, None]
        with refused(DataError, "test.conll"):
            task.score(examples, [Answer(("O", "O"), np.ones(2)), Answer(("O",), np.ones(1))])

    @pytest.mark.parametrize(
        ("text", "places"),
        [
            ("a X O\n\nb O\n", ["dev.conll:3", 2, 1, 3]),
            ("a\nb\n", ["dev.conll:1"]),
            ("a O\n\nb B\n", ["dev.conll:3", "'B'", "O", "B-TYPE", "I-TYPE"]),
            ("a O\nb X-per\n", ["dev.conll:2", "'X-per'"]),
            ("a O\nb B-\n", ["dev.conll:2", "'B-'"]),
            ("a\tO\n\tB-per\n", ["dev.conll:2"]),
            ("\n \n-DOCSTART- O\n", ["dev.conll"]),
        ],
    )
    def test_malformed(self, tmp_path: Path, text: str, places: list[Any]) -> None:
        task = task_of(tmp_path, text)
        with refused(DataError, *places):
            task.read("dev")


INDEXED = "1\tAna\tB-PER\tO\n2\tleft\tO\tO\n\n1\tBo\tB-PER\tO\n2\tran\tO\tO\n"
SPANS = [("Ana (Bo) left.", [[0, 3, "PER"], [5, 7, "PER"]]), ("in New York", [[3, 11, "LOC"]])]
CUT = [
    (("Ana", "(", "Bo", ")", "left", "."), ("B-PER", "O", "B-PER", "O", "O", "O")),
    (("in", "New", "York"), ("O", "B-LOC", "I-LOC")),
]


def named(
    spans: Sequence[Any], start: str = "start", end: str = "end", many: bool = False
) -> list[dict[str, Any]]:
    """Spans as objects, with a label or a list of labels."""
    labels = ("labels", list) if many else ("label", lambda names: names[0])
    return [{start: a, end: b, labels[0]: labels[1]([name])} for a, b, name in spans]


def read_train(path: Path, content: str | list[Any], **options: Any) -> tuple[Any, list[str]]:
    """Write a file, lists as JSON Lines, and return its words and tags, and the notes."""
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_text(content, encoding="utf-8")
    files, notes = open_task("tagging", path, dev=path, **options), Notes()
    return [(s.words, s.tags) for s in files.read("train", notes)], notes.notes()


class TestFilesOfOtherPrograms:
    @pytest.mark.parametrize(
        "text",
        [
            INDEXED,
            INDEXED.replace("1\t", "0\t").replace("2\t", "1\t"),
            "# text = x\n" + INDEXED.replace("1\tAna", "1-2\tAna Bo\tO\tO\n1\tAna"),
            INDEXED.replace("\tO\n", "\n").replace("\t", " "),
        ],
    )
    def test_a_column_that_counts_is_no_word(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "a.conll"
        with refused(DataError, path, "--word-column 1"):
            read_train(path, text)
        read, _ = read_train(path, text, word_column="1", tag_column="2")
        assert read[-1] == (("Bo", "ran"), ("B-PER", "O"))
        with refused(DataError, path, "--text-column 1"):
            list(TaggingFiles.stream(path, Notes()))
        rows = list(TaggingFiles.stream(path, Notes(), text="1"))
        assert rows[-1].example.words == ("Bo", "ran")

    def test_columns_in_another_order(self, tmp_path: Path) -> None:
        path, text = tmp_path / "a.conll", "O in\nB-LOC Rome\n\nB-PER Bo\n"
        with refused(DataError, path, "--word-column 1", "--tag-column 0"):
            read_train(path, text)
        read, _ = read_train(path, text, word_column="1", tag_column="0")
        assert read == [(("in", "Rome"), ("O", "B-LOC")), (("Bo",), ("B-PER",))]
        for name in ("2", "Word"):
            with refused(DataError, path, f"'{name}'", 0, 1):
                read_train(path, text, word_column=name)
        task = open_task("tagging", path, word_column="1", tag_column="0").task
        settings = {"kind": "tokens", "classes": 5, "labels": list(task.output.labels)}
        saved = task.from_settings({**task.settings(), **settings})
        scored = TaggingFiles.open_labeled(saved, path)
        assert [sentence.words for sentence in scored.read("dev")] == [("in", "Rome"), ("Bo",)]
        (tmp_path / "b.conll").write_text("in O\n")
        usual = {"text_column": "0", "label_column": "1"}
        scored = TaggingFiles.open_labeled(saved, tmp_path / "b.conll", **usual)
        assert [sentence.words for sentence in scored.read("dev")] == [("in",)]
        (tmp_path / "words.conll").write_text("in\nRome\n")
        (row,) = TaggingFiles.stream(tmp_path / "words.conll", Notes(), text="1")
        assert row.example.words == ("in", "Rome")

    @pytest.mark.parametrize(
        "text",
        [
            "Ana B-PER\nSilva E-PER\nsaw O\nOslo S-LOC\n",
            "Ana B-PER\nSilva L-PER\nsaw O\nOslo U-LOC\n",
        ],
    )
    def test_iobes_and_bilou(self, tmp_path: Path, text: str) -> None:
        read, (note,) = read_train(tmp_path / "a.conll", text)
        assert read == [(("Ana", "Silva", "saw", "Oslo"), ("B-PER", "I-PER", "O", "B-LOC"))]
        names(note, "IOBES", 2)
        alone, _ = read_train(tmp_path / "b.conll", "Bo S-PER\nran O\n\nOslo S-LOC\n")
        assert alone == [(("Bo", "ran"), ("B-PER", "O")), (("Oslo",), ("B-LOC",))]

    def test_comments_are_no_words_and_hashtags_are(self, tmp_path: Path) -> None:
        text = (
            "# newdoc\n# sent_id = 1\n# text = #Rome 1\n#Rome\tB-LOC\n#\tO\n\n"
            "#begin document (x); part 000\n#\tO\nBo\tB-PER\n\n#end document\n"
        )
        read, (note,) = read_train(tmp_path / "a.conll", text)
        assert read == [(("#Rome", "#"), ("B-LOC", "O")), (("#", "Bo"), ("O", "B-PER"))]
        names(note, "comment", 5)
        pos, _ = read_train(tmp_path / "b.conll", "# text = a b\n# newpar\na DET\n# SYM\n")
        assert pos == [(("a", "#"), ("DET", "SYM"))]
        untagged = list(TaggingFiles.stream(tmp_path / "a.conll", Notes()))
        assert [row.example.words for row in untagged] == [("#Rome", "#"), ("#", "Bo")]

    def test_predictions_keep_the_comments(self, tmp_path: Path) -> None:
        task = task_of(tmp_path, "# id = 1\nann B-per\n\n# id = 2\nit O\n")
        answers = [Answer(("B-per",), np.ones(1)), Answer(("O",), np.ones(1))]
        task.write(task.read("dev"), answers, tmp_path / "out")
        written = "# id = 1\nann B-per B-per\n\n# id = 2\nit O O\n"
        assert (tmp_path / "out").read_text() == written

    def test_nothing_but_o_is_said(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        read_train(tmp_path / "a.conll", "a O\n\nb O\n")
        (record,) = caplog.records
        names(record.getMessage(), tmp_path / "a.conll", "O", "--tag-column")
        assert record.levelname == "WARNING"

    def test_no_blank_lines(self, tmp_path: Path) -> None:
        (tmp_path / "a.conll").write_text("a O\nb B-x\n" * 600)
        for options in ({}, {"dev": tmp_path / "a.conll"}):
            files = open_task("tagging", tmp_path / "a.conll", **options)
            with refused(DataError, tmp_path / "a.conll", "1,200", "blank line"):
                files.read("train")

    @pytest.mark.parametrize("mark", ["-DOCSTART- O", "# newdoc", "#begin document (a)"])
    def test_a_document_is_on_one_side(self, tmp_path: Path, mark: str) -> None:
        documents = [
            "".join(f"w{document} B-x\nv O\n\n" for _ in range(5)) for document in range(10)
        ]
        (tmp_path / "a.conll").write_text("".join(f"{mark}\n\n{text}" for text in documents))
        files, notes = open_task("tagging", tmp_path / "a.conll", heldout=0.3), Notes()
        train, dev = ({s.words[0] for s in files.read(part, notes)} for part in ("train", "dev"))
        assert (len(train), len(dev), train & dev) == (7, 3, set())

    def test_rows_of_words_and_tags(self, tmp_path: Path) -> None:
        expected = [(("Ana", "left"), ("B-PER", "O")), (("New York",), ("B-LOC",))]
        rows: list[Any] = [{"tokens": [*words], "ner_tags": [*tags]} for words, tags in expected]
        assert read_train(tmp_path / "a.jsonl", rows)[0] == expected
        assert read_train(tmp_path / "b.json", json.dumps(rows, indent=1))[0] == expected
        assert read_train(tmp_path / "c.json", json.dumps({"data": rows}))[0] == expected
        assert read_train(tmp_path / "d.json", rows)[0] == expected
        renamed = [{"x": row["tokens"], "tags": ["O"], "y": row["ner_tags"]} for row in rows]
        options = {"word_column": "x", "tag_column": "y"}
        assert read_train(tmp_path / "e.jsonl", renamed, **options)[0] == expected
        words = "Sentence #,Word,POS,Tag\nSentence: 1,Ana,N,B-PER\n,left,V,O\n"
        kaggle = words + 'Sentence: 2,"New York",N,B-LOC\n'
        for mark in (",", ";", "\t", "|"):
            for head in ("", f"sep={mark}\n"):
                path = tmp_path / ("f.tsv" if mark == "\t" else "f.csv")
                assert read_train(path, head + kaggle.replace(",", mark))[0] == expected
        conll = "Ana\tB-PER\n, O\n\nBo\tO\n".replace(", O", ",\tO")
        assert [words for words, _ in read_train(path, conll)[0]] == [("Ana", ","), ("Bo",)]
        for name, first in (("h.tsv", ", O"), ("i.csv", "; O")):
            read = read_train(tmp_path / name, f"{first}\nAna B-PER\n\nBo O\n")[0]
            assert [words for words, _ in read] == [(first[0], "Ana"), ("Bo",)]
        pos = read_train(tmp_path / "g.csv", kaggle, tag_column="POS")[0]
        assert pos == [(("Ana", "left"), ("N", "V")), (("New York",), ("N",))]
        with refused(DataError, tmp_path / "h.csv", "Sentence #"):
            read_train(tmp_path / "h.csv", "Word,Tag\nAna,O\n")

    def test_parquet_with_names_of_tags(self, tmp_path: Path) -> None:
        classes = ["O", "B-PER", "I-PER"]
        columns = {"tokens": [["Ana", "left"], ["Bo"]], "ner_tags": [[1, 0], [1]]}
        table, label = pa.table(columns), {"names": classes, "_type": "ClassLabel"}
        path = tmp_path / "a.parquet"
        for feature in ({"feature": label, "_type": "Sequence"}, {"feature": label}, [label]):
            about = {"info": {"features": {"tokens": {}, "ner_tags": feature}}}
            metadata = {"huggingface": json.dumps(about)}
            pq.write_table(table.replace_schema_metadata(metadata), path)
            read = open_task("tagging", path, dev=path).read("train")
            assert [s.tags for s in read] == [("B-PER", "O"), ("B-PER",)]
        for damaged in ("{", "[]", '{"info": {"features": {"ner_tags": 5}}}'):
            pq.write_table(table.replace_schema_metadata({"huggingface": damaged}), path)
            with refused(DataError, f"{path}:1", "ner_tags", 1, "ClassLabel"):
                open_task("tagging", path)

    @pytest.mark.parametrize(
        ("name", "rows"),
        [
            ("doccano.jsonl", [{"text": t, "label": s} for t, s in SPANS]),
            (
                "relations.jsonl",
                [{"text": t, "entities": named(s, "start_offset", "end_offset")} for t, s in SPANS],
            ),
            (
                "prodigy.jsonl",
                [
                    *({"text": t, "tokens": [{"text": t}], "spans": named(s)} for t, s in SPANS),
                    {"text": "no", "spans": [], "answer": "reject"},
                ],
            ),
            ("spacy.json", [[[t, {"entities": s}] for t, s in SPANS]]),
            (
                "studio.json",
                [
                    [
                        {
                            "data": {"text": t},
                            "annotations": [
                                {"result": [{"value": v} for v in named(s, many=True)]}
                            ],
                        }
                        for t, s in SPANS
                    ]
                ],
            ),
            ("studio-min.json", [[{"text": t, "label": named(s, many=True)} for t, s in SPANS]]),
        ],
    )
    def test_spans(self, tmp_path: Path, name: str, rows: list[Any]) -> None:
        assert read_train(tmp_path / name, rows)[0] == CUT

    def test_spans_that_fit_no_words(self, tmp_path: Path) -> None:
        text, path = "Ana Silva left", tmp_path / "a.jsonl"
        spans = [[0, 3, "A"], [0, 7, "PER"], [3, 4, "B"]]
        read, notes = read_train(path, [{"text": text, "spans": spans}])
        assert read == [(("Ana", "Silva", "left"), ("B-PER", "I-PER", "O"))]
        names(notes[0], "widened", 1)
        names(notes[1], "left out", 2)
        for span in ([0, 30, "A"], [3, 3, "A"], [0, "3", "A"], [0, 3], [0, 3, ""], 7, {"start": 0}):
            with refused(DataError, f"{path}:2", 14):
                read_train(path, [{"text": text, "spans": []}, {"text": text, "spans": [span]}])

    @pytest.mark.parametrize(
        ("name", "content", "places"),
        [
            ("a.jsonl", [{"tokens": ["a"], "ner_tags": [3]}], ["a.jsonl:1", "ner_tags", 3]),
            ("a.jsonl", [{"tokens": ["a"], "ner_tags": ["O", "O"]}], ["a.jsonl:1", "ner_tags", 1]),
            ("a.jsonl", [{"tokens": ["a"], "ner_tags": "O"}], ["a.jsonl:1", "'O'"]),
            ("a.jsonl", [{"tokens": ["a"], "ner_tags": ["X-"]}], []),
            ("a.jsonl", [{"tokens": ["a"]}], ["a.jsonl:1"]),
            ("a.jsonl", [{"other": 1}], ["a.jsonl:1", '"tokens"', '"text"']),
            ("a.jsonl", '{"tokens": ["a"', ["a.jsonl:1"]),
            ("a.json", '[{"tokens": ["a"', ["a.json:1"]),
            ("a.json", "[1]", ["a.json:1"]),
            ("a.json", "", ["a.json"]),
            ("a.json", '[{"data": {"text": "a"}, "annotations": [5]}]', ["a.json:1"]),
            ("a.csv", "", ["a.csv"]),
            ("a.parquet", "x", ["a.parquet"]),
            ("a.ann", "T1\tPER 0 3\tAna\n", ["a.ann", '"spans"']),
            ("a.spacy", "x", ["a.spacy", '"spans"']),
            ("a.tsv", "#FORMAT=WebAnno TSV 3.2\n\n1-1\t0-3\tAna\tPER\n", ["a.tsv", "CoNLL 2002"]),
        ],
    )
    def test_what_cannot_be_read(
        self, tmp_path: Path, name: str, content: Any, places: list[Any]
    ) -> None:
        if not places:  # tags that are no scheme's are plain
            assert read_train(tmp_path / name, content)[0] == [(("a",), ("X-",))]
            return
        with refused(DataError, *places):
            read_train(tmp_path / name, content)


class TestRows:
    def test_the_first_token_of_a_word_carries_its_tag(
        self, tmp_path: Path, letters: Tokenizer
    ) -> None:
        task = task_of(tmp_path)
        items = task.encode(task.read("train"), letters, 64)
        assert [letters.get_token(int(i)) for i in items[0].rows[0].ids] == [
            "[CLS]",
            "a",
            "##n",
            "##n",
            "s",
            "##a",
            "##w",
            "o",
            "##l",
            "##d",
            "r",
            "##o",
            "##m",
            "##e",
            "[SEP]",
        ]
        x = -100
        assert items[0].target.tolist() == [x, 2, x, x, 0, x, x, 1, x, x, 3, x, x, x, x]
        assert items[0].rows[0].types.tolist() == [0] * 15
        assert items[0].detail.tolist() == [[0, 1], [1, 4], [2, 7], [3, 10]]

    def test_a_word_without_a_token_is_o(self, tmp_path: Path, letters: Tokenizer) -> None:
        task = task_of(tmp_path, "ann\tB-per\n\x07\tB-per\nrome\tB-loc\n\n\x07\tO\n")
        examples = task.read("dev")
        items = task.encode(examples, letters, 64)
        assert [item.example for item in items] == [0]  # nothing to ask about the second sentence
        (note,) = task.notes
        names(note, "O", 2)
        answers = task.answers(examples, items, oracle(items, 5))
        assert [answer.value for answer in answers] == [("B-per", "O", "B-loc"), ("O",)]
        assert answers[1].probabilities.tolist() == [1]
        assert task.score(examples, answers)["recall"] == pytest.approx(2 / 3)

    def test_byte_level_words_begin_with_a_space(self, tmp_path: Path, tiny_corpus: Path) -> None:
        words = tiny_corpus.read_text(encoding="utf-8").split()[:40]
        task = task_of(tmp_path, "".join(f"{word.strip('.').lower()} O\n" for word in words))
        trained = train_tokenizer([" ".join(words).lower()] * 20, kind="bpe", vocab_size=300)
        trained.save(tmp_path / "bpe")
        bare = tmp_path / "bpe" / "tokenizer.json"
        bare.write_text(
            bare.read_text("utf-8").replace('"add_prefix_space": true', '"add_prefix_space": false')
        )
        for tokenizer in (trained, Tokenizer.load(bare)):
            item = task.encode(task.read("dev"), tokenizer, 512)[0]
            judged = item.rows[0].ids[item.target != -100]
            assert len(judged) == 40
            assert all(tokenizer.get_token(int(i)).startswith("Ġ") for i in judged)

    @pytest.mark.parametrize("words", [1, 5, 6, 7, 8, 9, 10, 13, 50])
    def test_every_word_is_judged_once_where_it_has_most_context(
        self, tmp_path: Path, letters: Tokenizer, words: int
    ) -> None:
        """Rows of 8 tokens hold 6 words of one letter; windows begin every 3."""
        text = "".join(f"{LETTERS[i % 26]} {'B-per' if i % 3 else 'B-loc'}\n" for i in range(words))
        task = task_of(tmp_path, text)
        examples = task.read("dev")
        items = task.encode(examples, letters, 8)
        assert all(len(item.rows[0].ids) <= 8 for item in items)
        begins = [0] if words <= 6 else [*range(0, words - 6, 3), words - 6]
        seen = {}
        for item in items:
            for word, place in item.detail.tolist():
                assert word not in seen
                assert letters.get_token(int(item.rows[0].ids[place])) == LETTERS[word % 26]
                begin = word - (place - 1)
                seen[word] = min(word - begin, min(begin + 6, words) - 1 - word)
        assert sorted(seen) == list(range(words))
        for word, context in seen.items():
            inside = [b for b in begins if b <= word < min(b + 6, words)]
            assert context == max(min(word - b, min(b + 6, words) - 1 - word) for b in inside)
        assert sum(int((item.target >= 0).sum()) for item in items) == words
        answers = task.answers(examples, items, oracle(items, 5))
        assert answers[0].value == examples[0].tags
        assert len(task.notes) == (words > 6)
        for note in task.notes:
            names(note, 8, 1)

    def test_a_word_longer_than_a_row(self, tmp_path: Path, letters: Tokenizer) -> None:
        task = task_of(tmp_path, f"a B-per\n{'b' * 40} I-per\nc B-loc\n")
        examples = task.read("dev")
        items = task.encode(examples, letters, 10)
        assert all(len(item.rows[0].ids) <= 10 for item in items)
        assert task.answers(examples, items, oracle(items, 5))[0].value == (
            "B-per",
            "I-per",
            "B-loc",
        )


class TestAnswers:
    def test_probabilities_of_the_tags(self, tmp_path: Path, letters: Tokenizer) -> None:
        task = task_of(tmp_path, "a O\nb O\n")
        examples = task.read("dev")
        items = task.encode(examples, letters, 16)
        logits = np.zeros((4, 5), np.float32)
        logits[1, 3] = np.log(4)
        logits[2, 0] = 1000
        answer = task.answers(examples, items, [logits])[0]
        assert answer.value == ("B-loc", "O")  # an entity begins with B-, in `predict` too
        assert answer.probabilities == pytest.approx([0.5, 1])

    def test_predictions_are_the_file_with_one_more_column(
        self, tmp_path: Path, letters: Tokenizer
    ) -> None:
        text = (
            "-DOCSTART- -X- O\n\n\nann NN I-per\nsaw V O\n\t\n\nrome NN I-loc \ngod NN "
            "I-god\n\n-DOCSTART- -X- O\n"
        )
        task = task_of(tmp_path, text)
        examples = task.read("dev")
        answers = [Answer(("I-per", "O"), np.ones(2)), Answer(("B-loc", "I-loc"), np.ones(2))]
        task.write(examples, answers, tmp_path / "out")
        assert (tmp_path / "out").read_text("utf-8") == (
            "-DOCSTART- -X- O O\n\n\nann NN I-per B-per\nsaw V O O\n\t\n\nrome NN I-loc "
            "B-loc\ngod NN I-god I-loc\n\n"
            "-DOCSTART- -X- O O\n"
        )

    def test_tabs_stay_tabs(self, tmp_path: Path) -> None:
        task = task_of(tmp_path, "new york\tB-loc\r\n\r\nit\tO\r\n")
        examples = task.read("dev")
        task.write(
            examples,
            [Answer(example.tags or (), np.ones(1)) for example in examples],
            tmp_path / "out",
        )
        assert (tmp_path / "out").read_bytes() == b"new york\tB-loc\tB-loc\n\nit\tO\tO\n"

    def test_untagged_words_get_their_tag(self, tmp_path: Path) -> None:
        task = task_of(tmp_path, "ann\n\nit\n", part="test")
        examples = task.read("test")
        task.write(
            examples, [Answer(("B-per",), np.ones(1)), Answer(("O",), np.ones(1))], tmp_path / "out"
        )
        assert (tmp_path / "out").read_text() == "ann B-per\n\nit O\n"
        again = TaggingTask({"test": tmp_path / "out"}, labels=task.output.labels).read("test")
        assert [example.tags for example in again] == [("B-per",), ("O",)]


@pytest.mark.thorough
def test_the_real_data(shared_data: Path, tmp_path: Path) -> None:
    """All of WNUT-17, with rows that hold every sentence and rows that do not; who knows the tags
    scores 1.
    """
    tokenizer = Tokenizer.load(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    task = TaggingTask(shared_data / "wnut17")
    types = ("corporation", "creative-work", "group", "location", "person", "product")
    assert task.output.labels == (
        "O",
        *(f"B-{name}" for name in types),
        *(f"I-{name}" for name in types),
    )
    for part, sentences, words, entities in (
        ("train", 3394, 62730, 1975),
        ("dev", 1009, 15733, 836),
        ("test", 1287, 23394, 1079),
    ):
        examples = task.read(part)
        assert (len(examples), sum(len(example.words) for example in examples)) == (
            sentences,
            words,
        )
        assert sum(len(find_entities(example.tags or ())) for example in examples) == entities
        assert len(task.notes) == (2 if part == "dev" else 0), (
            task.notes
        )  # a byte-order mark, an I- without B-
        for length in (128, 24):
            items = task.encode(examples, tokenizer, length)
            assert max(len(item.rows[0].ids) for item in items) <= length
            answers = task.answers(examples, items, oracle(items, len(task.output.labels)))
            scores = task.score(examples, answers)
            assert set(scores.values()) == {1.0}
            assert len(scores) == 3 + len(types)
        task.write(examples, answers, tmp_path / "out")
        raw = next(path for path in (shared_data / "wnut17").iterdir() if part in path.name)
        before, after = (
            path.read_text("utf-8").replace("\ufeff", "").split("\n")
            for path in (raw, tmp_path / "out")
        )
        assert [line.split("\t")[:2] for line in after] == [line.split("\t")[:2] for line in before]
