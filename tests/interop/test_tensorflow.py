"""Original TensorFlow checkpoints of three families compute what the models of `transformers` that
they hold do.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from litebert import load
from litebert.base.errors import MissingExtraError, ModelError
from litebert.interop import read_folder
from litebert.interop.files import to_tensor
from litebert.interop.tensorflow.bundle import Bundle
from litebert.model.pretrainer import Pretrainer
from toys.bundles import NUMBERS, _bytes, checksum, table, variables, write_bundle, write_config
from toys.families import (
    assert_equal_outputs,
    build_peer,
    generator_outputs,
    inputs,
    our_outputs,
    reopen,
    their_outputs,
)
from toys.folders import small_tokenizer
from toys.refusals import names, refused

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]
ALBERT = ("embedding_size", "num_hidden_groups", "inner_group_num")


def bert(folder: Path, head: str = "pretraining", **changes: Any) -> Any:
    """A checkpoint as BERT's archives have them, and the model in it."""
    model = build_peer("Bert", head, **changes)
    write_bundle(folder / "bert_model.ckpt", variables("Bert", model.state_dict()))
    write_config(folder / "bert_config.json", model)
    return model


def albert(folder: Path, head: str = "pretraining", hub: bool = False, **changes: Any) -> Any:
    """A checkpoint as ALBERT's archives, or TF-Hub, have them; its one `gelu` is the approximation
    by tanh.
    """
    model = build_peer("Albert", head, hidden_act="gelu_new", **changes)
    held = variables("Albert", model.state_dict(), slots=not hub)
    if model.config.embedding_size == model.config.hidden_size:  # their code has no map then
        project = "bert/encoder/embedding_hidden_mapping_in"
        held = {name: tensor for name, tensor in held.items() if not name.startswith(project)}
        with torch.no_grad():
            backbone = getattr(model, "albert", model)
            backbone.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(32))
            backbone.encoder.embedding_hidden_mapping_in.bias.zero_()
    if hub:
        write_bundle(
            folder / "variables" / "variables",
            {f"module/{name}": tensor for name, tensor in held.items()},
        )
    else:
        write_bundle(folder / "model.ckpt-best", held)
    config = folder / "assets" / "albert_config.json" if hub else folder / "albert_config.json"
    write_config(config, model, *ALBERT, hidden_act="gelu", net_structure_type=0)
    return model


CASES: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (bert, {}),
    (bert, {"type_vocab_size": 3, "hidden_act": "relu"}),
    (albert, {}),
    (albert, {"num_hidden_groups": 2}),
    (albert, {"num_hidden_groups": 4, "embedding_size": 32}),
    (albert, {"hub": True}),
]


@pytest.mark.parametrize(
    ("write", "changes"), CASES, ids=lambda case: getattr(case, "__name__", str(case))
)
def test_a_checkpoint_of_the_time_converts(
    write: Callable[..., Any], changes: dict[str, Any], run: Callable[..., Output], tmp_path: Path
) -> None:
    model = write(tmp_path / "old", **changes)
    code, _, heard = run("convert", tmp_path / "old", "--out", tmp_path / "new", "--to", "hf")
    assert code == 0, heard
    opened = reopen(tmp_path / "new")
    assert type(opened) is type(model)
    batch = inputs(types=model.config.type_vocab_size)
    expected = their_outputs(model, batch)
    assert_equal_outputs(expected, their_outputs(opened, batch))
    loaded = load(tmp_path / "old")
    assert_equal_outputs(expected, our_outputs(loaded.model, batch))
    assert loaded.tokenizer is None
    parameters = sum(
        "adam" not in name and name != "global_step"
        for name in Bundle.open(_index(tmp_path / "old")).entries
    )
    assert ("hub" in changes) or any(
        f"{2 * parameters + 1} variables" in note for note in loaded.notes
    )


