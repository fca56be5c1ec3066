"""GLUE: every layout by made-up files, the official columns on real ones, submissions, and the
`datasets` version.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from litebert.base.errors import ConfigError, DataError, MissingExtraError
from litebert.tasks.glue import GLUE
from litebert.tasks.text_outputs import Number
from litebert.tasks.texts import Example
from litebert.tasks.values import Answer
from toys.refusals import names, refused
from toys.tasks import Glue, task_of

NO_ODDS = np.empty(0)

# name: (file, width of its header or 0, a row with its marks, what is read of it)
TRAIN: dict[str, tuple[str, int, str, tuple[str, str | None, Any]]] = {
    "cola": ("CoLA/train.tsv", 0, "src|1|*|A b.", ("A b.", None, 1)),
    "sst2": ("SST-2/train.tsv", 2, "a b |0", ("a b ", None, 0)),
    "mrpc": ("MRPC/train.tsv", 5, "1|77|78|A.|B.", ("A.", "B.", 1)),
    "stsb": ("STS-B/train.tsv", 10, "0|g|f|y|i|s|s|A.|B.|3.250", ("A.", "B.", 3.25)),
    "qqp": ("QQP/train.tsv", 6, "9|1|2|A?|B?|1", ("A?", "B?", 1)),
    "mnli": ("MNLI/train.tsv", 12, "0|1|1n|g|p|p|p|p|A.|B.|neutral|neutral", ("A.", "B.", 2)),
    "qnli": ("QNLI/train.tsv", 4, "0|A?|B.|not_entailment", ("A?", "B.", 1)),
    "rte": ("RTE/train.tsv", 4, "0|A.|B.|entailment", ("A.", "B.", 0)),
    "wnli": ("WNLI/train.tsv", 4, "0|A.|B.|1", ("A.", "B.", 1)),
}
TEST: dict[str, tuple[str, int, str, tuple[str, str | None]]] = {
    "cola": ("CoLA/test.tsv", 2, "5|A b.", ("A b.", None)),
    "sst2": ("SST-2/test.tsv", 2, "5|a b ", ("a b ", None)),
    "mrpc": ("MRPC/test.tsv", 5, "5|77|78|A.|B.", ("A.", "B.")),
    "stsb": ("STS-B/test.tsv", 9, "5|g|f|y|i|s|s|A.|B.", ("A.", "B.")),
    "qqp": ("QQP/test.tsv", 3, "5|A?|B?", ("A?", "B?")),
    "mnli": ("MNLI/test_matched.tsv", 10, "5|1|1n|g|p|p|p|p|A.|B.", ("A.", "B.")),
    "qnli": ("QNLI/test.tsv", 3, "5|A?|B.", ("A?", "B.")),
    "rte": ("RTE/test.tsv", 3, "5|A.|B.", ("A.", "B.")),
    "wnli": ("WNLI/test.tsv", 3, "5|A.|B.", ("A.", "B.")),
    "ax": ("diagnostic/diagnostic.tsv", 3, "5|A.|B.", ("A.", "B.")),
}


def write(path: Path, width: int, *rows: str, ends: str = "\n") -> Path:
    """A file with a header of `width` columns (none for 0); "|" stands for a tab."""
    header = ["|".join(f"column{i}" for i in range(width))] * bool(width)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line.replace("|", "\t") + ends for line in [*header, *rows]).encode())
    return path


# ------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize("name", TRAIN)
def test_the_columns_of_training_files(tmp_path: Path, name: str) -> None:
    file, width, row, wanted = TRAIN[name]
    path = write(tmp_path / file, width, row, row)
    above = Glue(name, tmp_path)
    assert above.read("train") == [Example(*wanted, "0"), Example(*wanted, "1")]
    assert above.notes == []
    assert Glue(name, path.parent).read("train") == above.read("train")
    data = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    assert Glue(name, tmp_path).read("train") == above.read("train")


@pytest.mark.parametrize("name", TEST)
def test_the_columns_of_test_files(tmp_path: Path, name: str) -> None:
    file, width, row, wanted = TEST[name]
    path = write(tmp_path / file, width, row)
    task = Glue(name, tmp_path)
    assert task.read("test") == task.read(task.tests[0]) == [Example(*wanted, None, "5")]
    assert task.notes == []
    write(path, 0, row)
    assert task.read("test") == [Example(*wanted, None, "5")]
    (note,) = task.notes
    names(note, "header", 1)


def test_mnli_has_two_dev_and_two_test_parts(tmp_path: Path) -> None:
    wide = "0|1|1n|g|p|p|p|p|A.|B.|l1|l2|l3|l4|l5|"
    write(tmp_path / "MNLI/dev_matched.tsv", 16, wide + "entailment")
    write(tmp_path / "MNLI/dev_mismatched.tsv", 16, wide + "contradiction")
    write(tmp_path / "MNLI/test_mismatched.tsv", 10, "9|1|1n|g|p|p|p|p|C.|D.")
    write(tmp_path / "MNLI/test_matched.tsv", 10, "9|1|1n|g|p|p|p|p|E.|F.")
    task = Glue("mnli", tmp_path)
    assert (task.dev, task.tests) == (
        ("dev_matched", "dev_mismatched"),
        ("test_matched", "test_mismatched"),
    )
    assert task.output.labels == ("contradiction", "entailment", "neutral")
    assert [task.read(part)[0].label for part in task.dev] == [1, 0]
    assert task.read("test_mismatched") == [Example("C.", "D.", None, "9")]


def test_parts_whose_file_is_left_out_are_not_named(tmp_path: Path) -> None:
    assert Glue("mnli").dev == ("dev_matched", "dev_mismatched")
    assert (Glue("mnli", tmp_path).dev, Glue("mnli", tmp_path).tests) == (("dev_matched",), ())
    write(tmp_path / "dev_mismatched.tsv", 16)
    write(tmp_path / "mnli/test_mismatched.tsv", 10)
    task = Glue("mnli", tmp_path)
    assert (task.dev, task.tests) == (("dev_matched", "dev_mismatched"), ("test_mismatched",))
    assert task.file_name("test_mismatched") == "MNLI-mm.tsv"


@pytest.mark.parametrize("folder_name", ["", "MNLI"])
def test_mnli_answers_ax_where_it_lies_beside(
    folder_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "MNLI/test_matched.tsv", 10, "9|1|1n|g|p|p|p|p|C.|D.")
    assert Glue("mnli", tmp_path / folder_name).tests == ("test_matched",)
    with refused(DataError, "mnli", "'ax'"):
        Glue("mnli", tmp_path / folder_name).read("ax")
    path = write(tmp_path / "diagnostic/diagnostic.tsv", 3, "5|A.|B.")
    task = Glue("mnli", tmp_path / folder_name)
    assert task.tests == ("test_matched", "ax")
    assert task.read("ax") == Glue("ax", tmp_path).read("test") == [Example("A.", "B.", None, "5")]
    assert task.file_name("ax") == "AX.tsv"
    task.write(task.read("ax"), [Answer("neutral", NO_ODDS)], tmp_path / "AX.tsv")
    assert (tmp_path / "AX.tsv").read_bytes() == b"index\tprediction\n5\tneutral\n"
    assert task.output.labels == Glue("ax").output.labels
    monkeypatch.chdir(tmp_path / folder_name)
    assert "ax" in Glue("mnli", ".").tests
    write(path, 3)
    with refused(DataError, path):
        task.read("ax")
    write(tmp_path / "RTE/test.tsv", 3, "5|A.|B.")
    assert Glue("rte", tmp_path).tests == ("test",)


def test_quotes_are_letters(tmp_path: Path) -> None:
    write(tmp_path / "SST-2/dev.tsv", 2, '" open|1', 'shut " and ""|0')
    assert [example.text for example in Glue("sst2", tmp_path).read("dev")] == [
        '" open',
        'shut " and ""',
    ]


def test_a_missing_header_is_seen_and_said(tmp_path: Path) -> None:
    write(tmp_path / "RTE/dev.tsv", 0, "0|A.|B.|entailment", "1|C.|D.|not_entailment")
    task = Glue("rte", tmp_path)
    assert [example.text for example in task.read("dev")] == ["A.", "C."]
    (note,) = task.notes
    names(note, "header", 1)


def test_broken_rows_of_qqp_are_counted_but_in_the_test_part(tmp_path: Path) -> None:
    good = "9|1|2|A?|B?|1"
    path = write(
        tmp_path / "QQP/train.tsv", 6, good, "9|1|2|A", "rest?|B?|0", good + "|x", "", good
    )
    task = Glue("qqp", tmp_path)
    assert len(task.read("train")) == 2
    broken, blank = task.notes
    names(broken, "columns", 3)
    names(blank, 1)
    path = write(tmp_path / "QQP/test.tsv", 3, "0|A?|B?", "1|A?")
    with refused(DataError, f"{path}:3", 2, 3):
        task.read("test")


def test_a_number_beyond_the_scale_is_refused(tmp_path: Path) -> None:
    file, width, good, _ = TRAIN["stsb"]
    path = write(tmp_path / file, width, good, "0|g|f|y|i|s|s|A.|B.|5.001")
    with refused(DataError, f"{path}:3", "'5.001'", 0, 5):
        Glue("stsb", tmp_path).read("train")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "RTE"
    folder.mkdir()
    task = Glue("rte", tmp_path)
    for part in ("dev", "test"):
        with refused(DataError, tmp_path, f"{part}.tsv", "RTE"):
            task.read(part)
    write(folder / "dev.tsv", 4)
    with refused(DataError, f"{folder}/dev.tsv"):
        task.read("dev")
    write(folder / "dev.tsv", 0, "index,sentence1,sentence2,label")
    with refused(DataError, f"{folder}/dev.tsv:1", 1, "RTE"):
        task.read("dev")
    with refused(DataError, "rte", "'valid'", "dev", "test", "train"):
        task.read("valid")
    with refused(DataError, "ax", "'train'"):
        Glue("ax", tmp_path).read("train")
    with refused(DataError, f"{tmp_path}/none"):
        Glue("rte", tmp_path / "none")


def test_names_as_people_write_them(tmp_path: Path) -> None:
    named = [task_of(name, tmp_path).name for name in ("SST-2", "STS-B", "sts_b", "CoLA")]
    assert named == ["sst2", "stsb", "stsb", "cola"]
    with refused(ConfigError, "'sst3'", "'sst2'"):
        task_of("sst3", tmp_path)
    with refused(ConfigError, "'sst3'", "'sst2'"):
        Glue("sst3")


# --------------------------------------------------------------------------------------- real files


@pytest.mark.parametrize(
    ("name", "part", "count", "positive"),
    [
        ("cola", "train", 8551, 6023),
        ("cola", "dev", 1043, 721),
        ("sst2", "dev", 872, 444),
        ("rte", "train", 2490, 1249),
        ("rte", "dev", 277, 146),
    ],
)
def test_real_files_have_the_published_sizes(
    shared_data: Path, name: str, part: str, count: int, positive: int
) -> None:
    task = Glue(name, shared_data / "glue")
    examples = task.read(part)
    assert len(examples) == count
    assert task.notes == []
    counts = dict(
        zip(
            task.output.labels,
            task.output.counts([example.label for example in examples]),
            strict=True,
        )
    )
    assert counts.get("1", counts.get("entailment")) == positive
    assert sum(counts.values()) == count


def test_real_stsb(shared_data: Path) -> None:
    task = Glue("stsb", shared_data / "glue" / "STS-B")
    sizes = {part: len(task.read(part)) for part in ("train", "dev", "test")}
    assert sizes == {"train": 5749, "dev": 1500, "test": 1379}
    test = task.read("test")
    assert [example.name for example in test] == [str(i) for i in range(1379)]
    assert all(example.label is None and example.pair for example in test)


@pytest.mark.parametrize(("name", "labels"), [("MNLI", 3), ("QNLI", 2), ("QQP", 2)])
def test_real_layouts_of_the_large_tasks(shared_data: Path, name: str, labels: int) -> None:
    for folder in sorted((shared_data / "glue-kshot" / name).iterdir()):
        task = Glue(name.lower(), folder)
        for part in ("train", task.dev[0]):
            examples = task.read(part)
            assert (
                task.output.counts([example.label for example in examples]).tolist()
                == [16] * labels
            )
            assert all(example.text and example.pair for example in examples)
            assert sum(" " in example.text for example in examples) > 0.9 * len(examples)


# ------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("name", "names"),
    [(name, [f"{spec.folder}.tsv"]) for name, spec in GLUE.items() if name not in ("mnli", "ax")]
    + [("mnli", ["MNLI-m.tsv", "MNLI-mm.tsv"]), ("ax", ["AX.tsv"])],
)
def test_submissions_are_called_as_the_site_wants(name: str, names: list[str]) -> None:
    task = Glue(name)
    assert [task.file_name(part) for part in task.tests] == names
    assert task.file_name("test") == names[0]
    assert [task.file_name(part) for part in task.dev] == [f"{part}.tsv" for part in task.dev]


def test_submissions_say_labels_or_clipped_numbers(tmp_path: Path) -> None:
    examples = [Example("a", name=name) for name in ("7", "3", "5")]
    path = tmp_path / "out.tsv"
    Glue("rte").write(
        examples, [Answer(x, NO_ODDS) for x in ("entailment", "not_entailment", "entailment")], path
    )
    assert (
        path.read_bytes() == b"index\tprediction\n7\tentailment\n3\tnot_entailment\n5\tentailment\n"
    )
    Glue("qqp").write(examples[:1], [Answer("1", NO_ODDS)], path)
    assert path.read_bytes() == b"index\tprediction\n7\t1\n"
    Glue("stsb").write(examples, [Answer(x, NO_ODDS) for x in (-0.2, 5.3, 2.34567)], path)
    assert path.read_bytes() == b"index\tprediction\n7\t0.000\n3\t5.000\n5\t2.346\n"


@pytest.mark.parametrize(
    ("name", "metric", "others"),
    [
        ("cola", "matthews", {"accuracy"}),
        ("sst2", "accuracy", set()),
        ("mrpc", "accuracy", {"f1"}),
        ("qqp", "accuracy", {"f1"}),
        ("mnli", "accuracy", set()),
        ("qnli", "accuracy", set()),
        ("rte", "accuracy", set()),
        ("wnli", "accuracy", set()),
        ("ax", "matthews", {"accuracy"}),
    ],
)
def test_the_scores_of_each_task(name: str, metric: str, others: set[str]) -> None:
    task = Glue(name)
    assert task.metric == metric
    examples = [Example("a", label=i % len(task.output.labels)) for i in range(6)]
    right = [Answer(task.output.labels[i % len(task.output.labels)], NO_ODDS) for i in range(6)]
    assert task.score(examples, right) == {metric: 1.0, **dict.fromkeys(others, 1.0)}


def test_the_scores_of_stsb() -> None:
    task = Glue("stsb")
    assert (task.metric, task.output) == ("pearson", Number())
    examples = [Example("a", "b", label=x) for x in (1.0, 2.0, 4.0)]
    scores = task.score(examples, [Answer(x, NO_ODDS) for x in (0.5, 0.6, 3.0)])
    assert scores == {
        "pearson": pytest.approx(np.corrcoef([1, 2, 4], [0.5, 0.6, 3.0])[0, 1]),
        "spearman": 1.0,
    }


# --------------------------------------------------------------------------- the `datasets` library


@pytest.fixture
def hub() -> Any:
    """A made-up copy of four tasks with the hub's columns, splits and label numbers."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()

    def made(columns: dict[str, list[Any]], names: list[str] | None) -> Any:
        kind = datasets.Value("float32") if names is None else datasets.ClassLabel(names=names)
        text = datasets.Value("string")
        features = {key: kind if key == "label" else text for key in columns if key != "idx"}
        return datasets.Dataset.from_dict(
            columns, features=datasets.Features({**features, "idx": datasets.Value("int32")})
        )

    three = ["entailment", "neutral", "contradiction"]
    pair: dict[str, list[Any]] = {
        "premise": ["A.", "C.", "E."],
        "hypothesis": ["B.", "D.", "F\0"],
        "idx": [0, 1, 2],
    }
    return {
        "mnli": datasets.DatasetDict(
            train=made({**pair, "label": [0, 1, 2]}, three),
            validation_matched=made({**pair, "label": [2, 1, 0]}, three),
            validation_mismatched=made({**pair, "label": [1, 1, 1]}, three),
            test_matched=made({**pair, "label": [-1, -1, -1]}, three),
        ),
        "cola": datasets.DatasetDict(
            train=made(
                {"sentence": ["A.", "B."], "label": [0, 1], "idx": [0, 1]},
                ["unacceptable", "acceptable"],
            ),
            validation=made(
                {"sentence": ["A."], "label": [-1], "idx": [0]}, ["unacceptable", "acceptable"]
            ),
        ),
        "stsb": datasets.DatasetDict(
            validation=made(
                {"sentence1": ["A."], "sentence2": ["B."], "label": [2.5], "idx": [0]}, None
            )
        ),
        "wnli": datasets.DatasetDict(
            train=made(
                {"sentence1": ["A."], "sentence2": ["B."], "label": [0], "idx": [0]},
                ["entailment", "other"],
            )
        ),
    }


