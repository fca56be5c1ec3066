"""Several processes train as one would: the same samples and losses, one folder, one voice, and one
end for all.

The commands are `litebert` as a person types it, in two processes of one thread each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from litebert.judge.baselines import read_scores
from litebert.train.metrics import read
from litebert.train.ranks import Ranks
from toys.finetuning import recipe_file, write_table
from toys.groups import Groups, free_port
from toys.prepare import wait_for
from toys.pretraining import CHECKPOINT, ENCODER
from toys.typed import typed

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the toy forks"),
]

RECIPE = f"""
objectives = ["mlm", "sop"]

{ENCODER}
[train]
budget = "16 steps"
batch = "8 sequences"
micro_batch = 4
precision = "float32"
save_every = "5 steps"
evaluate_every = "50%"
evaluate_sequences = 80

[train.optimizer]
learning_rate = 3e-3
"""
TOLERANCE = 1e-5
SELDOM = ("--train.save-every", "100000 steps")


def words_of(folder: Path, data: Path, out: str, *more: object) -> list[object]:
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE)
    return ["pretrain", recipe, "--shards", data, "--out", folder / out, *more]


def rows(run: Path) -> list[dict[str, Any]]:
    return read(run / "metrics.jsonl")


def assert_same_course(run: Path, other: Path, tolerance: float = TOLERANCE) -> None:
    """The same steps on the same tokens, with the same losses and held-out scores."""
    assert len(rows(run)) == len(rows(other))
    for row, expected in zip(rows(run), rows(other), strict=True):
        assert {row[key] for key in ("step", "kind")} == {expected[key] for key in ("step", "kind")}
        assert row.get("tokens") == expected.get("tokens")
        near = {key: value for key, value in expected.items() if key.endswith(("loss", "accuracy"))}
        assert {key: row[key] for key in near} == pytest.approx(near, abs=tolerance), row["step"]


def weights(run: Path) -> dict[str, bytes]:
    last = max((run / "checkpoints").glob("step-*"))
    return {name: (last / name).read_bytes() for name in CHECKPOINT} | {"step": last.name.encode()}


def is_newer(run: Path, step: int) -> bool:
    """True once a run has a checkpoint of a later step."""
    return newest(run) > step


def is_gone(pid: int, parent: int) -> bool:
    """True once a worker of torchrun has ended."""
    return pid not in workers(parent)


def newest(run: Path) -> int:
    return max(
        (int(path.name[5:13]) for path in (run / "checkpoints").glob("step-????????")), default=0
    )


@pytest.mark.parametrize("steps", [16, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_two_ranks_train_as_one_does(
    optimizer: str, steps: int, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    chosen = ("--budget", f"{steps} steps", "--train.optimizer.name", optimizer)
    for out, size in (("one", 1), ("two", 2)):
        groups.complete(size, *words_of(tmp_path, tiny_data, out, *chosen, *SELDOM))
    assert_same_course(tmp_path / "two", tmp_path / "one")


def test_all_ranks_begin_with_the_weights_of_one(
    groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    """One step of next to no length changes no bit. The last run starts from the weights of the
    first, and its seed would give it others."""
    runs = {"one": (), "two": (), "two-from": ("--from", tmp_path / "one", "--train.seed", 1)}
    for out, more in runs.items():
        still = typed(
            "--budget '1 steps' --train.optimizer.learning-rate 1e-60 --encoder.positions rotary"
        )
        groups.complete(
            1 if out == "one" else 2, *words_of(tmp_path, tiny_data, out, *still, *more)
        )
    assert_same_course(tmp_path / "two", tmp_path / "one")
    assert len({weights(tmp_path / out)["model.safetensors"] for out in runs}) == 1


def test_four_ranks_train_as_one_does(groups: Groups, tiny_data: Path, tmp_path: Path) -> None:
    """The model has dropout, so the micro-batches must be those that each of the four computes."""
    for out, size in (("one", 1), ("four", 4)):
        words = words_of(
            tmp_path, tiny_data, out, "--train.micro-batch", 2, "--budget", "20 steps", *SELDOM
        )
        groups.complete(size, *words, "--train.optimizer.name", "muon")
    assert_same_course(tmp_path / "four", tmp_path / "one")


def test_what_a_generator_proposes_does_not_depend_on_the_ranks(
    groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    rtd = [*typed("--objectives mlm rtd --rtd.generator-width 0.5 --budget '10 steps'"), *SELDOM]
    for out, size, micro in (("one", 1, 8), ("small", 1, 3), ("two", 2, 0)):
        no_dropout = typed(
            "--encoder.hidden-dropout 0 --encoder.attention-dropout 0 --train.micro-batch {}", micro
        )
        groups.complete(size, *words_of(tmp_path, tiny_data, out, *rtd, *no_dropout))
    assert_same_course(tmp_path / "small", tmp_path / "one")
    assert_same_course(tmp_path / "two", tmp_path / "one")


def test_a_run_goes_on_with_other_numbers_of_ranks(
    groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    """One rank, two, and one again; each of the first two is asked to leave by a signal."""
    budget = ("--budget", "60 steps", "--train.optimizer.name", "muon")
    groups.complete(1, *words_of(tmp_path, tiny_data, "whole", *budget))
    run, whole_run, before = tmp_path / "run", tmp_path / "whole", 0
    for size in (1, 2):
        ids = groups.start(size, *words_of(tmp_path, tiny_data, "run", *budget))
        wait_for(partial(is_newer, run, before), 60)
        os.kill(ids[-1], signal.SIGTERM)
        ended = groups.end()
        before = newest(run)
        assert ended.statuses == [128 + signal.SIGTERM] * size, ended.output
        last = ended.outputs[0].splitlines()[-1]
        assert str(before) in last
        assert ended.outputs[1:] == [""] * (size - 1)
    assert before < 60
    groups.complete(1, *words_of(tmp_path, tiny_data, "run", *budget))
    messages = [
        {row["message"] for row in rows(folder) if row["kind"] == "event"}
        for folder in (run, whole_run)
    ]
    assert messages[0] - messages[1], "another number of processes is remarked on"
    for folder in (run, whole_run):
        numbers = [row for row in rows(folder) if row["kind"] != "event"]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    assert_same_course(run, whole_run, 2e-4)  # 60 steps of Muon let bits grow


FAILS = """
import os, resource
from litebert.base.errors import DataError
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.base.registry import OBJECTIVES