@pytest.mark.parametrize("head", ["sequence", "span", "choice"])
@pytest.mark.parametrize("write", [bert, albert])
def test_a_fine_tuned_checkpoint(write: Callable[..., Any], head: Any, tmp_path: Path) -> None:
    model = write(tmp_path, head)
    loaded: Any
    if head == "span":
        loaded = load(tmp_path)
    else:  # one row of scores or several say nothing of what they are for
        with refused(ModelError, "architectures"):
            load(tmp_path)
        loaded = read_folder(tmp_path, head)
    assert loaded.task["kind"] == head
    assert_equal_outputs(
        their_outputs(model, inputs()), our_outputs(loaded.model, inputs()), ignore=("pooled",)
    )


@pytest.mark.parametrize(
    ("width", "changes"), [(8, {}), (32, {}), (16, {"embedding_size": 32})], ids=str
)
def test_electra_with_its_generator(
    width: int, changes: dict[str, Any], run: Callable[..., Output], tmp_path: Path
) -> None:
    """Without a config file, as it was published: heads are 64 wide, and in models this small there
    is one.
    """
    shape = {"num_attention_heads": 1, **changes}
    discriminator = build_peer("Electra", "discriminator", **shape)
    generator_shape = {"hidden_size": width, "intermediate_size": round(48 * width / 32)}
    generator = build_peer("Electra", "mlm", **{**shape, **generator_shape})
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    held = variables("Electra", discriminator.state_dict())
    for name, tensor in variables("Electra", generator.state_dict()).items():
        if not name.startswith("electra/embeddings/"):
            held[name.replace("electra/", "generator/", 1)] = tensor
    write_bundle(tmp_path / "old" / "electra_small", held, shards=2)

    loaded = load(tmp_path / "old")
    assert isinstance(loaded.model, Pretrainer)
    assert (loaded.config.objectives, loaded.untrained) == (("mlm", "rtd"), ())
    assert any("num_attention_heads=1" in note for note in loaded.notes)
    expected = {
        "discriminator": their_outputs(discriminator, inputs()),
        "mlm": their_outputs(generator, inputs()),
    }
    assert_equal_outputs(expected["discriminator"], our_outputs(loaded.model, inputs()))
    assert_equal_outputs(expected["mlm"], generator_outputs(loaded.model, inputs()))
    for head, outputs in expected.items():
        code, _, heard = run(
            "convert", tmp_path / "old", "--out", tmp_path / head, "--to", "hf", "--head", head
        )
        assert code == 0, heard
        assert_equal_outputs(outputs, their_outputs(reopen(tmp_path / head), inputs()))


def test_albert_from_the_hub_without_its_config_has_the_published_shape(tmp_path: Path) -> None:
    shape = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "embedding_size": 128,
        "num_attention_heads": 12,
    }
    model = build_peer("Albert", "backbone", hidden_act="gelu_new", **shape)
    held = variables(
        "Albert",
        {f"albert.{name}": tensor for name, tensor in model.state_dict().items()},
        slots=False,
    )
    write_bundle(tmp_path / "variables" / "variables", held, crc=google_crc32c.value)
    loaded = load(tmp_path)
    encoder = loaded.config.encoder
    assert (encoder.layers, encoder.heads, encoder.sharing, encoder.activation) == (
        12,
        12,
        "all",
        "gelu_tanh",
    )
    assert any("num_attention_heads=12" in note for note in loaded.notes)
    shutil.rmtree(tmp_path / "variables")
    held["bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense/kernel"] = (
        torch.zeros(768, 5)
    )
    write_bundle(tmp_path / "variables" / "variables", held, crc=google_crc32c.value)
    with refused(ModelError, "variables.index", "albert_config.json"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["vocab.txt", "30k-clean.model"])
