"""Training a model further: without naming a recipe, from other software's folders, with the old"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from litebert.config import OptimizerConfig, ScheduleConfig
from litebert.interop import read_folder
from litebert.tokenizer import Tokenizer
from litebert.train.initial_weights import build_further_recipe
from litebert.train.pretrain import pretrain
from toys.families import build_peer
from toys.prepare import run as prepare
from toys.pretraining import config
from toys.refusals import names
from toys.typed import typed

pytestmark = pytest.mark.thorough


Run = Callable[..., tuple[int, str, str]]
POINT = config(
    encoder={"hidden_dropout": 0.1}, train={"save_every": "4 steps", "evaluate_every": "50%"}
)
STILL = ("--train.optimizer.learning-rate", "1e-12", "--train.optimizer.weight-decay", "0")


@pytest.fixture(scope="module")
def source(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on `tiny_data`."""
    return pretrain(POINT, tiny_data, tmp_path_factory.mktemp("source") / "run").folder


@pytest.fixture(scope="module")
def new_text(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Text of the same words in another order, prepared with the same tokenizer."""
    folder = tmp_path_factory.mktemp("new")
    documents = tiny_corpus.read_text(encoding="utf-8").split("\n\n")[:120]
    (folder / "text.txt").write_text(
        "\n\n".join(" ".join(reversed(document.split())) for document in documents)
    )
    prepare(folder / "text.txt", folder / "data", tiny_tokenizer)
    return folder / "data"


def weights(run: Path, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(max((run / "checkpoints").glob("step-*")) / file)


# --------------------------------------------------------------------------------- without a recipe


def test_a_run_goes_on_as_it_was_without_its_recipe(
    run: Run, source: Path, new_text: Path, tmp_path: Path
) -> None:
    words = typed(
        "pretrain --from {} --shards {} --out {} --budget '2 steps'",
        source,
        new_text,
        tmp_path / "run",
    )
    status, _, err = run(*words, *STILL)
    assert status == 0, err
    before, after = weights(source), weights(tmp_path / "run")
    assert before.keys() == after.keys()
    assert all((after[name] - before[name]).abs().max() < 1e-9 for name in after)
    assert run(*words, *STILL)[0] == 0  # which finds it finished
    status, _, err = run(*words[:-4], "--out", tmp_path / "other", "--encoder.layers", 0)
    assert status == 2
    names(err.splitlines()[-1], "encoder.layers", 0)


def test_what_belongs_to_a_beginning_is_not_done_again(tiny_data: Path, tmp_path: Path) -> None:
    grows = config(
        train={
            "depth_schedule": ((0.5, 1),),
            "length_schedule": ((0.5, 16),),
            "schedule": ScheduleConfig(name="trapezoid", warmup=3000),
        },
    )
    folder = pretrain(grows, tiny_data, tmp_path / "run").folder
    further = build_further_recipe(folder)
    assert (further.train.depth_schedule, further.train.length_schedule) == ((), ())
    assert further.train.schedule == ScheduleConfig(name="trapezoid", warmup=0.05)
    assert (further.encoder.hidden_size, further.train.batch) == (
        grows.encoder.hidden_size,
        grows.train.batch,
    )


# ------------------------------------------------------------------------- models of other software


@pytest.mark.parametrize(
    ("family", "head", "pieces"),
    [
        ("Albert", "pretraining", 400),
        ("Bert", "pretraining", 400),
        ("Bert", "mlm", 400),
        ("Roberta", "mlm", 400),
        ("Electra", "discriminator", 400),
        ("ModernBert", "mlm", 416),
    ],
)
def test_a_hugging_face_model_of_each_family_is_trained_further(
    family: str, head: str, pieces: int, run: Run, tiny_data: Path, tmp_path: Path
) -> None:
    """SpanBERT is a Bert with a head for masked pieces; ModernBERT fills its tables up to a round
    number of rows.
    """
    build_peer(family, head, vocab_size=pieces).save_pretrained(tmp_path / "hf")
    Tokenizer.load(tiny_data / "tokenizer").save(tmp_path / "hf")
    small = ("--budget", "2 steps", "--train.batch", "4 sequences", "--train.evaluate-sequences", 8)
    words = [
        *typed(
            "pretrain --from {} --shards {} --out {}", tmp_path / "hf", tiny_data, tmp_path / "run"
        ),
        *small,
        *STILL,
    ]
    status, out, err = run(*words, "--json")
    assert status == 0, err
    scores = json.loads(out)["heldout"]
    assert {"mlm_loss", "rtd_auc"} & scores.keys()
    before, after = read_folder(tmp_path / "hf"), weights(tmp_path / "run")
    read_weights = before.model.state_dict()
    for name in read_weights:
        if not name.startswith(tuple(f"objectives.{objective}." for objective in before.untrained)):
            assert (after[name] - read_weights[name][: len(after[name])]).abs().max() < 1e-8, name
    assert after["encoder.embedding.word.weight"].shape[0] == 400


# ------------------------------------------------------------------------------------ the optimizer


def test_the_state_of_the_optimizer_goes_on(
    source: Path, new_text: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    point = config(encoder={"hidden_dropout": 0.1}, train={"budget": "1 steps"})
    pretrain(point, new_text, tmp_path / "run", from_model=source)
    before, after = (weights(run, "optimizer.safetensors") for run in (source, tmp_path / "run"))
    for name, tensor in after.items():
        if name.endswith("exp_avg_sq"):
            # Decayed once by beta2, and a square added.
            assert (tensor >= 0.998 * before[name]).all(), name
        if name.endswith(".step"):
            assert tensor == before[name] + 1
    assert any(str(source) in line and "optimizer" in line for line in log_messages)
    lamb = config(
        encoder={"hidden_dropout": 0.1},
        train={"budget": "1 steps", "optimizer": OptimizerConfig(name="lamb")},
    )
    pretrain(lamb, new_text, tmp_path / "lamb", from_model=source)
    assert any("adamw" in line and "lamb" in line for line in log_messages)