def test_a_saved_copy_is_read_by_the_names_of_its_labels(hub: Any, tmp_path: Path) -> None:
    for name, data in hub.items():
        data.save_to_disk(str(tmp_path / name))
    mnli = Glue("mnli", f"hf:{tmp_path}/mnli")
    assert mnli.read("train") == [
        Example("A.", "B.", mnli.output.labels.index("entailment"), "0"),
        Example("C.", "D.", mnli.output.labels.index("neutral"), "1"),
        Example("E.", "F ", mnli.output.labels.index("contradiction"), "2"),
    ]
    (note,) = mnli.notes
    names(note, "NUL", 1)
    assert (len(mnli.dev), mnli.tests) == (2, ("test_matched",)), (
        "there is no other test part to answer"
    )
    assert [[example.label for example in mnli.read(part)] for part in mnli.dev] == [
        [0, 2, 1],
        [2, 2, 2],
    ]
    assert [(example.label, example.name) for example in mnli.read("test")] == [
        (None, "0"),
        (None, "1"),
        (None, "2"),
    ]
    assert Glue("cola", f"hf:{tmp_path}/cola").read("train") == [
        Example("A.", None, 0, "0"),
        Example("B.", None, 1, "1"),
    ]
    assert Glue("stsb", f"hf:{tmp_path}/stsb").read("dev") == [Example("A.", "B.", 2.5, "0")]


