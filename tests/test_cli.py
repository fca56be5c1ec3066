"""The command line: every verb helps, every mistake is one sentence and status 2, and the whole way
works.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litebert.cli import GROUPS, SYNONYMS, VERBS, help_text, main
from toys.finetuning import write_table
from toys.refusals import names

Output = tuple[int, str, str]

TINY = """
base = "albert-tiny"

[encoder]
hidden_size = 16
embedding_size = 8
heads = 2
layers = 2
intermediate_size = 32
max_positions = 64

[sequences]
length = 32

[train]
budget = "6 steps"
batch = "4 sequences"
depth_schedule = [[0.5, 1]]
evaluate_sequences = 8
"""


@pytest.fixture(scope="module")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def tiny_run(tiny_recipe: Path, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    assert (
        main(["pretrain", str(tiny_recipe), "--shards", str(tiny_data), "--out", str(folder)]) == 0
    )
    return folder


# --------------------------------------------------------------------------------------------- help


def test_help_names_every_verb(run: Callable[..., Output]) -> None:
    for words in ((), ("--help",), ("-h",), ("help",)):
        status, out, err = run(*words)
        assert (status, out, err) == (0, help_text(), "")
    assert all(re.search(rf"^.{{16}}{verb} ", help_text(), re.M) for verb in VERBS)
    assert sorted(verb for verbs in GROUPS.values() for verb in verbs) == sorted(VERBS)
    assert max(map(len, help_text().splitlines())) <= 100


def test_version(run: Callable[..., Output]) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("litebert 0.")


@pytest.mark.parametrize(
    "verb", [*VERBS, *(f"tokenizer {action}" for action in ("train", "inspect"))]
)
def test_every_verb_helps(verb: str, run: Callable[..., Output]) -> None:
    status, out, err = run(*verb.split(), "--help")
    assert (status, err) == (0, "")
    assert f"litebert {verb}" in out


@pytest.mark.parametrize(
    "verb", sorted(VERBS.keys() - {"demo", "quickstart", "recipes", "studies", "doctor"})
)
def test_a_verb_alone_says_what_it_needs(verb: str, run: Callable[..., Output]) -> None:
    status, out, err = run(verb)
    assert (status, out) == (2, "")
    assert f"litebert {verb}" in err


@pytest.mark.parametrize("verb", ["plan", "pretrain"])
def test_the_help_of_a_recipe_lists_its_fields_and_values(
    verb: str, run: Callable[..., Output]
) -> None:
    status, out, _ = run(verb, "bert-mini", "--help", "all")
    assert status == 0
    for field in (
        "--encoder.layers",
        "--masking.rate",
        "--train.optimizer.name",
        "--sequences.length",
    ):
        assert field in out
    assert re.search(r"--encoder.layers N  .*\n* .*Default 8\.", out)


def test_the_help_of_finetune_lists_no_field_of_pretraining(run: Callable[..., Output]) -> None:
    _, out, _ = run("finetune", "--help", "all")
    assert "--train.clip" in out
    assert not any(
        f"--train.{name}" in out
        for name in ("budget", "compile", "depth-schedule", "evaluate-sequences")
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["recipes"],
        ["plan", "albert-tiny"],
        ["plan", "electra-mini"],
        ["plan", "spanbert-mini", "--json"],
        ["pretrain", "--help"],
        ["compare", "nothing"],
    ],
)
def test_what_trains_nothing_imports_no_torch(words: list[str]) -> None:
    code = (
        f"import sys; from litebert.cli import main; main({words!r}); sys.exit('torch' in "
        "sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


# ----------------------------------------------------------------------------------------- mistakes


def one_sentence(output: Output, *places: object) -> None:
    """A mistake ends in one line of standard error, which names its places; before it only progress
    is reported.
    """
    status, out, err = output
    assert (status, out) == (2, "")
    *progress, last = err.splitlines(keepends=True)
    assert all(line.endswith(" so far\n") for line in progress)  # on a slow machine
    assert last.startswith("litebert")
    assert last.endswith("\n")
    names(last[:-1], *places)


def test_a_service_that_does_not_start_leaves_the_log_as_it_was(
    run: Callable[..., Output], log_messages: list[str]
) -> None:
    one_sentence(run("serve", "nowhere"), "nowhere")
    logging.getLogger("litebert.progress").info("reading text")
    assert log_messages[-1] == "reading text"


@pytest.mark.parametrize(("word", "verb"), sorted(SYNONYMS.items()))
def test_a_verb_of_another_program(word: str, verb: str, run: Callable[..., Output]) -> None:
    assert verb in VERBS
    for typed in (word, word.title()):
        status, _, error = run(typed)
        assert (status, error) == (2, f"litebert: no verb '{typed}'; did you mean '{verb}'?\n")


def test_the_variables_of_a_scheduler(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kubeflow and SageMaker name a group to every command; torchrun is called for a group."""
    group = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in group.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a.txt").write_text("one line\n")
    words = ("tokenizer", "train", tmp_path / "a.txt", "--vocab-size", 60, "--shrink")
    status, _, stderr = run(*words, "--out", tmp_path / "tokenizer")
    assert (status, (tmp_path / "tokenizer").is_dir()) == (0, True), stderr
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("RANK", "0")
    status, _, stderr = run(*words, "--out", tmp_path / "another")
    assert status == 2
    names(stderr, "torchrun")
    for name in ("WORLD_SIZE", "RANK", "MASTER_PORT", "LOCAL_RANK"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "two")
            status, _, stderr = run("finetune", "--help")
            assert status == 2
            names(stderr, f"{name} is 'two'")