class Fails(MaskedLanguageModeling):
    batches = 0

    def prepare(self, batch):
        Fails.batches += 1
        what, *ranks = os.environ["FAILS"].split()
        if Fails.batches > 12 and os.environ["RANK"] in ranks:
            if what == "data":
                raise DataError("made-up.txt:7 is broken; restore it")
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        return batch

OBJECTIVES.add("fails", Fails)
"""


@pytest.mark.parametrize(
    ("fails", "place"),
    [
        ("data 0", "made-up.txt:7"),
        ("data 1", "made-up.txt:7"),
        ("data 0 1", "made-up.txt:7"),
        ("disk 0", "checkpoints"),
    ],
)
def test_an_error_of_any_rank_ends_all_and_is_reported_once(
    fails: str, place: str, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    words = words_of(tmp_path, tiny_data, "run", "--objectives", "fails")
    environment = {"LITEBERT_EXTENSIONS": str(tmp_path / "fails.py"), "FAILS": fails}
    ended = groups.run(2, *words, **environment)
    assert ended.statuses == [2, 2], ended.output
    lines = [
        line
        for text in ended.outputs
        for line in text.splitlines()
        if line.startswith("litebert pretrain: ")
    ]
    assert len(lines) == 1, ended.output
    assert place in lines[0]
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_end_when_one_is_killed_and_the_run_goes_on_bit_for_bit(
    killed: int, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    groups.complete(2, *words_of(tmp_path, tiny_data, "whole", "--budget", "30 steps"))
    ids = groups.start(2, *words_of(tmp_path, tiny_data, "run", "--budget", "30 steps"))
    wait_for(lambda: newest(tmp_path / "run") > 0, 60)
    os.kill(ids[killed], signal.SIGKILL)
    ended = groups.end()
    assert ended.statuses[killed] == -signal.SIGKILL
    assert ended.statuses[1 - killed] == 2, ended.output
    assert ended.outputs[1 - killed].count("litebert pretrain: ") == 1
    assert "Traceback" not in ended.output
    groups.complete(2, *words_of(tmp_path, tiny_data, "run", "--budget", "30 steps"))
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_two_ranks_fine_tune_as_one_does(
    groups: Groups, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    model = recipe_file(tmp_path)
    train = write_table(tmp_path / "train.csv", 64)
    dev = write_table(tmp_path / "dev.csv", 33, seed=1)
    for out, size in (("one", 1), ("two", 2)):
        words = typed(
            "finetune {} --task table --data {} --dev {} --tokenizer {} --out {} --epochs 2 "
            "--length 32 --train.precision float32 --train.batch '16 sequences' "
            "--train.micro-batch 8 --seeds 2",
            *(model, train, dev, tiny_tokenizer, tmp_path / out),
        )
        groups.complete(size, *words)
    one, two = tmp_path / "one", tmp_path / "two"
    for seed in ("seed-0", "seed-1"):
        together, alone = two / seed, one / seed
        assert_same_course(together, alone)
        scores, expected = (read_scores(run / "scores.json") for run in (together, alone))
        assert scores == pytest.approx(expected, abs=TOLERANCE)
    assert {path.relative_to(two) for path in two.rglob("*")} == {
        path.relative_to(one) for path in one.rglob("*")
    }


def test_two_ranks_learn_a_teachers_layers_as_one_does(
    groups: Groups, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    train = write_table(tmp_path / "train.csv", 32)
    dev = write_table(tmp_path / "dev.csv", 17, seed=1)
    common = typed(
        "--task table --data {} --dev {} --tokenizer {} --epochs 2 --length 32 "
        "--train.precision float32 --train.batch '16 sequences' --train.micro-batch 8",
        train,
        dev,
        tiny_tokenizer,
    )
    teacher = tmp_path / "teacher"
    groups.complete(1, "finetune", recipe_file(tmp_path), *common, "--out", teacher)
    layers = typed("--teacher {} --distill.states 1 --distill.relations 1 --train.seed 1", teacher)
    for out, size in (("one", 1), ("two", 2)):
        groups.complete(
            size,
            "finetune",
            recipe_file(tmp_path),
            *common,
            *layers,
            "--out",
            tmp_path / out,
        )
    assert_same_course(tmp_path / "two", tmp_path / "one")


def test_other_verbs_and_impossible_groups_are_refused(
    groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    for words in (
        ["recipes"],
        words_of(tmp_path, tiny_data, "run", "--train.batch", "1 sequences"),
        words_of(tmp_path, tiny_data, "run", "--device", "cuda:0"),
        words_of(tmp_path, tmp_path / "no-data", "run"),
    ):
        ended = groups.run(2, *words)
        assert ended.statuses == [2, 2], ended.output
        assert ended.output.count(f"litebert {words[0]}: ") == 1, ended.output
        assert "Traceback" not in ended.output


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_pieces_of_work_are_dealt_evenly_and_come_back_in_order(count: int) -> None:
    dealt = [Ranks(rank, 3).turns(count) for rank in range(3)]
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert sorted(i for share in dealt for i in share) == list(range(count))
    assert Ranks().union({1: "b", 0: "a"}) == ["a", "b"]


@pytest.mark.slow
def test_a_time_budget_is_measured_once_for_all(
    groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    groups.complete(2, *words_of(tmp_path, tiny_data, "run", "--budget", "5s"))
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert rows(tmp_path / "run")[-1]["step"] == run["steps"]
    bought = run.get("corrections", [{"from": run["steps"]}])[0]["from"]
    assert bought * run["seconds_per_step"] <= 5


@pytest.mark.slow
def test_ranks_with_unlike_numbers_of_processes_correct_a_time_at_one_step(
    groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    """As `auto` chooses them by the speed of each GPU, and with a speed that was measured wrong."""
    extension = tmp_path / "unlike.py"
    extension.write_text(
        "import os\nfrom litebert.train import measure, pretrain\nfrom litebert.train.measure "
        "import Rate\npretrain.count_processes = lambda *_: 3 * "
        "int(os.environ['RANK'])\nmeasure.measure = lambda *_, **__: Rate(((1.0, 0.05),), 0.05)\n"
    )
    words = words_of(tmp_path, tiny_data, "run", "--budget", "6s")
    groups.complete(2, *words, LITEBERT_EXTENSIONS=str(extension), LITEBERT_WAIT_MINUTES="0.3")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["corrections"]
    assert rows(tmp_path / "run")[-1]["step"] == run["steps"]


@pytest.mark.slow
def test_ten_kills_under_torchrun_change_nothing(tiny_data: Path, tmp_path: Path) -> None:
    """Either rank dies at any instant, the start of the processes included; torchrun starts both
    again.
    """
    options = ("--budget", "600 steps")
    draw = random.Random(0)

    def start(out: str) -> subprocess.Popen[str]:
        words = [str(word) for word in words_of(tmp_path, tiny_data, out, *options)]
        return subprocess.Popen(
            [
                *typed(
                    "{} -m torch.distributed.run --nproc-per-node 2 --max-restarts 10 "
                    "--monitor-interval 0.1 --master-port {} -m litebert",
                    sys.executable,
                    str(free_port()),
                ),
                *words,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    whole = start("whole")
    output, _ = whole.communicate(timeout=600)
    assert whole.returncode == 0, output
    run, seen = tmp_path / "run", 0
    process = start("run")
    try:
        for kill in range(10):
            wait_for(lambda: len(workers(process.pid)) == 2, 120)
            if kill % 3:  # in the middle of training
                wait_for(partial(is_newer, run, seen), 120)
                seen = newest(run)
            time.sleep(draw.uniform(0.0, 0.5))
            victims = workers(process.pid)
            assert len(victims) == 2, "torchrun gave up"
            chosen = victims[draw.randrange(2)]
            os.kill(chosen, signal.SIGKILL)
            wait_for(partial(is_gone, chosen, process.pid), 120)
        output, _ = process.communicate(timeout=600)
    finally:
        process.terminate()  # which does nothing where it has ended
    assert process.returncode == 0, output
    assert weights(run) == weights(tmp_path / "whole")
    assert [row["step"] for row in rows(run) if row["kind"] == "train"] == [
        row["step"] for row in rows(tmp_path / "whole") if row["kind"] == "train"
    ]


def workers(parent: int) -> list[int]:
    """The processes that torchrun has started and that have not ended."""
    pids = []
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if "(zombie)" not in Path(f"/proc/{pid}/status").read_text():
                pids.append(int(pid))
    return pids
