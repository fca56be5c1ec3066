"""ModernBERT folders: windows, long texts, shared blocks, both spellings of config.json, and our
verbs over them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from litebert import load
from litebert.base.errors import ModelError
from litebert.change.conversion import convert
from litebert.finetuning.initial import build_task_model, load_initial
from litebert.interop.hf.families import MODERNBERT
from litebert.interop.hf.settings import settings_of
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.recipes.files import recipe
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.families import (
    HEADS,
    MODERN,
    assert_equal_outputs,
    build_litebert,
    build_peer,
    generator_outputs,
    inputs,
    our_outputs,
    point,
    randomize,
    reopen,
    their_outputs,
)
from toys.finetuning import config, write_table
from toys.folders import save_hf, save_litebert
from toys.refusals import refused
from toys.tasks import Table

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]
SAME: dict[str, Any] = {**MODERN, "embedding_size": 32, "sharing": "none"}
WINDOW: dict[str, Any] = {
    "window": 4,
    "global_every": 2,
    "rotary_base": 900.0,
    "window_rotary_base": 30.0,
}


def outputs(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of a model of ours or theirs."""
    return (
        our_outputs(model, batch)
        if isinstance(model, (Pretrainer, TaskModel))
        else their_outputs(model, batch)
    )


# ---------------------------------------------------------------------------------------- both ways


@pytest.mark.parametrize("head", HEADS["ModernBert"])
def test_a_long_text_and_a_padded_one(head: str, tmp_path: Path) -> None:
    """Theirs and ours, over windows much shorter than the text."""
    shape = {
        "hidden_size": 16,
        "num_attention_heads": 1,
        "intermediate_size": 16,
        "max_position_embeddings": 2048,
    }
    model = build_peer("ModernBert", head, **shape, local_attention=128)
    model.save_pretrained(tmp_path / "theirs")
    ids = torch.randint(5, 61, (2, 2048), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(2048) < torch.tensor([[2048], [700]])).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    expected = their_outputs(model, batch)
    loaded = load(tmp_path / "theirs")
    assert loaded.config.encoder.window_map() == (False, True, True, False)
    assert_equal_outputs(
        expected, our_outputs(loaded.model, batch), ignore=("mlm",) if head == "backbone" else ()
    )
    convert(tmp_path / "theirs", tmp_path / "back", to="hf")
    before, after = model.state_dict(), reopen(tmp_path / "back").state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


POINTS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    # what changes, words of the notes
    ({}, ()),
    (WINDOW, ()),
    ({**WINDOW, "global_every": 9, "activation": "gelu"}, ()),
    ({"activation": "silu", "rotary_base": 100.0}, ()),
    ({"activation": "relu"}, ()),
    ({"untied": True}, ()),
    ({"untied": True, "embedding_size": 16}, ("their product",)),
    ({"bias": True, "embedding_size": 16}, ("their product",)),
    ({"embedding_size": 16}, ("their product",)),
    ({"always_project": True}, ("their product",)),
    ({"sharing": "all", "embedding_size": 8, **WINDOW}, ("their product", "written 4 times")),
    ({"sharing": "groups", "groups": 2}, ("written 4 times",)),
    ({"sharing": "groups", "groups": 3}, ("written 4 times",)),
    ({"sharing": "attention", **WINDOW}, ("written 4 times",)),
    ({"sharing": "feedforward"}, ("written 4 times",)),
    ({"sharing": "groups", "groups": 2, **WINDOW}, ("written 4 times",)),
    ({"sharing": "all", "layers": 1}, ()),
    ({"embedding_norm": "before"}, ()),
]