def test_the_vocabulary_beside_it_is_its_tokenizer(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "old"
    if kind == "vocab.txt":
        bert(place)
        (place / kind).write_text(
            "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "model", "##s"])
        )
    else:
        albert(place, hub=True)
        small_tokenizer().save(tmp_path / "tokenizer")
        shutil.copy(tmp_path / "tokenizer" / "spiece.model", place / "assets" / kind)
        (place / "assets" / "30k-clean.vocab").write_text("a list for people\n")
    tokenizer = load(place).tokenizer
    assert tokenizer is not None
    expected = ["a", "model", "##s"] if kind == "vocab.txt" else None
    pieces = [tokenizer.get_token(i) for i in tokenizer.encode(["A models"])[0]]
    assert pieces == (
        expected
        or [small_tokenizer().get_token(i) for i in small_tokenizer().encode(["a models"])[0]]
    )


# ---------------------------------------------------------------------------------- what is refused


def _index(folder: Path) -> Path:
    return next(folder.rglob("*.index"))


def test_what_is_not_understood_is_listed_and_nothing_written(
    run: Callable[..., Output], tmp_path: Path
) -> None:
    model = build_peer("Bert", "pretraining")
    held = variables("Bert", model.state_dict())
    write_config(tmp_path / "old" / "bert_config.json", model)
    write_bundle(
        tmp_path / "old" / "x.ckpt",
        {**held, "bert/extra/kernel": torch.ones(2, 2), "start_logits/bias": torch.ones(2)},
    )
    code, _, heard = run("convert", tmp_path / "old", "--out", tmp_path / "new", "--to", "hf")
    assert code == 2
    names(heard, tmp_path / "old" / "x.ckpt.index", "bert/extra/kernel", "start_logits/bias")
    assert not (tmp_path / "new").exists()

    write_bundle(
        tmp_path / "old" / "x.ckpt",
        {f"{name}/.ATTRIBUTES/VARIABLE_VALUE": tensor for name, tensor in held.items()},
    )
    with refused(ModelError, "x.ckpt.index", "TensorFlow 2"):
        load(tmp_path / "old")
    short = {name: tensor for name, tensor in held.items() if "layer_3/" not in name}
    write_bundle(tmp_path / "old" / "x.ckpt", short)
    with refused(ModelError, "x.ckpt.index", "bert.encoder.layer.3.attention.self.query.weight"):
        load(tmp_path / "old")


def test_damage_is_said_in_a_sentence(tmp_path: Path) -> None:
    bert(tmp_path)
    index, data = (
        tmp_path / "bert_model.ckpt.index",
        tmp_path / "bert_model.ckpt.data-00000-of-00001",
    )
    whole, numbers = index.read_bytes(), data.read_bytes()
    entry = Bundle.open(index).entries["bert/pooler/dense/kernel"]

    data.write_bytes(numbers[: entry.offset + 5])
    with refused(ModelError, data):
        load(tmp_path)
    data.write_bytes(
        numbers[: entry.offset] + bytes([numbers[entry.offset] ^ 1]) + numbers[entry.offset + 1 :]
    )
    with refused(ModelError, data, "bert/pooler/dense/kernel"):
        load(tmp_path)
    data.unlink()
    with refused(ModelError, data, "bert_model.ckpt.index"):
        load(tmp_path)
    data.write_bytes(numbers)
    for bad in (
        b"",
        whole[:-1],
        whole[: len(whole) // 2],
        b"no table" * 20,
        whole[:9] + bytes([whole[9] ^ 4]) + whole[10:],
    ):
        index.write_bytes(bad)
        with refused(ModelError, index):
            load(tmp_path)
    index.write_bytes(table({b"x": b"\xff"}))
    with refused(ModelError, index):
        load(tmp_path)


def test_kinds_of_entries_that_cannot_be_read(tmp_path: Path) -> None:
    model = build_peer("Bert", "mlm")
    held = variables("Bert", model.state_dict(), slots=False)
    write_config(tmp_path / "bert_config.json", model)
    name = "bert/embeddings/word_embeddings"

    def only(change: Callable[[bytes], bytes]) -> Callable[[str, bytes], bytes]:
        return lambda key, value: change(value) if key == name else value

    changes = {
        "slices": lambda value: value + _bytes(7, b""),
        "7": lambda value: b"\x08\x07" + value[2:],
        "shape": lambda value: value + _bytes(2, _bytes(2, b"\x08\x05")),
    }
    for word, change in changes.items():
        write_bundle(tmp_path / "x", held, entry=only(change))
        with refused(ModelError, tmp_path / "x.index", name, word):
            load(tmp_path)
    write_bundle(tmp_path / "x", {**held, name: held[name].int()})
    with refused(ModelError, tmp_path / "x.index", name, "int32"):
        load(tmp_path)
    write_bundle(tmp_path / "x", held, header=b"\x10\x01")
    with refused(ModelError, tmp_path / "x.index", "big-endian"):
        load(tmp_path)


def test_of_several_checkpoints_the_named_one_is_read(tmp_path: Path) -> None:
    model = bert(tmp_path)
    write_bundle(
        tmp_path / "bert_model.ckpt-7",
        variables("Bert", build_peer("Bert", "backbone").state_dict()),
    )
    with refused(ModelError, tmp_path, "bert_model.ckpt-7.index"):
        load(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/tmp/there/bert_model.ckpt"\n')
    assert_equal_outputs(
        their_outputs(model, inputs()), our_outputs(load(tmp_path).model, inputs())
    )
    model.save_pretrained(tmp_path)  # weights of PyTorch beside it are the folder's
    assert not any("optimizer" in note for note in load(tmp_path).notes)
    assert load(tmp_path).config.name == tmp_path.name


# --------------------------------------------------------------------------------------- the format


def test_checksums_of_the_tests_are_those_of_the_standard() -> None:
    assert (checksum(b"123456789"), checksum(bytes(32))) == (
        0xE3069283,
        0x8A9136AA,
    )  # RFC 3720, appendix B.4


def test_without_its_extra_the_sentence_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert(tmp_path)
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with refused(MissingExtraError, "google-crc32c", "pip install 'litebert[tensorflow]'"):
        load(tmp_path)


KEYS = st.text(st.sampled_from("ab/_0é"), min_size=1, max_size=12)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(
    st.dictionaries(KEYS, st.tuples(st.sampled_from(sorted(NUMBERS)), SHAPES), max_size=12),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
    st.booleans(),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_keys_and_shapes_are_read(
    kinds: dict[str, tuple[str, tuple[int, ...]]],
    shards: int,
    per_block: int,
    every: int,
    snappy: bool,
) -> None:
    tensors = {
        name: torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(i)).to(
            getattr(torch, kind)
        )
        for i, (name, (kind, shape)) in enumerate(kinds.items())
    }
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "x"
        write_bundle(prefix, tensors, shards, per_block=per_block, every=every, snappy=snappy)
        bundle = Bundle.open(Path(folder) / "x.index")
        assert bundle.entries.keys() == tensors.keys()
        for name, tensor in tensors.items():
            again = to_tensor(bundle.read(name))
            assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(again, tensor)


@given(st.booleans(), st.booleans(), st.integers(0, 10_000), st.integers(1, 255), st.booleans())
@settings(max_examples=80)
def test_any_damage_is_found(index: bool, cut: bool, place: int, by: int, snappy: bool) -> None:
    """Unless it is where nothing stands: in the filling of the footer, or in the block of
    filters."""
    tensors: dict[str, Tensor] = {
        "a/b": torch.arange(5.0),
        "a/c": torch.ones(2, 3),
        "d": torch.tensor(1),
    }
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "x"
        write_bundle(prefix, tensors, per_block=2, snappy=snappy)
        file = Path(folder) / ("x.index" if index else "x.data-00000-of-00001")
        data = file.read_bytes()
        place %= len(data)
        file.write_bytes(
            data[:place] if cut else data[:place] + bytes([data[place] ^ by]) + data[place + 1 :]
        )
        try:
            bundle = Bundle.open(Path(folder) / "x.index")
            actual = {name: to_tensor(bundle.read(name)) for name in bundle.entries}
        except ModelError as error:
            names(str(error), file)
        else:
            assert index
            assert not cut
            assert actual.keys() == tensors.keys()
            assert all(torch.equal(actual[name], tensors[name]) for name in tensors)
