"""Model folders of every kind, opened, written and broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from litebert import load
from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import FORMATS
from litebert.change.conversion import convert
from litebert.config import replace
from litebert.interop import LoadedModel
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from toys.folders import checkpoint, save_hf, save_litebert, small_tokenizer, tiny
from toys.refusals import names, refused

IDS = torch.arange(5, 17)[None]


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    first_state, second_state = first.state_dict(), second.state_dict()
    return first_state.keys() == second_state.keys() and all(
        torch.equal(first_state[name], second_state[name]) for name in first_state
    )


# ------------------------------------------------------------------------ litebert folders and runs


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "feedforward": "gated", "positions": "rotary", "bias": False}]
)
def test_own_folder_of_any_point(changes: dict[str, Any], tmp_path: Path) -> None:
    model, tokenizer = tiny(**changes), small_tokenizer()
    save_litebert(model, tokenizer, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert same_weights(model, loaded.model)
    assert loaded.config == model.config
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert (loaded.path, loaded.notes, loaded.untrained, loaded.labels) == (
        tmp_path / "m",
        (),
        (),
        (),
    )
    assert not loaded.model.training


def test_own_task_folder(tmp_path: Path) -> None:
    encoder = tiny().encoder.config
    model = TaskModel(encoder, True, 2)
    config = replace(tiny().config, name="from-a-recipe")
    save_litebert(model, None, tmp_path / "m", config=config, labels=("no", "yes"))
    loaded = load(tmp_path / "m")
    assert same_weights(model, loaded.model)
    assert isinstance(loaded.model, TaskModel)
    assert (loaded.config, loaded.labels, loaded.tokenizer) == (config, ("no", "yes"), None)


def test_own_task_folder_with_a_dense_map(tmp_path: Path) -> None:
    model = TaskModel(tiny(("mlm",), pooler=False).encoder.config, True, 2, "gelu")
    save_litebert(model, None, tmp_path / "m")
    loaded = load(tmp_path / "m").model
    assert isinstance(loaded, TaskModel)
    assert loaded.dense == "gelu"
    assert same_weights(model, loaded)


def test_task_files_from_before_dense_maps(tmp_path: Path) -> None:
    save_litebert(TaskModel(tiny().encoder.config, True, 2), None, tmp_path / "m")
    task = json.loads((tmp_path / "m" / "task.json").read_text())
    assert task.pop("dense") is None
    (tmp_path / "m" / "task.json").write_text(json.dumps(task))
    model = load(tmp_path / "m").model
    assert isinstance(model, TaskModel)
    assert model.dense is None


def test_run_folder_gives_its_newest_whole_checkpoint(
    tmp_path: Path, log_messages: list[str]
) -> None:
    older, newer = tiny(), tiny()
    (tmp_path / "recipe.json").write_text("{}")
    (tmp_path / "checkpoints").mkdir()
    with refused(ModelError, tmp_path):
        load(tmp_path)
    checkpoint(tmp_path, 900, older)
    last = checkpoint(tmp_path, 100000000, newer)  # one digit more than the others
    small_tokenizer().save(tmp_path / "tokenizer")
    loaded = load(tmp_path)
    assert same_weights(newer, loaded.model)
    assert loaded.tokenizer is not None
    assert loaded.notes == ()

    data = bytearray((last / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (last / "model.safetensors").write_bytes(data)
    loaded = load(tmp_path)
    assert same_weights(older, loaded.model)
    [remark] = log_messages
    names(remark, last)

    (tmp_path / "checkpoints" / "step-00000900" / "index.json").unlink()
    with refused(ModelError, tmp_path):
        load(tmp_path)


def test_run_converted_both_ways(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = tiny()
    checkpoint(run, 5, model)
    small_tokenizer().save(run / "tokenizer")
    result = convert(str(run), str(tmp_path / "hf"), to="hf")
    assert (result.path, result.notes) == (tmp_path / "hf", ())
    convert(tmp_path / "hf", tmp_path / "own", to="litebert")
    assert same_weights(model, load(tmp_path / "own").model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    our_tokenizer = load(tmp_path / "own").tokenizer
    assert our_tokenizer is not None
    text = "a model folder with some words"
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == our_tokenizer.encode([text])[0]
    assert (
        tokenizer.pad_token_id
        == transformers.AutoConfig.from_pretrained(tmp_path / "hf").pad_token_id
    )


@pytest.mark.parametrize("offset", [0, 2])
def test_transformers_is_told_how_long_a_text_may_be(offset: int, tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "position_offset": offset,
        "sharing": "none",
        "embedding_size": 8,
        "pooler": False,
        "activation": "gelu",
    }
    pretrained, tokenizer = tiny(("mlm",), **shape), small_tokenizer()
    tagger = TaskModel(pretrained.encoder.config, False, 3)
    save_hf(pretrained, tokenizer, tmp_path / "pretrained")
    save_hf(tagger, tokenizer, tmp_path / "short", task={"length": 9})
    save_hf(tagger, tokenizer, tmp_path / "long", task={"length": 90})
    text = "a model folder with some words " * 9
    for name, longest in (("pretrained", 16), ("short", 9), ("long", 16)):
        peer_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert peer_tokenizer.model_max_length == longest
        ids = peer_tokenizer(text, truncation=True)["input_ids"]
        assert len(ids) == longest
        transformers.AutoModel.from_pretrained(tmp_path / name)(torch.tensor([ids]))
        our_tokenizer = load(tmp_path / name).tokenizer  # which cuts nothing
        assert our_tokenizer is not None
        assert our_tokenizer.fingerprint == tokenizer.fingerprint
        assert our_tokenizer.encode([text]) == tokenizer.encode([text])


def test_a_strangers_classifier_says_what_its_outputs_are(tmp_path: Path) -> None:
    save_hf(TaskModel(tiny().encoder.config, True, 3), None, tmp_path / "hf")
    assert load(tmp_path / "hf").task == {"kind": "sequence", "length": 16}, "all there is room for"
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    settings["problem_type"] = "multi_label_classification"
    (tmp_path / "hf" / "config.json").write_text(json.dumps(settings))
    for longest, read in ((9, 9), (1e30, 16), (None, 16)):
        (tmp_path / "hf" / "tokenizer_config.json").write_text(
            json.dumps({"model_max_length": longest})
        )
        assert load(tmp_path / "hf").task == {
            "kind": "sequence",
            "length": read,
            "problem": "labels",
        }


# ----------------------------------------------------------------------- nothing made up in silence


def test_absent_heads_are_said_and_stay_absent(tmp_path: Path) -> None:
    save_hf(tiny(), None, tmp_path / "bare", head="backbone")
    loaded = load(tmp_path / "bare")
    assert isinstance(loaded.model, Pretrainer)
    assert loaded.untrained == ("mlm",)
    (note,) = loaded.notes
    names(note, tmp_path / "bare", "mlm")
    convert(tmp_path / "bare", tmp_path / "own", to="litebert")
    assert not any(
        name.startswith("objectives") for name in load_file(tmp_path / "own" / "model.safetensors")
    )
    again = load(tmp_path / "own")
    assert again.untrained == ("mlm",)
    assert again.notes
    for opened in (loaded, again):  # theirs is drawn, though all that is read is not
        drawn = [
            weight
            for name, weight in opened.model.named_parameters()
            if name.startswith("objectives.mlm")
        ]
        assert any(weight.std() > 0.01 for weight in drawn if weight.dim() > 1)
    convert(tmp_path / "own", tmp_path / "back", to="hf")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["architectures"] == [
        "AlbertModel"
    ]


def test_sentence_head_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 40,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
    }
    model: Any = transformers.BertForNextSentencePrediction(transformers.BertConfig(**shape))
    model.eval()
    model.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert isinstance(loaded.model, Pretrainer)
    assert (loaded.config.objectives, loaded.untrained) == (("nsp",), ())
    with torch.no_grad():
        expected = model(IDS).logits
        head: Any = loaded.model.objectives["nsp"].head
        logits = head(loaded.model.encoder(IDS).pooled)
    assert (expected - logits).abs().max() <= 1e-5


def test_pytorch_files_are_read_without_unpickling_more_than_tensors(tmp_path: Path) -> None:
    save_hf(tiny(), None, tmp_path / "hf")
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    (tmp_path / "hf" / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "hf" / "pytorch_model.bin")
    assert load(tmp_path / "hf").untrained == ()

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"weight": Trap()}, tmp_path / "hf" / "pytorch_model.bin")
    with refused(ModelError, tmp_path / "hf" / "pytorch_model.bin"):
        load(tmp_path / "hf")
    assert not (tmp_path / "sprung").exists()
    torch.save([1, 2], tmp_path / "hf" / "pytorch_model.bin")
    with refused(ModelError, tmp_path / "hf" / "pytorch_model.bin"):
        load(tmp_path / "hf")


def test_a_classifier_of_unknown_use_is_asked_for(tmp_path: Path) -> None:
    save_hf(TaskModel(tiny().encoder.config, False, 3), None, tmp_path / "hf")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    del settings["architectures"]
    (tmp_path / "hf" / "config.json").write_text(json.dumps(settings))
    with refused(
        ModelError, tmp_path / "hf" / "config.json", "architectures", "AlbertForTokenClassification"
    ):
        load(tmp_path / "hf")
    model = load(tmp_path / "hf", head="tokens").model
    assert isinstance(model, TaskModel)
    assert (model.reads_cls, model.classes) == (False, 3)


def test_a_head_that_reads_the_pooler_needs_it(tmp_path: Path) -> None:
    save_hf(TaskModel(tiny().encoder.config, True, 3), None, tmp_path / "hf")
    drop(tmp_path / "hf", "albert.pooler.weight", "albert.pooler.bias")
    with refused(ModelError, tmp_path / "hf" / "model.safetensors", "albert.pooler.weight"):
        load(tmp_path / "hf")


def test_names_tell_a_classifier_where_they_can(tmp_path: Path) -> None:
    """RoBERTa's classifier of sequences has names of its own; that of tokens shares them with that
    of choices.
    """
    encoder = tiny(
        ("mlm",), position_offset=2, sharing="none", embedding_size=8, pooler=False
    ).encoder.config
    denses: dict[str, Any] = {"sequence": "tanh", "tokens": None}
    for kind, dense in denses.items():
        save_hf(TaskModel(encoder, kind == "sequence", 3, dense), None, tmp_path / kind)
        settings = json.loads((tmp_path / kind / "config.json").read_text())
        del settings["architectures"]
        (tmp_path / kind / "config.json").write_text(json.dumps(settings))
    model = load(tmp_path / "sequence").model
    assert isinstance(model, TaskModel)
    assert (model.reads_cls, model.dense) == (True, "tanh")
    classes = ("RobertaForTokenClassification", "RobertaForMultipleChoice")
    with refused(
        ModelError, tmp_path / "tokens" / "config.json", "architectures", *classes
    ) as caught:
        load(tmp_path / "tokens")
    assert "RobertaForSequenceClassification" not in str(caught.value)


def test_a_pooler_that_the_classifier_does_not_read_is_left_out_and_said(tmp_path: Path) -> None:
    encoder = tiny(
        ("mlm",), position_offset=2, sharing="none", embedding_size=8, pooler=False
    ).encoder.config
    model = TaskModel(encoder, True, 3, "tanh").eval()
    save_hf(model, None, tmp_path / "hf")
    edit_weights(
        tmp_path / "hf",
        lambda tensors: tensors.update(
            {
                "roberta.pooler.dense.weight": torch.ones(8, 8),
                "roberta.pooler.dense.bias": torch.ones(8),
            }
        ),
    )
    loaded = load(tmp_path / "hf")
    (note,) = loaded.notes
    names(note, tmp_path / "hf", "pooler")
    assert same_weights(model, loaded.model)


# ----------------------------------------------------------------------------------- broken folders


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )


def shrink(tensors: dict[str, torch.Tensor]) -> None:
    name = next(
        name for name in tensors if name.endswith(("word_embeddings.weight", "word.weight"))
    )
    tensors[name] = tensors[name][:30].clone()


def drop(folder: Path, *weights: str) -> None:
    edit_weights(folder, lambda tensors: [tensors.pop(name) for name in weights])


def put_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("x")


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


WEIGHTS = "model.safetensors"
BREAKS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "absent": (shutil.rmtree, ("{}",)),
    "a file": (put_file, ("{}",)),
    "empty": (empty, ("{}", "recipe.json", "config.json")),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), ("{}", WEIGHTS, "pytorch_model.bin")),
    "truncated": (
        lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-9]),
        (f"{{}}/{WEIGHTS}",),
    ),
    "junk": (lambda f: (f / WEIGHTS).write_bytes(bytes(range(256)) * 4), (f"{{}}/{WEIGHTS}",)),
    "no bytes": (lambda f: (f / WEIGHTS).write_bytes(b""), (f"{{}}/{WEIGHTS}",)),
    "other shape": (
        lambda f: edit_weights(f, shrink),
        (f"{{}}/{WEIGHTS}", "encoder.embedding.word.weight", "(30, 4)", "(40, 4)"),
    ),
    "extra key": (
        lambda f: edit_weights(f, lambda t: t.update(extra=torch.zeros(1))),
        (f"{{}}/{WEIGHTS}", "extra"),
    ),
    "other vocabulary": (
        lambda f: small_tokenizer(41).save(f / "tokenizer" if (f / "recipe.json").exists() else f),
        ("{}", "41", "40"),
    ),
}
JSON_BREAKS = {"not json": b'{"model_type": ', "binary": b"\xff\xfe\x00", "a list": b"[]"}


@pytest.mark.parametrize("kind", ["hf", "litebert"])
@pytest.mark.parametrize("how", BREAKS)
def test_broken_folders_give_one_sentence(kind: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (save_hf if kind == "hf" else save_litebert)(tiny(), None, folder)
    break_it, places = BREAKS[how]
    break_it(folder)
    with refused(ModelError, *(place.format(folder) for place in places)):
        load(folder)


@pytest.mark.parametrize("kind", ["hf", "litebert"])
@pytest.mark.parametrize("how", JSON_BREAKS)
def test_broken_configs_give_one_sentence(kind: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (save_hf if kind == "hf" else save_litebert)(tiny(), None, folder)
    file = folder / ("config.json" if kind == "hf" else "recipe.json")
    file.write_bytes(JSON_BREAKS[how])
    with refused(ModelError, file):
        load(folder)


def test_an_unreadable_recipe_names_the_field(tmp_path: Path) -> None:
    save_litebert(tiny(), None, tmp_path / "m")
    recipe = json.loads((tmp_path / "m" / "recipe.json").read_text())
    recipe["encoder"]["layer"] = 3
    (tmp_path / "m" / "recipe.json").write_text(json.dumps(recipe))
    with refused(ModelError, tmp_path / "m" / "recipe.json", "encoder.layer", "layers"):
        load(tmp_path / "m")


def test_weights_of_another_recipe(tmp_path: Path) -> None:
    save_litebert(tiny(), None, tmp_path / "m")
    drop(tmp_path / "m", "objectives.sop.head.classifier.bias")
    with refused(ModelError, tmp_path / "m" / WEIGHTS, "objectives.sop.head.classifier.bias"):
        load(tmp_path / "m", engine="torch")
    with refused(ModelError, tmp_path / "m" / WEIGHTS, "16 numbers", "objectives.sop", "18"):
        load(tmp_path / "m")


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize(
    "weight", ["dense.weight", "dense.bias", "classifier.weight", "classifier.bias"]
)
@pytest.mark.parametrize("how", ["absent", "longer"])
def test_a_head_of_other_weights(engine: str, weight: str, how: str, tmp_path: Path) -> None:
    model = TaskModel(tiny(("mlm",), pooler=False).encoder.config, True, 3, "tanh")
    save_litebert(model, None, tmp_path / "m")
    if how == "absent":
        drop(tmp_path / "m", f"head.{weight}")
    else:
        edit_weights(
            tmp_path / "m",
            lambda t: t.update({f"head.{weight}": torch.cat([t[f"head.{weight}"]] * 2, -1)}),
        )
    with refused(ModelError, tmp_path / "m" / WEIGHTS, f"head.{weight}"):
        load(tmp_path / "m", engine=engine)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_head_for_masks_of_another_shape(engine: str, tmp_path: Path) -> None:
    save_litebert(tiny(("mlm",)), None, tmp_path / "m")
    name = "objectives.mlm.head.dense.weight"  # as many numbers, the other way round
    edit_weights(tmp_path / "m", lambda t: t.update({name: t[name].T}))
    with refused(ModelError, tmp_path / "m" / WEIGHTS, name, "(8, 4)", "(4, 8)"):
        load(tmp_path / "m", engine=engine)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("kind", "sequences", ("'sequences'", "'sequence'")),
        ("classes", 0, ("0",)),
        ("labels", ["one"], ("2",)),
        ("dense", "tan", ("'tan'", "'tanh'")),
        ("dense", [], ("[]", "tanh", "gelu")),
        ("problem", "label", ("'label'", "'labels'")),
        ("length", 0, ("0",)),
        ("length", "64", ("'64'",)),
    ],
)
def test_a_broken_task_file(key: str, value: Any, named: tuple[str, ...], tmp_path: Path) -> None:
    save_litebert(TaskModel(tiny().encoder.config, True, 2), None, tmp_path / "m")
    file = tmp_path / "m" / "task.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with refused(ModelError, file, key, *named):
        load(tmp_path / "m")


# ------------------------------------------------------------------------------------------ writing


def test_a_destination_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    save_litebert(tiny(), None, tmp_path / "m")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("years of work")
    for to in ("hf", "litebert"):
        with refused(ModelError, tmp_path / "taken"):
            convert(tmp_path / "m", tmp_path / "taken", to=to)
    assert (tmp_path / "taken" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    convert(tmp_path / "m", tmp_path / "empty", to="hf")
    assert load(tmp_path / "empty").untrained == ()


def test_weights_are_as_readable_as_the_rest(tmp_path: Path) -> None:
    save_hf(tiny(), None, tmp_path / "m")
    modes = {file.stat().st_mode & 0o444 for file in (tmp_path / "m").iterdir()}
    assert len(modes) == 1


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("litebert.interop.files.save_file", full)
    with refused(ModelError, tmp_path / "m", "No space left on device"):
        save_litebert(tiny(), None, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_refused_requests(tmp_path: Path) -> None:
    save_litebert(tiny(("mlm",)), None, tmp_path / "m")
    with refused(ConfigError, "HF", *FORMATS):
        convert(tmp_path / "m", tmp_path / "x", to="HF")
    with refused(ModelError, "pretraining", "backbone", "mlm"):
        convert(tmp_path / "m", tmp_path / "x", to="hf", head="pretraining")
    save_litebert(tiny(norm="pre", bias=False), None, tmp_path / "pre")
    with refused(ModelError, "encoder.norm=pre", "encoder.bias=False"):
        convert(tmp_path / "pre", tmp_path / "x", to="hf")
    assert not (tmp_path / "x").exists()


def test_a_format_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(loaded: LoadedModel, folder: Path, head: str | None) -> tuple[str, ...]:
        folder.write_text(str(sum(parameter.numel() for parameter in loaded.model.parameters())))
        return (f"without {head}",)

    monkeypatch.setattr(FORMATS, "_parts", dict(FORMATS._parts))
    FORMATS.add("count", count)
    save_litebert(tiny(), None, tmp_path / "m")
    assert convert(tmp_path / "m", tmp_path / "x", to="count", head="mlm").notes == ("without mlm",)
    assert int((tmp_path / "x").read_text()) == sum(
        parameter.numel() for parameter in tiny().parameters()
    )