@pytest.mark.parametrize(("changes", "words"), POINTS, ids=str)
def test_our_pretrained_model_opens_there_and_comes_back(
    changes: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    model = build_litebert(("mlm",), **{**SAME, **changes})
    shape = model.config.encoder
    notes = save_hf(model, None, tmp_path / "hf")
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == "ModernBertForMaskedLM"
    batch, expected = inputs(types=0), our_outputs(model, inputs(types=0))
    assert_equal_outputs(expected, their_outputs(opened, batch))
    back = load(tmp_path / "hf")
    assert_equal_outputs(expected, our_outputs(back.model, batch))
    encoder = back.config.encoder
    sharing, groups = ("none", 1) if shape.layers == 1 else (shape.sharing, shape.groups)
    assert (encoder.sharing, encoder.groups) == (sharing, groups)
    assert bool(back.notes) == (encoder.sharing != "none")
    assert (encoder.window, encoder.window_map(), encoder.embedding_size) == (
        shape.window,
        shape.window_map(),
        32,
    )
    save_hf(back.model, None, tmp_path / "again")
    before, after = opened.state_dict(), reopen(tmp_path / "again").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    "changes", [{}, {"sharing": "all", "embedding_size": 8, **WINDOW}], ids=str
)
@pytest.mark.parametrize("kind", ["sequence", "tokens", "span", "choice"])
def test_our_task_model_opens_there_and_comes_back(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    classes = {"sequence": 3, "tokens": 5, "span": 2, "choice": 1}[kind]
    model = TaskModel(point(**{**SAME, **changes}), kind in ("sequence", "choice"), classes).eval()
    randomize(model)
    names = {"sequence": ("no", "maybe", "yes"), "tokens": tuple("ABCDE")}.get(kind, ())
    save_litebert(model, None, tmp_path / "own", labels=names, task={"kind": kind})
    assert len(convert(tmp_path / "own", tmp_path / "hf", to="hf").notes) == (2 if changes else 0)
    opened, batch = reopen(tmp_path / "hf"), inputs(types=0)
    assert type(opened).__name__ == "ModernBert" + HEADS["ModernBert"][kind]
    assert_equal_outputs(our_outputs(model, batch), their_outputs(opened, batch))
    back = load(tmp_path / "hf")
    assert isinstance(back.model, TaskModel)
    assert (back.task["kind"], back.model.classes, back.labels) == (kind, classes, names)
    assert_equal_outputs(our_outputs(model, batch), our_outputs(back.model, batch))


@pytest.mark.parametrize("kind", ["sequence", "choice"])
def test_a_mean_over_the_tokens_goes_both_ways(kind: str, tmp_path: Path) -> None:
    model, batch = build_peer("ModernBert", kind, classifier_pooling="mean"), inputs(types=0)
    model.save_pretrained(tmp_path / "theirs")
    expected = their_outputs(model, batch)
    assert (
        expected["task"] - their_outputs(build_peer("ModernBert", kind), batch)["task"]
    ).abs().max() > 0.01
    convert(tmp_path / "theirs", tmp_path / "own", to="litebert")
    convert(tmp_path / "own", tmp_path / "back", to="hf")
    assert_equal_outputs(expected, our_outputs(load(tmp_path / "own").model, batch))
    assert_equal_outputs(expected, their_outputs(reopen(tmp_path / "back"), batch))
    assert reopen(tmp_path / "back").config.classifier_pooling == "mean"


def test_biases_everywhere_go_both_ways(tmp_path: Path) -> None:
    biases = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
    model, batch = build_peer("ModernBert", "mlm", **biases), inputs(types=0)
    model.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "own", to="litebert")
    convert(tmp_path / "own", tmp_path / "back", to="hf")
    assert_equal_outputs(
        their_outputs(model, batch), our_outputs(load(tmp_path / "own").model, batch)
    )
    before, after = model.state_dict(), reopen(tmp_path / "back").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("problem", ["classes", "labels", "number"])
def test_what_the_outputs_are_goes_along(problem: str, tmp_path: Path) -> None:
    model = TaskModel(point(**SAME), True, 1 if problem == "number" else 3)
    save_hf(model, None, tmp_path, task={"kind": "sequence", "problem": problem})
    assert load(tmp_path).task["problem"] == problem


