"""The start of fine-tuning: the head that each family has, the tokenizer, and what is said
about it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.base.errors import ConfigError, ModelError
from litebert.change.conversion import convert
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.finetuning.initial import InitialModel, build_task_model, load_initial
from litebert.finetuning.results import _compute_digest, _read_weights
from litebert.finetuning.run import finetune
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.finetuning import config, recipe_file, write_table
from toys.folders import checkpoint, save_hf, save_litebert
from toys.refusals import names, refused
from toys.tasks import Table

SHAPE: dict[str, Any] = {
    "vocab_size": 400,
    "embedding_size": 16,
    "hidden_size": 16,
    "layers": 2,
    "heads": 2,
    "intermediate_size": 32,
    "max_positions": 64,
    "sharing": "none",
    "pooler": False,
    "activation": "gelu",
}
OFFSET = {"position_offset": 1, "segment_types": 1}  # after the padding id of the tokenizer


def build_pretrained(objectives: tuple[str, ...] = ("mlm",), **changes: Any) -> Pretrainer:
    encoder = EncoderConfig(**{**SHAPE, **changes})
    sequences = SequenceConfig(
        length=64, format="doc-sentences" if "sbo" in objectives else "segment-pair"
    )
    if objectives == ("mlm",):
        sequences = SequenceConfig(length=64)
    return Pretrainer(Config(name="x", encoder=encoder, sequences=sequences, objectives=objectives))


@pytest.fixture(scope="module")
def words(tiny_tokenizer: Path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(write_table(tmp_path / "train.csv", 20), tmp_path / "train.csv")


HEADS: list[tuple[dict[str, Any], tuple[str, ...], str | None, str]] = [
    # what changes, objectives, the activation of a dense map of the head's own, the class it
    # converts to
    ({}, ("mlm",), None, "BertForSequenceClassification"),
    ({"pooler": True}, ("mlm", "nsp"), None, "BertForSequenceClassification"),
    ({}, ("mlm", "sbo"), None, "BertForSequenceClassification"),
    ({"embedding_size": 8, "sharing": "all"}, ("mlm",), None, "AlbertForSequenceClassification"),
    (OFFSET, ("mlm",), "tanh", "RobertaForSequenceClassification"),
    ({}, ("mlm", "rtd"), "gelu", "ElectraForSequenceClassification"),
    ({"embedding_size": 8}, ("mlm", "rtd"), "gelu", "ElectraForSequenceClassification"),
]


@pytest.mark.parametrize("layout", ["litebert", "hf"])
@pytest.mark.parametrize(("changes", "objectives", "dense", "name"), HEADS)
def test_each_family_has_the_head_of_its_code(
    layout: str,
    changes: dict[str, Any],
    objectives: tuple[str, ...],
    dense: str | None,
    name: str,
    words: Tokenizer,
    table: Table,
    tmp_path: Path,
) -> None:
    whole = build_pretrained(objectives, **changes)
    folder = tmp_path / "m"
    (save_litebert if layout == "litebert" else save_hf)(whole, words, folder)
    start = load_initial(folder, task=table)
    first, again = (build_task_model(start, table, config(seed=3)) for _ in range(2))
    assert first.dense == dense
    assert first.encoder.config.pooler == (dense is None)
    fresh = not whole.encoder.config.pooler and dense is None
    assert len(start.notes) == fresh
    for note in start.notes:
        names(note, folder, "pooler")
    before, after = whole.encoder.state_dict(), first.encoder.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(
        torch.equal(after[key], tensor) for key, tensor in again.encoder.state_dict().items()
    )
    save_litebert(first, words, tmp_path / "own")
    convert(tmp_path / "own", tmp_path / "hf", to="hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [name]


def test_an_encoder_read_elsewhere_keeps_its_familys_head(
    words: Tokenizer, table: Table, tmp_path: Path
) -> None:
    """A bare ELECTRA folder has no head that would tell it from BERT."""
    save_hf(build_pretrained(("mlm", "rtd")), words, tmp_path / "m", head="backbone")
    start = load_initial(tmp_path / "m", task=table)
    assert build_task_model(start, table, config()).dense == "gelu"
    assert start.notes == ()  # of the missing mlm head either, which no task reads
    tuned = TaskModel(EncoderConfig(**SHAPE), True, 2, "gelu")
    save_litebert(tuned, words, tmp_path / "tuned")
    assert build_task_model(load_initial(tmp_path / "tuned"), table, config()).dense == "gelu"


@pytest.mark.parametrize("layout", ["run", "tuned"])
def test_a_head_starts_from_the_dense_map_of_the_prediction_head(
    layout: str, words: Tokenizer, table: Table, tmp_path: Path
) -> None:
    modern: dict[str, Any] = {"prediction": "hidden", "bias": False, "norm": "pre"}
    if layout == "run":
        whole: Any = build_pretrained(("mlm",), **modern)
        source = whole.objectives["mlm"].head
    else:
        whole = TaskModel(EncoderConfig(**{**SHAPE, **modern}), True, 5, pooling="mean")
        source = whole.head
    torch.nn.init.normal_(source.norm.weight)
    save_litebert(whole, words, tmp_path / "m")
    start = load_initial(tmp_path / "m", task=table)
    assert start.notes == ()
    model = build_task_model(start, table, config())
    assert not model.encoder.config.pooler
    assert model.pooling == ("cls" if layout == "run" else "mean")
    head: Any = model.head
    assert torch.equal(head.dense.weight, source.dense.weight)
    assert torch.equal(head.norm.weight, source.norm.weight)
    assert set(model.head.state_dict()) == {
        "dense.weight",
        "norm.weight",
        "classifier.weight",
        "classifier.bias",
    }
    save_litebert(model, words, tmp_path / "again")
    assert load_initial(tmp_path / "again").pooling == model.pooling


def test_a_generators_prediction_head_is_no_start(
    words: Tokenizer, table: Table, tmp_path: Path
) -> None:
    save_litebert(build_pretrained(("mlm", "rtd"), prediction="hidden"), words, tmp_path / "m")
    start = load_initial(tmp_path / "m", task=table)
    (note,) = start.notes
    names(note, tmp_path / "m")
    model = build_task_model(start, table, config())
    assert (model.dense, model.encoder.config.pooler, model.head.norm is None) == (
        None,
        False,
        False,
    )


def test_an_untrained_recipe_has_the_head_of_its_family(
    tiny_tokenizer: Path, table: Table, tmp_path: Path
) -> None:
    shape = recipe_file(tmp_path).read_text().rstrip()
    for objectives, pooler, dense in (
        ("'mlm'", "true", None),
        ("'mlm'", "false", None),
        ("'mlm', 'rtd'", "false", "gelu"),
    ):
        path = tmp_path / "small.toml"
        path.write_text(f"objectives = [{objectives}]\n{shape}\npooler = {pooler}\n")
        start = load_initial(path, tiny_tokenizer, table)
        model = build_task_model(start, table, config())
        assert (model.dense, model.encoder.config.pooler) == (dense, dense is None)
        (note,) = start.notes
        names(note, path)


def test_a_folder_beside_a_recipe_of_its_name_is_named(
    tiny_tokenizer: Path, words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (note,) = load_initial("albert-mini", tiny_tokenizer).notes
    names(note, "albert-mini")
    assert "./albert-mini" not in note
    save_litebert(build_pretrained(), words, tmp_path / "albert-mini")
    start = load_initial("albert-mini", tiny_tokenizer)
    assert start.state is None
    (note,) = start.notes
    names(note, "./albert-mini")
    assert load_initial("./albert-mini").state is not None


def test_another_tokenizer_than_the_models_own_is_refused(
    tiny_tokenizer: Path, words: Tokenizer, tmp_path: Path
) -> None:
    save_litebert(build_pretrained(), words, tmp_path / "m")
    assert load_initial(tmp_path / "m", tiny_tokenizer).tokenizer.fingerprint == words.fingerprint
    texts = ["ba de fi go ku la mo ne pi ra so tu " * 9] * 9
    train_tokenizer(texts, kind="wordpiece", vocab_size=40).save(tmp_path / "other")
    with refused(ConfigError, tmp_path / "m", tmp_path / "other", "--tokenizer"):
        load_initial(tmp_path / "m", tmp_path / "other")
    # A folder without one takes any that fits.
    save_litebert(build_pretrained(), None, tmp_path / "bare")
    assert load_initial(tmp_path / "bare", tiny_tokenizer).tokenizer.vocab_size == 400
    with refused(ModelError, tmp_path / "bare", tmp_path / "other", 400, 40):
        load_initial(tmp_path / "bare", tmp_path / "other")


def test_a_damaged_checkpoint_that_was_passed_over_is_said(
    words: Tokenizer, tmp_path: Path, log_messages: list[str]
) -> None:
    checkpoint(tmp_path / "run", 1, build_pretrained())
    last = checkpoint(tmp_path / "run", 2, build_pretrained())
    (last / "model.safetensors").write_bytes(b"damaged")
    words.save(tmp_path / "run" / "tokenizer")
    load_initial(tmp_path / "run")
    [remark] = log_messages
    names(remark, last)


def test_an_encoder_with_other_fields_has_another_fingerprint(words: Tokenizer) -> None:
    def fingerprint(**changes: Any) -> str:
        return _compute_digest(_read_weights(InitialModel(EncoderConfig(**changes), None, words)))

    assert fingerprint() == fingerprint()
    others = ({"window": 64, "global_every": 3}, {"layers": 11}, {"hidden_dropout": 0.1})
    assert len({fingerprint(), *(fingerprint(**changes) for changes in others)}) == 4


def test_a_part_of_training_rows_is_warned_of(
    tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    """Scores on rows that were learned are no scores."""
    train = write_table(tmp_path / "train.csv", 40)
    other = write_table(tmp_path / "other.csv", 40, seed=1)
    lines = other.read_text().splitlines()
    (tmp_path / "mixed.csv").write_text(
        "\n".join([*lines, *train.read_text().splitlines()[1:21]]) + "\n"
    )
    settings, encoder = config(epochs=0.5), recipe_file(tmp_path)
    for dev, test, shared in (("other", None, ()), ("train", "mixed", ("40 of 40", "20 of 60"))):
        task = Table(train, tmp_path / f"{dev}.csv", test and tmp_path / f"{test}.csv")
        log_messages.clear()
        finetune(encoder, task, tmp_path / f"run-{dev}", settings, tokenizer=tiny_tokenizer)
        warnings = [line for line in log_messages if "training rows too" in line]
        assert len(warnings) == len(shared)
        for line, count, part in zip(warnings, shared, ("dev", "test"), strict=False):
            names(line, count, part)
