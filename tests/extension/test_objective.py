"""An objective of one's own: a class in this file and a line, known to every verb that knows the
others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from litebert import load
from litebert.analysis.report import Chart, run_sections
from litebert.base.registry import OBJECTIVES
from litebert.config import cost, replace
from litebert.data import IGNORED
from litebert.data.batches import Batch
from litebert.model.objectives import Classification, Context, Curves
from litebert.train import metrics

Output = tuple[int, str, str]


class Repeated(Classification):
    """Tell the tokens in whose place the token before them was written once more."""

    curves = (Curves("Accuracy on repeated tokens"),)

    def parameters(self) -> dict[str, int]:
        return {"rep head": cost.linear(self.config.encoder.hidden_size, 2)}

    def flops(self, length: int) -> float:
        return 2 * 2 * self.config.encoder.hidden_size

    def head(self) -> nn.Module:
        return nn.Linear(self.config.encoder.hidden_size, 2)

    def corrupt(self, batch: Batch, context: Context) -> Batch:
        chosen = torch.rand(batch.input_ids.shape, device=batch.input_ids.device) < 0.1
        chosen[:, 0] = False
        chosen.view(-1)[batch.masked_positions] = False
        ids = torch.where(chosen, batch.input_ids.roll(1, dims=1), batch.input_ids)
        labels = (
            chosen.long()
            if batch.attention_mask is None
            else chosen.long().where(batch.attention_mask, IGNORED)
        )
        return replace(batch, input_ids=ids, added={**batch.added, "repeated": labels})

    def logits(self, output: Any, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        return context.network.head(output.last.flatten(0, 1)), batch.added["repeated"].flatten()

    def count(self, batch: Batch) -> int:
        return batch.tokens


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    OBJECTIVES.add("rep", Repeated)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "own.toml"
    path.write_text(
        'base = "albert-base"\nobjectives = ["mlm", "sop", "rep"]\n'
        "[encoder]\nvocab_size = 400\nembedding_size = 8\nhidden_size = 16\nlayers = 2\nheads = 2\n"
        "intermediate_size = 32\nmax_positions = 64\n[sequences]\nlength = 32\n"
        '[train]\nbudget = "4 steps"\nbatch = "8 sequences"\nevaluate_sequences = '
        '16\nprecision = "float32"\n'
    )
    return path


@pytest.fixture(scope="module")
def trained_run(
    recipe_file: Path, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    from litebert.cli import main

    out = tmp_path_factory.mktemp("run") / "run"
    assert main(["pretrain", str(recipe_file), "--shards", str(tiny_data), "--out", str(out)]) == 0
    return out


def test_plan_counts_it(recipe_file: Path, trained_run: Path, run: Callable[..., Output]) -> None:
    status, out, _ = run("plan", recipe_file, "--json")
    planned = json.loads(out)
    assert (status, planned["parameters"]["rep head"]) == (0, 16 * 2 + 2)
    built = load(trained_run).model
    assert planned["parameters"]["total"] == sum(p.numel() for p in built.parameters())
    without = json.loads(run("plan", recipe_file, "--json", "--objectives", "mlm", "sop")[1])
    assert planned["flops_per_token"]["forward"] - without["flops_per_token"][
        "forward"
    ] == pytest.approx(64)


def test_it_is_trained_scored_and_shown(
    trained_run: Path, tiny_data: Path, run: Callable[..., Output]
) -> None:
    rows = [row for row in metrics.read(trained_run / "metrics.jsonl") if row["kind"] != "event"]
    assert {"rep_loss", "rep_accuracy"} <= rows[0].keys()
    assert rows[-1]["kind"] == "heldout"
    assert 0.85 < rows[-1]["rep_majority"] < 0.95, "nine tokens of ten are not repeated"
    status, out, _ = run("evaluate", trained_run, "--shards", tiny_data, "--device", "cpu")
    assert status == 0
    assert "REP loss (nats)" in out
    assert "REP accuracy" in out
    titles = [section.title for section in run_sections(rows) if isinstance(section, Chart)]
    assert "Accuracy on repeated tokens" in titles
    status, out, _ = run("compare", trained_run, "--markdown")
    assert status == 0
    assert "REP accuracy" in out


def test_it_converts_and_is_left_out_where_nothing_is_like_it(
    trained_run: Path, tmp_path: Path
) -> None:
    from litebert import convert

    notes = convert(trained_run, tmp_path / "hf", to="hf").notes
    assert [note for note in notes if "rep head" in note]
    assert not [
        name
        for name in load_file(tmp_path / "hf" / "model.safetensors")
        if "rep" in name.split(".")
    ]
    convert(trained_run, tmp_path / "own", to="litebert")
    head = load_file(tmp_path / "own" / "model.safetensors")["objectives.rep.head.weight"]
    before: Any = load(trained_run).model
    assert torch.equal(head, before.objectives["rep"].head.weight)
