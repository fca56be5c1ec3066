"""A model with more pieces, or with another tokenizer, as its user makes and uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.change.vocabulary import with_tokenizer
from litebert.interop import read_folder
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer
from toys.folders import save_hf, save_litebert, tiny
from toys.points import config, randomize
from toys.pretraining import ENCODER
from toys.refusals import names
from toys.tokenizing import train
from toys.typed import typed

pytestmark = pytest.mark.thorough


Run = Callable[..., tuple[int, str, str]]
DOMAIN = "Der Schmetterling sitzt auf der Blume. Die Schmetterlinge sitzen gern auf Blumen.\n\n" * 6


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "domain.txt"
    path.write_text(DOMAIN)
    return path


def model_of(
    tokenizer: Tokenizer, objectives: tuple[str, ...] = ("mlm", "sop"), **changes: Any
) -> Pretrainer:
    model = Pretrainer(config(objectives, vocab_size=tokenizer.vocab_size, **changes)).eval()
    randomize(model)
    return model


def tables(model: Any) -> dict[str, torch.Tensor]:
    """All that has a row for each piece."""
    size = model.encoder.config.vocab_size
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.shape[0] == size}


def adapting(place: Path, text: Path, size: int = 8) -> list[str]:
    """The command that gives place/model so many tokens of a text, as place/new."""
    line = "adapt {} --source {} --add-tokens {} --out {}"
    return typed(line, place / "model", text, size, place / "new")


POINTS: dict[str, dict[str, Any]] = {
    "albert": {},
    "untied": {"untied": True},
    "electra": {"objectives": ("mlm", "rtd"), "pooler": False},
    "spanbert": {"objectives": ("mlm", "sbo"), "sharing": "none"},
}


@pytest.mark.parametrize(
    ("kind", "point"),
    [("wordpiece", "albert"), ("bpe", "albert"), *(("unigram", point) for point in POINTS)],
)
def test_new_rows_are_the_means_of_the_old_pieces(
    kind: str, point: str, run: Run, text: Path, tmp_path: Path
) -> None:
    old = train(kind)
    save_litebert(model_of(old, **POINTS[point]), old, tmp_path / "model")
    size = 20 if kind == "bpe" else 8  # a word takes several merges
    status, out, err = run(*adapting(tmp_path, text, size), "--json")
    assert status == 0, err
    before, after = read_folder(tmp_path / "model"), read_folder(tmp_path / "new")
    new = after.tokenizer
    assert new is not None
    assert new.vocab_size == after.config.encoder.vocab_size == old.vocab_size + size
    moved, was = tables(after.model), tables(before.model)
    assert {name: tensor.shape[1:] for name, tensor in moved.items()} == {
        name: tensor.shape[1:] for name, tensor in was.items()
    }
    assert len(moved) == {"albert": 2, "untied": 3, "electra": 2, "spanbert": 3}[point]
    begins = {"unigram": "▁", "wordpiece": "", "bpe": "Ġ"}[kind]
    whole = [
        i
        for i in range(old.vocab_size, new.vocab_size)
        if new.get_token(i).startswith(begins)
        and not new.get_token(i).startswith("##")
        and new.get_token(i).isascii() | (kind != "wordpiece")
    ]
    assert whole
    for i in whole:
        parts = old.encode([new.get_token(i).removeprefix(begins)])[0]
        assert len(parts) > 1
        for name, table in moved.items():
            assert torch.allclose(table[i], was[name][parts].mean(0), atol=1e-6), (
                name,
                new.get_token(i),
            )
    for name, table in after.model.state_dict().items():
        assert torch.equal(
            table[: old.vocab_size] if name in moved else table, before.model.state_dict()[name]
        ), name
    record = json.loads(out)
    assert record["after"]["tokens"] < record["before"]["tokens"]
    assert [record[moment]["parameters"] for moment in ("before", "after")] == [
        sum(p.numel() for p in loaded_folder.model.parameters())
        for loaded_folder in (before, after)
    ]
    assert [piece["token"] for piece in record["added"]] == [
        new.get_token(i) for i in range(old.vocab_size, new.vocab_size)
    ]


def test_inspect_shows_the_same_before(run: Run, text: Path, tmp_path: Path) -> None:
    old = train()
    save_litebert(model_of(old), old, tmp_path / "model")
    compare = ("tokenizer", "inspect", text, "--tokenizer", tmp_path / "model", "--json")
    status, before, err = run(*compare, "--add-tokens", 8)
    assert status == 0, err
    words = adapting(tmp_path, text)
    assert json.loads(run(*words, "--json")[1]) == json.loads(before)
    status, out, _ = run(*compare, "--other-tokenizer", tmp_path / "new")
    assert status == 0
    assert {**json.loads(before), "added": []} == json.loads(out)
    status, out, _ = run(*words[:-1], tmp_path / "again")
    assert status == 0
    assert "Schmetterling".lower() in out


def test_the_new_model_prepares_text_and_trains_on(
    run: Run, text: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    old = train()
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(
        f'objectives = ["mlm", "sop"]\n{ENCODER}[train]\nbudget = "2 steps"\nbatch = "4 '
        'sequences"\n'
    )
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 16, "layers": 2, "heads": 2}
    sizes |= {"intermediate_size": 32, "max_positions": 64}
    save_litebert(model_of(old, **sizes), old, tmp_path / "model")
    assert run(*adapting(tmp_path, text))[0] == 0
    line = "prepare {} --tokenizer {} --out {} --processes 1"
    prepared = run(*typed(line, tiny_corpus, tmp_path / "new", tmp_path / "data"))
    assert prepared[0] == 0, prepared[2]
    pretrain = typed(
        "pretrain {} --shards {} --out {} --from", recipe, tmp_path / "data", tmp_path / "run"
    )
    status, _, err = run(*pretrain, tmp_path / "new")
    assert status == 0, err
    status, _, err = run(*pretrain[:-2], tmp_path / "other", "--from", tmp_path / "model")
    assert status == 2
    names(err.splitlines()[-1], tmp_path / "data", tmp_path / "model")


def test_an_extended_model_leaves_for_transformers(run: Run, text: Path, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    old = train("wordpiece")
    model = model_of(old, sharing="none", embedding_size=16, objectives=("mlm",))
    save_litebert(model, old, tmp_path / "model")
    assert run(*adapting(tmp_path, text))[0] == 0
    assert run("convert", tmp_path / "new", "--out", tmp_path / "hf", "--to", "hf")[0] == 0
    our_model = read_folder(tmp_path / "new")
    peer_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert our_model.tokenizer is not None
    ids = peer_tokenizer(DOMAIN.split("\n")[0])["input_ids"]
    assert ids[1:-1] == our_model.tokenizer.encode([DOMAIN.split("\n")[0]])[0]
    assert max(ids) >= old.vocab_size
    with torch.no_grad():
        input_ids = torch.tensor([ids[:20]])
        peer = AutoModel.from_pretrained(tmp_path / "hf").eval()
        states = peer(input_ids).last_hidden_state
        assert (our_model.model.encoder(input_ids).last - states).abs().max() < 1e-5


# -------------------------------------------------------------------------------- another tokenizer


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_a_model_moves_to_another_tokenizer(kind: str, run: Run, tmp_path: Path) -> None:
    old, new = train(lower_case=False), train(kind, 500)
    save_litebert(model_of(old), old, tmp_path / "model")
    new.save(tmp_path / "tokenizer")
    words = ("adapt", tmp_path / "model", "--tokenizer", tmp_path / "tokenizer")
    status, out, err = run(*words, "--out", tmp_path / "new", "--json")
    assert status == 0, err
    before, after = read_folder(tmp_path / "model"), read_folder(tmp_path / "new")
    assert after.tokenizer is not None
    assert after.tokenizer.fingerprint == new.fingerprint
    assert sum(json.loads(out).values()) == after.config.encoder.vocab_size == 500
    (word, bias), (old_word, old_bias) = tables(after.model).values(), tables(before.model).values()
    for role in ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id"):
        assert torch.equal(word[getattr(new, role)], old_word[getattr(old, role)])
        assert torch.equal(bias[getattr(new, role)], old_bias[getattr(old, role)])
    for text in ("the", "statement", "expressions", "semantics"):
        ids = new.encode([text])[0]
        if len(ids) == 1:
            assert torch.allclose(word[ids[0]], old_word[old.encode([text])[0]].mean(0), atol=1e-6)
    assert word.isfinite().all()
    assert float(word.std()) == pytest.approx(float(old_word.std()), rel=0.4)


def test_a_move_there_and_back_changes_no_row_that_both_have(tmp_path: Path) -> None:
    small, large = train("wordpiece", 500), train("wordpiece", 600)
    save_litebert(model_of(small), small, tmp_path / "model")
    loaded = read_folder(tmp_path / "model")
    larger = with_tokenizer(loaded, large)
    back = with_tokenizer(larger.model, small)
    assert (larger.same + larger.averaged + larger.drawn, back.same) == (600, 500)
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(back.model.model.state_dict()[name], tensor), name


def test_pieces_whose_text_changes_are_not_counted_as_kept(tmp_path: Path) -> None:
    lower, cased = train("wordpiece"), train("wordpiece", lower_case=False)
    save_litebert(model_of(lower), lower, tmp_path / "model")
    moved = with_tokenizer(read_folder(tmp_path / "model"), cased)
    lower_tokens = {lower.get_token(i) for i in range(lower.vocab_size)}
    only_lower = {
        piece
        for i in range(cased.vocab_size)
        if (piece := cased.get_token(i)) not in lower_tokens and piece.lower() in lower_tokens
    }
    assert only_lower
    assert moved.same <= cased.vocab_size - len(only_lower)
    assert moved.same + moved.averaged + moved.drawn == cased.vocab_size


@pytest.mark.parametrize(("name", "task"), [("cola", "cola"), (None, "table")])
def test_a_fine_tuned_model_keeps_its_classes(
    name: str | None, task: str, run: Run, text: Path, tmp_path: Path
) -> None:
    old = train()
    model = TaskModel(model_of(old).config.encoder, reads_cls=True, classes=3)
    about = {"task": name, "kind": "sequence", "length": 16}
    save_litebert(model, old, tmp_path / "model", labels=("a", "b", "c"), task=about)
    status, out, err = run(*adapting(tmp_path, text, 4))
    assert status == 0, err
    following = (out + err).partition("next:")[2]
    assert re.findall(r"\blitebert (\w+) ", following) == ["finetune"]
    assert f"--task {task} " in following
    after = read_folder(tmp_path / "new")
    assert isinstance(after.model, TaskModel)
    assert after.labels == ("a", "b", "c")
    assert torch.equal(after.model.head.classifier.weight, model.head.classifier.weight)


def test_padding_rows_behind_the_vocabulary_are_not_kept(tmp_path: Path) -> None:
    tokenizer = train("wordpiece", 500)
    model = tiny(vocab_size=512, objectives=("mlm", "nsp"), sharing="none", embedding_size=8)
    save_hf(model, tokenizer, tmp_path / "hf")
    loaded = read_folder(tmp_path / "hf")
    assert loaded.config.encoder.vocab_size == 512
    moved = with_tokenizer(loaded, tokenizer)
    assert moved.same == moved.model.config.encoder.vocab_size == 500


# ----------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_is_refused_in_one_sentence(run: Run, text: Path, tmp_path: Path) -> None:
    def refuses(*words: object, places: tuple[object, ...]) -> None:
        status, out, err = run(*words)
        assert (status, out) == (2, "")
        names(err.splitlines()[-1], *places)
        assert not (tmp_path / "out").exists()

    old, out = train(), ("--out", tmp_path / "out")
    save_litebert(model_of(old), old, tmp_path / "model")
    save_litebert(tiny(), None, tmp_path / "bare")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    model, bare, none = tmp_path / "model", tmp_path / "bare", tmp_path / "none.txt"
    inside, words = model / "new", tmp_path / "vocab.txt"
    transplant = ("adapt", model, "--tokenizer")
    refuses(*transplant, words, *out, places=(words, "[MASK]"))
    refuses(*transplant, none, *out, places=(none,))
    refuses(*transplant, model, "--out", bare, places=(bare,))
    refuses(*transplant, model, "--out", inside, places=(inside,))
    refuses("adapt", bare, "--tokenizer", model, *out, places=(bare,))
    extend = ("adapt", model, *out, "--source")
    refuses(*extend, none, places=(none,))
    refuses("adapt", model, "--source", text, "--out", inside, places=(inside, model))
    assert not inside.exists()
    for option in ("--add-tokens", "--sample-mib"):
        refuses(*extend, text, option, 0, places=(option, 0))
    both = ("--add-tokens", 3, "--other-tokenizer", model)
    refuses("tokenizer", "inspect", text, "--tokenizer", model, *both, places=both[::2])