@pytest.mark.parametrize(
    ("objectives", "changes", "name", "left_out"),
    [
        (("mlm", "sop"), {"pooler": True}, "ModernBertForMaskedLM", ("pooler", "sentence head")),
        (("mlm", "sbo"), {}, "ModernBertForMaskedLM", ("sbo head",)),
        (("mlm", "rtd"), {}, "ModernBertModel", ("generator", "rtd head")),
        (
            ("sop",),
            {"pooler": True, "prediction": "embedding"},
            "ModernBertModel",
            ("pooler", "sentence head"),
        ),
    ],
)
def test_heads_that_have_no_place_there_are_left_out_with_a_note(
    objectives: tuple[str, ...],
    changes: dict[str, Any],
    name: str,
    left_out: tuple[str, ...],
    tmp_path: Path,
) -> None:
    model = build_litebert(objectives, **{**SAME, **changes})
    notes = save_hf(model, None, tmp_path)
    assert all(any(words in note for note in notes) for words in left_out)
    opened, batch = reopen(tmp_path), inputs(types=0)
    assert type(opened).__name__ == name
    opened_outputs = their_outputs(opened, batch)
    assert_equal_outputs(
        {key: our_outputs(model, batch)[key] for key in opened_outputs}, opened_outputs
    )


@pytest.mark.parametrize("size", [8, 16, 32])
def test_a_generator_has_a_folder_of_its_own(size: int, tmp_path: Path) -> None:
    """Its hidden size is 8: either of the two has a map from the table, or both."""
    model, batch = (
        build_litebert(("mlm", "rtd"), **{**SAME, "embedding_size": size}),
        inputs(types=0),
    )
    save_hf(model, None, tmp_path / "generator", head="mlm")
    opened = reopen(tmp_path / "generator")
    assert (type(opened).__name__, opened.config.hidden_size) == ("ModernBertForMaskedLM", 8)
    assert_equal_outputs(generator_outputs(model, batch), their_outputs(opened, batch))
    save_hf(model, None, tmp_path / "model")
    opened_outputs = their_outputs(reopen(tmp_path / "model"), batch)
    assert_equal_outputs(
        {name: our_outputs(model, batch)[name] for name in opened_outputs}, opened_outputs
    )


# -------------------------------------------------------------------- config.json in both spellings