def test_a_misspelt_verb(run: Callable[..., Output]) -> None:
    one_sentence(run("pretran", "albert-tiny"), "'pretran'", "'pretrain'")
    one_sentence(run("xyzzy"), "'xyzzy'", "litebert --help")
    one_sentence(run("train.csv", "finetune", "m"), "litebert finetune train.csv m")
    one_sentence(run("--json", "recipes"), "litebert recipes --json")
    one_sentence(run("tokenizer", "trian"), "'trian'", "tokenizer train")
    one_sentence(run("tokenizer"), "tokenizer train", "tokenizer inspect")


def test_a_misspelt_recipe(run: Callable[..., Output], tiny_data: Path, tmp_path: Path) -> None:
    one_sentence(run("plan", "albrt-base"), "'albrt-base'", "'albert-base'")
    pretrain = ("pretrain", "albert-tyni", "--shards", tiny_data, "--out", tmp_path / "run")
    one_sentence(run(*pretrain), "'albert-tyni'", "'albert-tiny'")
    one_sentence(run("plan", tmp_path / "nothing.toml"), tmp_path / "nothing.toml")
    one_sentence(run("plan", "nothing.py:f"), "nothing.py")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[encoder]\nlayrs = 3\n", ["mine.toml", "encoder.layrs", "'layers'"]),
        ("[encoder]\nlayers = 'three'\n", ["mine.toml", "encoder.layers", "'three'"]),
        ("[encoder]\nsharing = 'al'\n", ["mine.toml", "encoder.sharing", "'al'", "'all'"]),
        ("[train]\nbudget = '5 parsecs'\n", ["mine.toml", "train.budget", "5 parsecs", "30m"]),
        ("[encoder]\nheads = 5\n", ["mine.toml", "encoder.heads 5", "encoder.hidden_size 768"]),
        ("encoder = 3\n", ["mine.toml", "encoder", "3"]),
        ("base = 'albert-tny'\n", ["'albert-tny'", "'albert-tiny'"]),
        ("[encoder\n", ["mine.toml", "line 1"]),
    ],
)
def test_mistakes_in_a_recipe_file(
    text: str, parts: list[str], run: Callable[..., Output], tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(text)
    one_sentence(run("plan", tmp_path / "mine.toml"), *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("import no_such_module\n", ["mine.py", "no_such_module"]),
        ("def f(:\n", ["mine.py", "SyntaxError"]),
        ("def g(): pass\n", ["mine.py", "'f'", "g"]),
        ("def f(): return 1\n", ["mine.py:f", "int"]),
        ("def f(): return 1 / 0\n", ["mine.py:f", "division by zero"]),
        ("def f(a): return a\n", ["mine.py:f", "'a'"]),
    ],
)
def test_mistakes_in_a_recipe_function(
    text: str, parts: list[str], run: Callable[..., Output], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(text)
    one_sentence(run("plan", f"{tmp_path / 'mine.py'}:f"), *parts)


def test_impossible_fields_on_the_command_line(run: Callable[..., Output]) -> None:
    one_sentence(run("plan", "albert-tiny", "--encoder.heads", "7"), "encoder.heads 7")
    one_sentence(
        run("plan", "albert-tiny", "--train.budget", "10 parsecs"), "train.budget", "10 parsecs"
    )
    one_sentence(
        run("plan", "albert-tiny", "--encoder.sharing", "none"),
        "depth_schedule",
        "encoder.sharing=none",
    )
    one_sentence(run("plan", "albert-tiny", "--masking.rate", "15"), "masking.rate", 15.0)


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("plan albert-tiny --encoder.layrs 3", ("--encoder.layrs", "--encoder.layers")),
        ("plan albert-tiny --encoder.layers three", ("--encoder.layers", "three", "number")),
        ("plan albert-tiny --encoder.sharing some", ("--encoder.sharing", "some", "groups")),
        ("plan albert-tiny --train.depth-schedule 0.5", ("--train.depth-schedule", "pairs")),
        ("plan albert-tiny --train.micro-batch few", ("--train.micro-batch", "few", "auto")),
        ("plan albert-tiny --layers 3", ("--layers", "--encoder.layers")),
        ("plan", ("RECIPE", "litebert plan albert-next-tiny")),
        ("plan --jsn albert-tiny", ("--jsn", "--json")),
        ("recipes --jsn", ("--jsn", "--json")),
        ("recipes albert", ("'albert'", "litebert recipes")),
        ("recipes --json=1", ("--json", "=1")),
        ("pretrain albert-tiny --out run", ("--shards", "litebert pretrain albert-next-tiny")),
        ("pretrain --shards data --out run", ("RECIPE", "--from")),
        ("pretrain albert-tiny --shards data --out", ("--out PATH",)),
        ("evaluate", ("MODEL", "litebert evaluate classifier")),
        ("evaluate m --predicted a", ("--predicted", "--predictions")),
        ("compare --jsn", ("--jsn", "--json")),
        ("convert a --out b", ("--to hf", "--to litebert")),
        ("tokenizer train --kind unigrm", ("--kind", "'unigrm'", "'unigram'")),
        ("prepare --heldout some", ("--heldout", "some", "number")),
        ("prepare a --filters c3", ("--filters", "c3", "c4")),
        ("quickstart --bugdet 1m", ("--bugdet", "--budget")),
        ("predict m --frmat csv", ("--frmat", "--format")),
        ("predict m --output a", ("--output", "--out")),
        ("predict m --epochs 3", ("--epochs", "finetune")),
        ("predict m --out a --out b", ("--out", "twice")),
        ("predict m a b --input c", ("TEXT", "--input")),
        ("predict m --device gpu", ("--device", "gpu", "cuda")),
        ("embed m a", ("'a'", "--input")),
        ("serve m --port x", ("--port", "x", "number")),
        ("finetune m --data a --out b --lable-column c", ("--lable-column", "--label-column")),
        ("finetune m --data a --out b --label c", ("--label", "--label-column")),
        ("finetune m --data a --out b --lr abc", ("--lr", "abc", "number")),
        ("finetune m --data a --out b --learning-rate 1", ("--learning-rate", "--lr")),
        ("finetune m --data a --out b --budget 3m", ("--budget", "pretrain")),
        ("finetune m --data a --out b --stride 3", ("stride", "squad", "table")),
        ("finetune m --data a --out b --class-weights yes", ("--class-weights", "yes", "balanced")),
        ("finetune m --data --out b", ("--data FILE",)),
        ("finetune m", ("--data FILE", "--out PATH", "litebert finetune hf:")),
        ("completion cmd", ("SHELL", "cmd", "bash")),
    ],
)
def test_options_that_are_unknown_missing_or_of_another_kind(
    line: str, places: tuple[str, ...], run: Callable[..., Output]
) -> None:
    one_sentence(run(*line.split()), *places)