def test_copies_that_do_not_fit(hub: Any, tmp_path: Path) -> None:
    import datasets

    for name, data in hub.items():
        data.save_to_disk(str(tmp_path / name))
    place = f"hf:{tmp_path}"
    with refused(DataError, f"{place}/mnli", "'test_mismatched'", "train"):
        Glue("mnli", f"{place}/mnli").read("test_mismatched")
    with refused(DataError, f"{place}/cola dev row 1", -1):
        Glue("cola", f"{place}/cola").read("dev")
    hub["cola"]["train"] = hub["cola"]["train"].map(
        lambda row: {"sentence": None if row["idx"] else row["sentence"]}
    )
    hub["cola"].save_to_disk(str(tmp_path / "null"))
    with refused(DataError, f"{place}/null train row 2", "sentence", None):
        Glue("cola", f"{place}/null").read("train")
    hub["wnli"] = hub["wnli"].cast_column(
        "label", datasets.ClassLabel(names=["other", "entailment"])
    )
    hub["wnli"].save_to_disk(str(tmp_path / "other"))
    with refused(DataError, f"{place}/other train row 1", "'other'", 0, 1):
        Glue("wnli", f"{place}/other").read("train")
    with refused(DataError, f"{place}/wnli", "'sentence'"):
        Glue("sst2", f"{place}/wnli").read("train")
    with refused(DataError, f"{place}/none"):
        Glue("wnli", f"{place}/none").read("train")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("hf:glue", ("nyu-mll/glue", "cola")),
        ("hf:glue/cola", ("nyu-mll/glue", "cola")),
        ("hf:someone/glue", ("someone/glue", "cola")),
        ("hf:someone/else:CoLA", ("someone/else", "CoLA")),
    ],
)
def test_names_on_the_hub(
    hub: Any, monkeypatch: pytest.MonkeyPatch, source: str, expected: tuple[str, str]
) -> None:
    calls = []

    def load(*words: str) -> Any:
        calls.append(words)
        return hub["cola"]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    assert len(Glue("cola", source).read("train")) == 2
    assert calls == [expected]


@pytest.mark.parametrize("name", ["glue", "glue/cola", "someone/glue"])
def test_a_folder_that_is_called_like_a_set_on_the_hub(
    name: str, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a folder that `datasets` saved is read in its place."""
    calls = []

    def load(*words: str) -> Any:
        calls.append(words)
        return hub["cola"]

    monkeypatch.chdir(tmp_path)
    Path(name).mkdir(parents=True)
    library = sys.modules["datasets"]
    monkeypatch.setitem(
        sys.modules,
        "datasets",
        SimpleNamespace(load_dataset=load, load_from_disk=library.load_from_disk),
    )
    assert len(Glue("cola", f"hf:{name}").read("train")) == 2
    assert len(calls) == 1
    hub["cola"].save_to_disk(name)
    assert len(Glue("cola", f"hf:{name}").read("train")) == 2
    assert len(calls) == 1
    hub["cola"]["train"].save_to_disk(f"{name}-one")
    with refused(DataError, f"hf:{name}-one"):
        Glue("cola", f"hf:{name}-one").read("train")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused(MissingExtraError, "pip install 'litebert[datasets]'"):
        Glue("cola", "hf:glue").read("train")