OLDER = {"global_attn_every_n_layers": 3, "global_rope_theta": 900.0, "local_rope_theta": 30.0}
ROPE = {"rope_type": "default", "rope_theta": 900.0}
NEWER = ("layer_types", "rope_parameters")


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of theirs, as version 5 writes it."""
    folder = tmp_path_factory.mktemp("saved") / "theirs"
    bases = {"full_attention": {**ROPE}, "sliding_attention": {**ROPE, "rope_theta": 30.0}}
    build_peer("ModernBert", "mlm", rope_parameters=bases).save_pretrained(folder)
    return folder


def edit_config(
    saved_folder: Path, folder: Path, drop: Collection[str] = (), **changes: Any
) -> Path:
    """A copy of a folder with another config.json."""
    shutil.copytree(saved_folder, folder)
    settings = json.loads((folder / "config.json").read_text())
    remaining = {key: value for key, value in settings.items() if key not in drop}
    (folder / "config.json").write_text(json.dumps({**remaining, **changes}))
    return folder


def test_both_spellings_mean_the_same(saved_folder: Path, tmp_path: Path) -> None:
    first = load(edit_config(saved_folder, tmp_path / "old", drop=NEWER, **OLDER)).config.encoder
    second = load(edit_config(saved_folder, tmp_path / "new", drop=OLDER)).config.encoder
    assert first == second
    assert (first.window, first.global_every, first.rotary_base, first.window_rotary_base) == (
        5,
        3,
        900.0,
        30.0,
    )
    alike = load(
        edit_config(
            saved_folder, tmp_path / "alike", drop=NEWER, **{**OLDER, "local_rope_theta": None}
        )
    ).config.encoder
    assert alike.window_rotary_base == 900.0, "null once meant the base of the other layers"
    absent = load(
        edit_config(saved_folder, tmp_path / "absent", drop=(*NEWER, *OLDER, "local_attention"))
    ).config.encoder
    assert (absent.window, absent.global_every, absent.rotary_base) == (128, 3, 160000.0)
    everywhere = load(
        edit_config(saved_folder, tmp_path / "full", layer_types=["full_attention"] * 4)
    ).config.encoder
    assert (everywhere.window, everywhere.global_every) == (0, 1)
    once = ["full_attention", *["sliding_attention"] * 3]
    assert load(
        edit_config(saved_folder, tmp_path / "once", layer_types=once)
    ).config.encoder.window_map() == (
        False,
        True,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"attention_bias": True}, ("attention_bias=True", "mlp_bias=False", "norm_bias=False")),
        (
            {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
            ("norm_bias=True", "classifier_bias=False"),
        ),
        ({"mlp_bias": "yes"}, ("mlp_bias='yes'",)),
        ({"classifier_pooling": "max"}, ("classifier_pooling='max'", "mean")),
        ({"decoder_bias": False}, ("decoder_bias=False", "True")),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ("rope_scaling",)),
        (
            {"hidden_activation": "silu"},
            ("classifier_activation='gelu'", "hidden_activation='silu'"),
        ),
        ({"hidden_activation": "gely"}, ("hidden_activation='gely'", "'gelu'")),
        ({"local_attention": 1}, ("local_attention=1", 2)),
        ({"layer_types": ["full_attention"] * 3}, ("layer_types", 4)),
        ({"layer_types": ["sliding_attention"] * 4}, ("layer_types", "full_attention")),
        (
            {"layer_types": [f"{kind}_attention" for kind in ("full", "sliding", "full", "full")]},
            ("layer_types",),
        ),
        (
            {"layer_types": None, "global_attn_every_n_layers": 0},
            ("global_attn_every_n_layers=0", 1),
        ),
        (
            {"rope_parameters": {"full_attention": {**ROPE, "rope_type": "yarn"}}},
            ("full_attention.rope_type='yarn'",),
        ),
        (
            {"rope_parameters": {"sliding_attention": {**ROPE, "rope_theta": "x"}}},
            ("sliding_attention", "rope_theta"),
        ),
        (
            {"rope_parameters": ROPE},
            ("rope_parameters.rope_theta", "full_attention", "sliding_attention"),
        ),
        ({"rope_parameters": 3}, ("rope_parameters=3",)),
        ({"rope_parameters": None, "global_rope_theta": 0.5}, ("encoder.rotary_base", 1)),
    ],
    ids=str,
)
def test_what_cannot_be_computed_is_refused_by_name(
    changes: dict[str, Any], places: tuple[object, ...], saved_folder: Path, tmp_path: Path
) -> None:
    with refused(ModelError, tmp_path / "m" / "config.json", *places):
        load(edit_config(saved_folder, tmp_path / "m", **changes))


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        (
            {"embedding_norm": "before", "embedding_size": 16},
            ("ModernBertModel", "encoder.embedding_norm=before", "encoder.norm=pre"),
        ),
        ({"first_norm": True}, ("encoder.first_norm=True",)),
        ({"feedforward": "plain"}, ("encoder.feedforward=plain",)),
        ({"prediction": "embedding"}, ("encoder.prediction=embedding",)),
        ({"segment_types": 2}, ("encoder.segment_types=2",)),
        ({"positions": "learned"}, ("encoder.positions=learned",)),
    ],
    ids=str,
)
def test_what_no_class_computes_is_not_written(
    changes: dict[str, Any], places: tuple[object, ...], tmp_path: Path
) -> None:
    with refused(ModelError, *places):
        save_hf(build_litebert(("mlm",), **{**SAME, **changes}), None, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("modernbert-base", {}),
        (
            "modernbert-large",
            {
                "hidden_size": 1024,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "intermediate_size": 2624,
            },
        ),
    ],
)
def test_the_recipes_are_the_shapes_of_their_class(name: str, shape: dict[str, Any]) -> None:
    """The class has base's shape by default."""
    written = settings_of(MODERNBERT, recipe(name).encoder, "mlm", None, (), 0.0)
    our_settings, released = (
        transformers.ModernBertConfig(**written),
        transformers.ModernBertConfig(**shape),
    )
    for key in (
        *written.keys() - {"architectures", "dtype", "classifier_dropout"},
        "layer_types",
        "rope_parameters",
    ):
        if not key.endswith("_token_id") and hasattr(released, key):
            assert getattr(our_settings, key) == getattr(released, key), key