def test_a_file_in_the_place_of_a_model(run: Callable[..., Output], tmp_path: Path) -> None:
    table = write_table(tmp_path / "train.csv", 4)
    for verb, option in (("predict", "--input"), ("embed", "--input"), ("evaluate", "--data")):
        one_sentence(run(verb, table), table, f"{option} {table}")
    one_sentence(run("finetune", table, "--data", table, "--out", tmp_path / "r"), "--data")
    one_sentence(run("predict", tmp_path, table), f"--input {table}")
    one_sentence(run(table), f"litebert fit {table}")


def test_a_model_that_is_no_folder(
    run: Callable[..., Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models", "sentiment").mkdir(parents=True)
    one_sentence(run("predict", "models/sentimant", "a"), "'models/sentiment'")
    one_sentence(run("predict", "bert-base-uncased", "a"), "hf:google-bert/bert-base-uncased")
    one_sentence(run("predict", "all-MiniLM-L6-v2", "a"), "hf:OWNER/all-MiniLM-L6-v2")
    one_sentence(run("predict", "some/model", "a"), "hf:some/model")


def test_a_file_that_is_not_there(
    run: Callable[..., Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "train.csv", 4)
    one_sentence(run("fit", "trian.csv"), "'train.csv'")
    one_sentence(run("fit", "new.csv"), "give a table")  # .csv alone is not near


def test_folders_that_are_not_there(
    run: Callable[..., Output], tiny_run: Path, tiny_data: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    one_sentence(
        run("pretrain", "albert-tiny", "--shards", gone, "--out", tmp_path / "run"), str(gone)
    )
    one_sentence(
        run("pretrain", "albert-tiny", "--shards", tmp_path, "--out", tmp_path / "run"),
        "index.json",
    )
    one_sentence(run("evaluate", gone, "--shards", tiny_data), str(gone))
    one_sentence(run("evaluate", tiny_run, "--shards", gone), str(gone))
    weighted = f"{tiny_data}:2"
    one_sentence(run("evaluate", tiny_run, "--shards", weighted), "one set", str(tiny_data))
    one_sentence(run("study", "orderr", "--shards", tiny_data), "'order'?")
    one_sentence(run("evaluate", tiny_data, "--shards", tiny_data), "recipe.json", "config.json")
    one_sentence(run("compare", tiny_run, gone), gone / "run.json")
    one_sentence(run("compare", tiny_run, tiny_data), tiny_data / "run.json")
    one_sentence(run("compare"), "run")
    one_sentence(run("convert", gone, "--out", tmp_path / "out", "--to", "hf"), str(gone))
    one_sentence(
        run("convert", gone, "--out", tmp_path / "out", "--to", "onx"), "'onx'", "hf", "litebert"
    )
    one_sentence(run("prepare", gone, "--tokenizer", gone, "--out", tmp_path / "out"), str(gone))
    one_sentence(run("tokenizer", "train", gone, "--out", tmp_path / "out"), str(gone))
    one_sentence(run("tokenizer", "inspect", "--tokenizer", gone), str(gone))
    assert not (tmp_path / "run").exists()


def test_data_that_is_not_text(
    run: Callable[..., Output], tiny_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "photo.txt").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "empty.txt").write_bytes(b"")
    for name, places in (
        ("photo.txt:1", ("zero",)),
        ("latin.txt:1", ("0xe9", "--encoding")),
        ("empty.txt", ()),
    ):
        file = tmp_path / name.removesuffix(":1")
        one_sentence(run("tokenizer", "train", file, "--out", tmp_path / "out"), name, *places)
        prepare = ("prepare", file, "--tokenizer", tiny_tokenizer, "--out", tmp_path / "data")
        one_sentence(run(*prepare), name, *places)
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "data" / "index.json").exists()


def test_folders_that_cannot_be_written(
    run: Callable[..., Output],
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    tiny_recipe: Path,
    tiny_data: Path,
    tiny_run: Path,
) -> None:
    below = tiny_corpus / "below"
    content = tiny_corpus.read_bytes()
    one_sentence(
        run("tokenizer", "train", tiny_corpus, "--vocab-size", 300, "--out", below), str(below)
    )
    one_sentence(
        run("prepare", tiny_corpus, "--tokenizer", tiny_tokenizer, "--out", below), str(below)
    )
    status, _, err = run("pretrain", tiny_recipe, "--shards", tiny_data, "--out", below)
    assert status == 2
    names(err.splitlines()[-1], below)
    one_sentence(run("convert", tiny_run, "--out", below, "--to", "litebert"), str(below))
    assert tiny_corpus.read_bytes() == content


def test_values_out_of_range(
    run: Callable[..., Output],
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    tiny_data: Path,
    tiny_run: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    prepare = ("prepare", tiny_corpus, "--tokenizer", tiny_tokenizer, "--out", out)
    one_sentence(run(*prepare, "--heldout", "2"), "heldout", 2.0)
    one_sentence(run(*prepare, "--language", "english"), "'english'")
    one_sentence(run("tokenizer", "train", tiny_corpus, "--vocab-size", "5", "--out", out), 5)
    one_sentence(
        run("tokenizer", "train", tiny_corpus, "--vocab-size", "90000", "--out", out), 90000
    )
    one_sentence(
        run("evaluate", tiny_run, "--shards", tiny_data, "--sequences", "0"), "sequences", 0
    )
    one_sentence(run("evaluate", tiny_run, "--shards", tiny_data, "--length", "3"), "length", 3)
    one_sentence(run("evaluate", tiny_run, "--shards", tiny_data, "--length", "65"), 65, 64)
    one_sentence(run("evaluate", tiny_run, "--shards", tiny_data, "--device", "gpu"), "'gpu'")
    one_sentence(run("plan", "albert-tiny", "--measure", "--device", "cuda:77"), "cuda:77")


def test_another_run_in_the_folder(
    run: Callable[..., Output], tiny_recipe: Path, tiny_data: Path, tiny_run: Path
) -> None:
    words = ("pretrain", tiny_recipe, "--shards", tiny_data, "--out", tiny_run)
    status, _, err = run(*words, "--budget", "7 steps")
    assert status == 2
    names(err.splitlines()[-1], tiny_run, "train.budget", "6 steps", "7 steps")
    status, _, err = run(*words, "--train.seed", "5")
    assert status == 2
    names(err.splitlines()[-1], tiny_run, "train.seed", 0, 5)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = "import sys; from litebert.cli import main; sys.exit(main(['recipes', '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


# ------------------------------------------------------------------------------------ the whole way


def test_from_text_to_a_converted_model(
    run: Callable[..., Output], tiny_corpus: Path, tmp_path: Path
) -> None:
    tokenizer, data, out = tmp_path / "tokenizer", tmp_path / "data", tmp_path / "run"
    status, _, err = run("tokenizer", "train", tiny_corpus, "--vocab-size", 300, "--out", tokenizer)
    assert status == 0
    names(
        next(line for line in err.splitlines() if line.startswith("wrote")),
        tokenizer,
        "unigram",
        300,
    )

    status, printed, _ = run(
        "tokenizer", "inspect", tiny_corpus, "--tokenizer", tokenizer, "--json"
    )
    assert status == 0
    assert json.loads(printed)["unknown_tokens"] == 0
    status, printed, _ = run("tokenizer", "inspect", tiny_corpus, "--tokenizer", tokenizer)
    assert status == 0
    assert "tokens per word" in printed

    prepare = ("prepare", tiny_corpus, "--tokenizer", tokenizer, "--out", data, "--heldout", 0.1)
    status, printed, err = run(*prepare, "--processes", 1)
    assert status == 0
    assert "183" in next(line for line in printed.splitlines() if "train" in line).split()
    assert "exact duplicates" in printed
    assert "unigram entropy" in printed
    index = (data / "index.json").read_bytes()
    assert run(*prepare)[0] == 0
    assert (data / "index.json").read_bytes() == index

    (tmp_path / "mine.toml").write_text(TINY + '\n[train.optimizer]\nname = "lamb"\n')
    pretrain = ("pretrain", tmp_path / "mine.toml", "--shards", data, "--out", out)
    status, printed, err = run(*pretrain, "--json")
    assert status == 0, err
    report = json.loads(printed)
    assert report["steps"] == 6
    assert report["run"] == str(out)
    assert {"mlm_accuracy", "sop_accuracy"} <= report["heldout"].keys()
    assert "Traceback" not in err
    status, printed, err = run(*pretrain)
    assert status == 0
    assert any("step 6 of 6" in line for line in err.splitlines())
    assert "MLM accuracy" in printed

    scores = _check_scores(run, out, data)
    status, _, err = run("convert", out, "--out", tmp_path / "hf", "--to", "hf")
    assert status == 0
    names(next(line for line in err.splitlines() if line.startswith("wrote")), tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "modernbert"
    status, printed, _ = run(
        "evaluate", tmp_path / "hf", "--shards", data, "--length", 32, "--json"
    )
    assert status == 0
    assert json.loads(printed)["scores"]["mlm_loss"] == pytest.approx(scores["mlm_loss"], rel=1e-2)
    assert run("convert", tmp_path / "hf", "--out", tmp_path / "back", "--to", "litebert")[0] == 0
    one_sentence(run("convert", out, "--out", tmp_path / "hf", "--to", "hf"), tmp_path / "hf")


def _check_scores(run: Callable[..., Output], out: Path, data: Path) -> dict[str, Any]:
    """The scores of a run, which are there in JSON and in words."""
    status, printed, _ = run("evaluate", out, "--shards", data, "--json")
    assert status == 0
    scores: dict[str, Any] = json.loads(printed)["scores"]
    assert {"mlm_loss", "sop_accuracy", "nsp_accuracy", "nsp_majority"} <= scores.keys()
    status, printed, _ = run("evaluate", out, "--shards", data)
    assert status == 0
    for part in (
        "MLM perplexity",
        "SOP accuracy",
        "NSP accuracy",
        "majority",
        "most frequent token",
    ):
        assert part in printed
    return scores


def test_runs_side_by_side(
    run: Callable[..., Output], tiny_data: Path, tiny_run: Path, tmp_path: Path
) -> None:
    other = tmp_path / "rtd"
    recipe = tmp_path / "rtd.toml"
    recipe.write_text(
        TINY.replace("base =", 'objectives = ["mlm", "rtd"]\nbase =')
        + "\n[rtd]\ngenerator_width = 0.5\n"
    )
    words = ("pretrain", recipe, "--shards", tiny_data, "--out", other, "--budget", "12 steps")
    status, printed, err = run(*words)
    assert status == 0, err
    for part in (
        "RTD area under the curve",
        "tokens replaced",
        "RTD recall",
        "generator's MLM accuracy",
    ):
        assert part in printed

    status, printed, err = run("compare", tiny_run, other)
    assert status == 0
    assert "RTD area" in printed
    names(next(line for line in err.splitlines() if line.startswith("warning")), "budgets")
    status, printed, _ = run("compare", tiny_run, other, "--json")
    assert status == 0
    rows = json.loads(printed)
    assert [row["run"] for row in rows] == [str(tiny_run), str(other)]
    assert [row["step"] for row in rows] == [6, 12]
    assert {"rtd_auc", "rtd_base_rate", "mlm_majority"} <= rows[1]["scores"].keys()
    assert rows[1]["parameters"] > rows[1]["encoder_parameters"] > 0
    status, printed, _ = run("compare", tiny_run, other, "--markdown")
    assert status == 0
    table = [
        line for line in printed.partition("| setting |")[0].splitlines() if line.startswith("|")
    ]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1


def test_the_documented_entry_point_exists() -> None:
    script = Path(sys.executable).with_name("litebert")
    done = subprocess.run(
        [script, "plan", "albert-tny"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        check=False,
    )
    one_sentence((done.returncode, done.stdout, done.stderr), "'albert-tny'", "'albert-tiny'")


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back and can be told not to"
)
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_a_process_without_memory_ends_in_one_sentence() -> None:
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (300_000 << 10,) * 2)"
    code = (
        f"{limit}\nfrom litebert.cli import main\nsys.exit(main(['analyze', '.', '--shards', 'x']))"
    )
    alone = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=alone, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    names(done.stderr.splitlines()[-1], "memory")
    assert "Traceback" not in done.stderr


def test_training_keeps_freed_memory_and_a_setting_of_malloc_wins() -> None:
    code = (
        "import resource, sys; from litebert.base.machine import keep_freed_memory\n"
        "kept = sys.argv[1] == 'keep' and keep_freed_memory()\n"
        "for _ in range(20): b'x' * (64 << 20)\n"
        "print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"
    )

    def faults(argument: str, **settings: str) -> tuple[bool, int]:
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
        }
        done = subprocess.run(
            [sys.executable, "-c", code, argument],
            env=plain | settings,
            capture_output=True,
            text=True,
            check=True,
        )
        is_kept, count = done.stdout.split()
        return is_kept == "True", int(count)

    (kept_when_giving, often), (kept_when_keeping, seldom), (left, _) = (
        faults("give"),
        faults("keep"),
        faults("keep", MALLOC_ARENA_MAX="2"),
    )
    assert (kept_when_giving, kept_when_keeping, left) == (False, True, False)
    assert seldom < often / 5
