"""The span boundary head, which no class of `transformers` has: in a file of its own beside theirs,
and back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert import load
from litebert.base.errors import ModelError
from litebert.change.conversion import convert
from litebert.config import SpanBoundaryConfig
from litebert.model.pretrainer import Pretrainer
from toys.families import (
    NO_POOLER,
    assert_equal_outputs,
    build_litebert,
    build_peer,
    inputs,
    our_outputs,
    reopen,
    their_outputs,
)
from toys.folders import save_hf, save_litebert
from toys.refusals import refused

SBO = "sbo.safetensors"


def build_bounded(objectives: Any = ("mlm", "sbo"), **changes: Any) -> Pretrainer:
    sbo = SpanBoundaryConfig(positions=7, position_size=20)
    return build_litebert(
        objectives, sbo=sbo, **{**NO_POOLER, "embedding_size": 32, "layers": 2, **changes}
    )


@pytest.mark.parametrize(
    ("objectives", "changes", "name"),
    [
        (("mlm", "sbo"), {}, "BertForMaskedLM"),
        (("mlm", "nsp", "sbo"), {"pooler": True}, "BertForPreTraining"),
        (
            ("mlm", "sbo"),
            {"embedding_size": 16, "sharing": "all", "activation": "gelu_tanh"},
            "AlbertForMaskedLM",
        ),
        (("mlm", "sbo"), {"position_offset": 2, "segment_types": 1}, "RobertaForMaskedLM"),
    ],
)
def test_there_and_back_bit_by_bit(
    objectives: Any, changes: dict[str, Any], name: str, tmp_path: Path
) -> None:
    model = build_bounded(objectives, **changes)
    notes = save_hf(model, None, tmp_path / "hf")
    assert notes == (f"the sbo head is in {SBO}, which transformers does not read",)
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == name
    encoder = model.encoder.config
    batch = inputs(pad_id=max(0, encoder.position_offset - 1), types=encoder.segment_types)
    assert_equal_outputs(our_outputs(model, batch), their_outputs(opened, batch))

    names = {"bias", "position.weight"} | {
        f"{module}.{leaf}"
        for module in ("first", "first_norm", "second", "second_norm")
        for leaf in ("weight", "bias")
    }
    assert load_file(tmp_path / "hf" / SBO).keys() == {f"head.{name}" for name in names}
    loaded = load(tmp_path / "hf")
    assert (loaded.config.objectives, loaded.untrained, loaded.notes) == (objectives, (), ())
    assert loaded.config.sbo == model.config.sbo
    before, after = model.state_dict(), loaded.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # And with the vocabulary's head alone lost, as files on the hub are.
    save_hf(model, None, tmp_path / "bare", head="backbone")
    assert load(tmp_path / "bare").config.objectives == ("sbo",)


def test_an_untrained_head_is_not_written(tmp_path: Path) -> None:
    save_hf(build_bounded(), None, tmp_path / "hf", untrained=("sbo",))
    assert not (tmp_path / "hf" / SBO).exists()


def test_a_backbone_without_heads_is_read(tmp_path: Path) -> None:
    """SpanBERT lies on the hub like this: BERT's names, a pooler that nothing trained, no
    vocabulary head, a .bin file.
    """
    model = build_peer("Bert", "backbone")
    model.config.save_pretrained(tmp_path / "theirs")
    state = {f"bert.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save(state, tmp_path / "theirs" / "pytorch_model.bin")
    loaded = load(tmp_path / "theirs")
    assert loaded.untrained == ("mlm",)
    assert_equal_outputs(
        their_outputs(model, inputs()), our_outputs(loaded.model, inputs()), ignore=("mlm",)
    )
    convert(tmp_path / "theirs", tmp_path / "back", to="hf")
    assert isinstance(reopen(tmp_path / "back"), transformers.BertModel)


BREAKS: dict[str, tuple[Callable[[dict[str, Tensor]], object], tuple[str, ...]]] = {
    "no table": (lambda t: t.pop("head.position.weight"), ("head.position.weight",)),
    "flat table": (lambda t: t.update({"head.position.weight": torch.zeros(9)}), ("(32, 84)",)),
    "no bias": (lambda t: t.pop("head.bias"), ("head.bias",)),
    "extra": (lambda t: t.update(extra=torch.zeros(1)), ("extra",)),
    "of another model": (lambda t: t.update({"head.bias": torch.zeros(9)}), ("head.bias", "(9,)")),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_file_is_named(how: str, tmp_path: Path) -> None:
    save_hf(build_bounded(), None, tmp_path / "hf")
    break_it, places = BREAKS[how]
    tensors = load_file(tmp_path / "hf" / SBO)
    break_it(tensors)
    save_file(tensors, tmp_path / "hf" / SBO)
    with refused(ModelError, tmp_path / "hf" / SBO, "objectives.sbo"):
        load(tmp_path / "hf")
    with refused(ModelError, tmp_path / "hf" / SBO, *places):
        load(tmp_path / "hf", engine="torch")


def test_beside_a_discriminator_it_is_refused(tmp_path: Path) -> None:
    build_peer("Electra", "discriminator").save_pretrained(tmp_path / "hf")
    save_hf(build_bounded(embedding_size=16), None, tmp_path / "other")
    (tmp_path / "other" / SBO).rename(tmp_path / "hf" / SBO)
    with refused(ModelError, tmp_path / "hf", "sbo", "rtd"):
        load(tmp_path / "hf")


def test_a_folder_of_ours_keeps_it_with_the_rest(tmp_path: Path) -> None:
    model = build_bounded()
    save_litebert(model, None, tmp_path / "own")
    assert not (tmp_path / "own" / SBO).exists()
    assert load(tmp_path / "own").config == model.config