# ------------------------------------------------------------------------- folders with a tokenizer


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_pipelines_give_the_answers_of_our_verbs(
    kind: Any, tiny_corpus: Path, run: Callable[..., Output], tmp_path: Path
) -> None:
    documents = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    words = train_tokenizer(documents, kind=kind, vocab_size=400)
    shape = {
        **MODERN,
        **WINDOW,
        "sharing": "all",
        "vocab_size": words.vocab_size,
        "max_positions": 64,
    }
    model = build_litebert(("mlm",), **shape)
    save_litebert(model, words, tmp_path / "own")
    assert run("convert", tmp_path / "own", "--out", tmp_path / "hf", "--to", "hf")[0] == 0
    peer_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    texts = [
        " ".join(document.split()[:number]) for number, document in enumerate(documents[:8], 3)
    ]
    assert set(peer_tokenizer(texts)) == {"input_ids", "attention_mask"}
    ours_there = load(tmp_path / "hf")

    (guesses,) = ours_there.fill_mask(f"{texts[0]} [MASK]", top=3)
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "hf"), top_k=3)
    for guess, expected in zip(
        guesses, fill(f"{texts[0]} {peer_tokenizer.mask_token}"), strict=True
    ):
        assert guess.id == expected["token"]
        assert guess.probability == pytest.approx(expected["score"], abs=1e-5)

    network = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    batch = peer_tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = network(**batch).last_hidden_state
    real = batch["attention_mask"][..., None]
    means = (states * real).sum(1) / real.sum(1)
    assert torch.tensor(ours_there.encode(texts)) == pytest.approx(means, abs=1e-5)


def test_their_folder_is_fine_tuned_and_leaves_again(
    tiny_tokenizer: Path, run: Callable[..., Output], tmp_path: Path
) -> None:
    words, source = Tokenizer.load(tiny_tokenizer), tmp_path / "theirs"
    pretrained = build_peer(
        "ModernBert", "mlm", vocab_size=words.vocab_size, max_position_embeddings=64
    )
    pretrained.save_pretrained(source)
    words.save(source, token_types=False)
    train, dev = (
        write_table(tmp_path / "train.csv", 24),
        write_table(tmp_path / "dev.csv", 8, seed=1),
    )
    started = build_task_model(load_initial(source), Table(train, dev), config())
    assert torch.equal(started.head.state_dict()["dense.weight"], pretrained.head.dense.weight)
    assert torch.equal(started.head.state_dict()["norm.weight"], pretrained.head.norm.weight)

    files = ("--data", train, "--dev", dev, "--text-column", "text", "--label-column", "label")
    assert (
        run(
            "finetune", source, "--task", "table", *files, "--epochs", 1, "--out", tmp_path / "run"
        )[0]
        == 0
    )
    assert run("convert", tmp_path / "run", "--out", tmp_path / "hf", "--to", "hf")[0] == 0
    classify: Any = transformers.pipeline(
        "text-classification", model=str(tmp_path / "hf"), top_k=None
    )
    texts = ["bado kumi", "fero lana tipu", "du"]
    for folder in ("run", "hf"):
        for answer, expected in zip(
            load(tmp_path / folder).predict(texts), classify(texts), strict=True
        ):
            assert answer["prediction"] == expected[0]["label"]
            assert answer["probabilities"] == pytest.approx(
                {e["label"]: e["score"] for e in expected}, abs=2e-5
            )
