"""Models converted for longer texts: what their positions become, what stays, and that they train
and answer there.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.config import EncoderConfig
from litebert.interop import read_folder
from litebert.model.encoder import Encoder
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from toys.families import build_peer
from toys.folders import save_litebert
from toys.points import config, randomize
from toys.refusals import names
from toys.typed import typed

Run = Callable[..., tuple[int, str, str]]


def save_model(
    folder: Path, objectives: tuple[str, ...] = ("mlm", "sop"), **changes: Any
) -> Pretrainer:
    model = Pretrainer(config(objectives, **changes)).eval()
    randomize(model)
    save_litebert(model, None, folder)
    return model


@pytest.mark.parametrize("objectives", [("mlm", "sop"), ("mlm", "rtd")])
@pytest.mark.parametrize("offset", [0, 2])
def test_learned_positions_are_repeated(
    offset: int, objectives: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    pooler = {"pooler": "sop" in objectives}
    old = save_model(tmp_path / "model", objectives, position_offset=offset, **pooler)
    assert run("resize", tmp_path / "model", "--out", tmp_path / "long", "--positions", 60)[0] == 0
    new = read_folder(tmp_path / "long").model
    assert new.encoder.config.max_positions == 60
    name = "encoder.embedding.position.weight"
    was, table = old.state_dict()[name], new.state_dict()[name]
    assert len(table) == offset + 60
    assert torch.equal(table[: offset + 24], was)
    for place in range(60):
        assert torch.equal(table[offset + place], was[offset + place % 24])
    assert all(
        torch.equal(tensor, old.state_dict()[key])
        for key, tensor in new.state_dict().items()
        if key != name
    )
    ids = torch.randint(5, 50, (2, 24), generator=torch.Generator().manual_seed(1))
    assert torch.equal(new.encoder(ids).last, old.encoder(ids).last)  # as before, as far as before
    assert new.encoder(ids.repeat(1, 2)).last.isfinite().all()


def test_rotary_positions_turn_as_far_over_the_longer_text(run: Run, tmp_path: Path) -> None:
    shape: dict[str, Any] = {"hidden_size": 32, "heads": 2, "rotary_base": 500.0}
    save_model(tmp_path / "model", positions="rotary", norm="pre", **shape)
    line = "resize {} --out {} --positions 96 --window 8"
    assert run(*typed(line, tmp_path / "model", tmp_path / "long"))[0] == 0
    new = read_folder(tmp_path / "long").config.encoder
    sizes = (new.max_positions, new.window, new.global_every, new.window_rotary_base)
    assert sizes == (96, 8, 3, 500.0)
    slowest = -14 / 16  # the exponent of the slowest turn; the fastest does not depend on the base
    assert 96 * new.rotary_base**slowest == pytest.approx(24 * 500.0**slowest)
    assert run("resize", tmp_path / "long", "--out", tmp_path / "whole", "--window", 0)[0] == 0
    assert read_folder(tmp_path / "whole").config.encoder.window == 0


@pytest.mark.parametrize("family", ["Albert", "Bert"])
def test_a_bert_is_given_windows(family: str, run: Run, tmp_path: Path) -> None:
    """A text within the window is read as before; of a longer one, tokens out of reach change
    nothing.
    """
    build_peer(family, "mlm").save_pretrained(tmp_path / "hf")
    line = "resize {} --out {} --positions 512 --window 64 --global-every 0"
    status, _, err = run(*typed(line, tmp_path / "hf", tmp_path / "long"))
    assert status == 0, err
    old, new = read_folder(tmp_path / "hf").model, read_folder(tmp_path / "long").model
    assert new.encoder.config.window_map() == (True,) * 4
    ids = torch.randint(5, 50, (1, 512), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        short = new.encoder(ids[:, :20]).last
        assert (short - old.encoder(ids[:, :20]).last).abs().max() < 1e-5
        before, changed = new.encoder(ids).last, ids.clone()
        changed[:, 200:] = 7
        after = new.encoder(changed).last
        assert torch.equal(after[:, : 200 - 4 * 32], before[:, : 200 - 4 * 32])
        assert (after[:, 200 - 32 : 200] - before[:, 200 - 32 : 200]).abs().max() > 1e-4
    status, _, err = run("convert", tmp_path / "long", "--out", tmp_path / "back", "--to", "hf")
    assert status == 2
    names(err.splitlines()[-1], "encoder.window=64")


def test_a_bert_is_given_a_global_token(run: Run, tmp_path: Path) -> None:
    """[CLS] hears of every token and every token of [CLS], where all layers are windowed."""
    build_peer("Bert", "mlm").save_pretrained(tmp_path / "hf")
    line = "resize {} --out {} --positions 512 --window 64 --global-every 0 --global-tokens 1"
    status, _, err = run(*typed(line, tmp_path / "hf", tmp_path / "long"))
    assert status == 0, err
    model = read_folder(tmp_path / "long").model
    assert isinstance(model.encoder, Encoder)
    ids = torch.randint(5, 50, (1, 512), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        states, changed = list(model.encoder.states(ids)), ids.clone()
        changed[:, 400:] = 7
        moved = [
            (state - other).abs().amax(-1)[0]
            for state, other in zip(states, model.encoder.states(changed), strict=True)
        ]
    assert moved[1][0] > 1e-5  # one layer, and [CLS] has read the change
    assert moved[1][1 : 400 - 32].max() == 0
    assert moved[2][1:100].min() > 0  # two, and all have read it from there
    status, _, err = run("convert", tmp_path / "long", "--out", tmp_path / "back", "--to", "hf")
    assert status == 2
    names(err.splitlines()[-1], "encoder.window=64", "encoder.global_tokens=1")
    assert run("resize", tmp_path / "long", "--out", tmp_path / "whole", "--window", 0)[0] == 0
    assert read_folder(tmp_path / "whole").config.encoder.global_tokens == 0


def test_global_attention_is_that_of_longformer() -> None:
    """transformers' Longformer with [CLS] global, whose projections of global tokens are those of
    the others.
    """
    from transformers import LongformerConfig, LongformerModel

    sizes: dict[str, Any] = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48}
    theirs: dict[str, Any] = {"num_hidden_layers": 3, "num_attention_heads": 4}
    theirs |= {"attention_window": 32, "max_position_embeddings": 402, "pad_token_id": 1}
    theirs |= {"type_vocab_size": 1, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    make_model: Any = LongformerModel
    wanted = make_model(LongformerConfig(**sizes, **theirs)).eval()
    randomize(wanted)
    for name, tensor in (theirs_state := wanted.state_dict()).items():
        if "_global" in name:
            tensor.copy_(theirs_state[name.replace("_global", "")])
    ours: dict[str, Any] = {"embedding_size": 32, "layers": 3, "heads": 4, "sharing": "none"}
    ours |= {"max_positions": 400, "position_offset": 2, "segment_types": 1, "activation": "gelu"}
    windows: dict[str, Any] = {"window": 32, "global_every": 0, "global_tokens": 1}
    encoder = Encoder(EncoderConfig(**sizes, **ours, **windows)).eval()
    encoder.load_state_dict(dict(_from_longformer(theirs_state, 3)))
    for length, real in ((20, 20), (400, 400), (400, 250)):
        ids = torch.randint(5, 60, (2, length), generator=torch.Generator().manual_seed(length))
        mask = torch.arange(length) < torch.tensor([[length], [real]])
        ids[~mask] = 1
        first = (torch.arange(length) == 0).expand(2, length)
        with torch.no_grad():
            last = wanted(
                ids, attention_mask=mask.long(), global_attention_mask=first.long()
            ).last_hidden_state
            output = encoder(ids, attention_mask=mask)
            assert ((output.last - last) * mask[..., None]).abs().max() < 1e-4


def _from_longformer(state: dict[str, Tensor], layers: int) -> Iterator[tuple[str, Tensor]]:
    """Its tensors by our names."""
    tables = {
        "word": "word_embeddings",
        "position": "position_embeddings",
        "token_type": "token_type_embeddings",
    }
    for our_name, name in tables.items():
        yield f"embedding.{our_name}.weight", state[f"embeddings.{name}.weight"]
    maps = {
        "attention.{}.output": "attention.output.dense",
        "attention.{}.norm": "attention.output.LayerNorm",
        "feedforward.{}.input": "intermediate.dense",
        "feedforward.{}.output": "output.dense",
        "feedforward.{}.norm": "output.LayerNorm",
    }
    for kind in ("weight", "bias"):
        yield f"embedding.norm.{kind}", state[f"embeddings.LayerNorm.{kind}"]
        yield f"pooler.{kind}", state[f"pooler.dense.{kind}"]
        for i in range(layers):
            parts = [
                state[f"encoder.layer.{i}.attention.self.{part}.{kind}"]
                for part in ("query", "key", "value")
            ]
            yield f"attention.{i}.qkv.{kind}", torch.cat(parts)
            for our_name, name in maps.items():
                yield (f"{our_name.format(i)}.{kind}", state[f"encoder.layer.{i}.{name}.{kind}"])


def test_parity_with_transformers_holds_at_length(tmp_path: Path) -> None:
    model = build_peer("ModernBert", "mlm", max_position_embeddings=1200, local_attention=64)
    model.save_pretrained(tmp_path / "hf")
    encoder = read_folder(tmp_path / "hf").model.encoder
    assert isinstance(encoder, Encoder)
    ids = torch.randint(5, 50, (2, 1200), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(1200) < torch.tensor([[1200], [700]])
    with torch.no_grad():
        wanted = model.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        assert (
            (encoder(ids, attention_mask=mask).last - wanted) * mask[..., None]
        ).abs().max() < 1e-4


def test_a_lengthened_model_trains_at_the_new_length(
    run: Run, tiny_data: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    model = Pretrainer(config(("mlm",), vocab_size=400))
    save_litebert(model, Tokenizer.load(tiny_tokenizer), tmp_path / "model")
    line = "resize {} --out {} --positions 128 --window 16"
    status, _, err = run(*typed(line, tmp_path / "model", tmp_path / "long"))
    assert status == 0, err
    assert "--sequences.length 128" in err
    train = typed(
        "pretrain --from {} --shards {} --out {} --budget '1 steps' "
        "--sequences.length 128 --train.batch '2 sequences' --json",
        tmp_path / "long",
        tiny_data,
        tmp_path / "run",
    )
    status, out, err = run(*train)
    assert status == 0, err
    assert json.loads(out)["heldout"]["mlm_loss"] > 0


@pytest.mark.thorough
def test_whole_documents_are_fine_tuned_on_in_one_window(
    run: Run, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """SQuAD and a table, with texts several times as long as the model could read before."""
    model = Pretrainer(config(("mlm",), vocab_size=400, layers=2))
    save_litebert(model, Tokenizer.load(tiny_tokenizer), tmp_path / "model")
    sizes = ("--positions", 4096, "--window", 32)
    assert run("resize", tmp_path / "model", "--out", tmp_path / "long", *sizes)[0] == 0
    context = " ".join(f"ba{i % 7} di gu" for i in range(150)) + " the answer stands here"
    place = context.index("stands")
    asked: dict[str, Any] = {"question": "where does it stand"}
    asked |= {"answers": [{"text": "stands", "answer_start": place}]}
    articles = [
        {"title": f"t{i}", "paragraphs": [{"context": context, "qas": [{"id": f"q{i}", **asked}]}]}
        for i in range(4)
    ]
    (tmp_path / "train-v1.1.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    with open(tmp_path / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((context, "ab"[i % 2]) for i in range(8))])
    for task, data in (("squad", "train-v1.1.json"), ("table", "table.csv")):
        out = tmp_path / task
        rows, quick = tmp_path / data, "--length 4096 --epochs 1 --train.batch '4 sequences'"
        line = f"finetune {{}} --task {task} --data {{}} --dev {{}} {quick} --out {{}}"
        status, _, err = run(*typed(line, tmp_path / "long", rows, rows, out))
        assert status == 0, err
        assert json.loads((out / "model" / "task.json").read_text())["length"] == 4096


def test_what_cannot_be_is_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    for words, places in (
        (("--positions", 12), ("--positions", 12, 24)),
        (("--window", 1), ("encoder.window", 1)),
        (("--window", 8, "--global-every", 1), ("encoder.global_every",)),
        (("--global-every", 2), ("encoder.window",)),
        ((), ("--positions",)),
    ):
        status, _, err = run("resize", tmp_path / "model", "--out", tmp_path / "long", *words)
        assert status == 2, words
        names(err.splitlines()[-1], *places)
        assert not (tmp_path / "long").exists()
