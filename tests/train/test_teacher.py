"""Pretraining with a teacher: what a run records, resumes bit for bit and refuses; the teacher
stays out of it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.base.errors import ConfigError, DataError, ModelError, RunError
from litebert.change.conversion import convert, resize
from litebert.change.shrinking import Shrinking
from litebert.config import Config, DistillConfig, cost, replace
from litebert.data.shards import Shards
from litebert.interop import LoadedModel, read_folder
from litebert.interop.files import read_tensors
from litebert.model.pretrainer import Pretrainer
from litebert.model.teacher import Lesson
from litebert.tokenizer.alignment import Alignment
from litebert.tokenizer.training import train_tokenizer
from litebert.train.evaluate import evaluate_pretrained
from litebert.train.initial_weights import build_further_recipe
from litebert.train.metrics import read
from litebert.train.pretrain import Pretrained
from litebert.train.supply import PretrainingBatches
from litebert.train.teacher import compute_fingerprint, open_teacher
from toys import points
from toys.prepare import run as prepare
from toys.pretraining import config, leave_at, pretrain, result
from toys.refusals import names, refused
from toys.typed import typed

pytestmark = pytest.mark.thorough


ALL = DistillConfig(soft=1.0, states=1.0, relations=1.0)


def student(distill: DistillConfig = ALL, **changes: Any) -> Config:
    return config(
        encoder={"layers": 2, **changes.pop("encoder", {})},
        objectives=("mlm",),
        distill=distill,
        **changes,
    )


@pytest.fixture(scope="module")
def place(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a teacher of other width, depth and heads than the students."""
    folder = tmp_path_factory.mktemp("teachers")
    shape = {"hidden_size": 24, "embedding_size": 24, "layers": 3, "heads": 4, "sharing": "none"}
    pretrain(
        config(encoder=shape, objectives=("mlm",), train={"budget": "3 steps"}),
        tiny_data,
        folder / "teacher",
    )
    return folder


def teach(
    place: Path, data: Path, out: Path, point: Config | None = None, **more: Any
) -> Pretrained:
    return pretrain(point or student(), data, out, **{"teacher": place / "teacher", **more})


def test_killed_and_continued_it_ends_with_the_same_bits(
    place: Path, tiny_data: Path, tmp_path: Path
) -> None:
    whole = teach(place, tiny_data, tmp_path / "whole")
    assert whole.outcome.finished

    assert not teach(place, tiny_data, tmp_path / "broken", on_step=leave_at(5)).outcome.finished
    assert teach(place, tiny_data, tmp_path / "broken").outcome.finished
    assert result(tmp_path / "whole") == result(tmp_path / "broken")


def test_the_teacher_is_in_no_checkpoint_and_no_count(
    place: Path, tiny_data: Path, tmp_path: Path
) -> None:
    run = teach(place, tiny_data, tmp_path / "run")
    saved = read_tensors(max((run.folder / "checkpoints").glob("step-*")) / "model.safetensors")
    alone = Pretrainer(run.config)
    assert saved.keys() == alone.state_dict().keys()
    assert sum(tensor.numel() for tensor in saved.values()) == sum(
        cost.model_parameters(run.config).values()
    )
    assert saved["objectives.states.head.weight"].shape == (24, 16)
    record = json.loads((run.folder / "run.json").read_text())
    assert record["teacher"] == str((place / "teacher").resolve())
    row = [row for row in read(run.folder / "metrics.jsonl") if "relations_loss" in row][-1]
    assert row["soft_loss"] > 0
    assert row["states_loss"] > 0
    scores = evaluate_pretrained(run.folder, tiny_data, sequences=8)  # without its teacher
    assert "mlm_loss" in scores
    assert "soft_loss" not in scores
    convert(run.folder, tmp_path / "model", to="litebert")
    assert read_folder(tmp_path / "model").config == run.config
    assert not any("head" in note for note in convert(run.folder, tmp_path / "hf", to="hf").notes)
    assert read_folder(tmp_path / "hf").config.objectives == ("mlm",)


def test_no_gradient_reaches_the_teacher_and_nothing_of_it_changes(
    place: Path, tiny_data: Path
) -> None:
    shards = Shards.open(tiny_data)
    point, teacher = open_teacher(place / "teacher", student(), shards)
    assert teacher is not None
    assert point.objectives == ("mlm", "soft", "states", "relations")
    assert point.distill.state_layers == ((1, 2), (2, 3))  # spread over three layers
    assert point.distill.relation_layers == ((2, 3),)
    assert point.distill.relation_heads == 4
    before = {name: tensor.clone() for name, tensor in teacher.encoder.state_dict().items()}
    model = Pretrainer(point)
    model.teacher = teacher
    losses = model(PretrainingBatches(point, shards)(0, slice(None)))
    total: Any = torch.stack([loss.total for loss in losses.values()]).sum()
    total.backward()
    assert all(
        parameter.grad is None and not parameter.requires_grad
        for parameter in teacher.encoder.parameters()
    )
    assert all(
        parameter.grad is not None
        for name, parameter in model.named_parameters()
        if "pooler" not in name
    )
    assert not teacher.encoder.training
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in teacher.encoder.state_dict().items()
    )
    assert not any("teacher" in name for name, _ in model.named_modules())


def test_imitating_itself_costs_nothing(place: Path, tiny_data: Path) -> None:
    shards = Shards.open(tiny_data)
    loaded = read_folder(place / "teacher")
    same = replace(loaded.config, distill=DistillConfig(relations=1.0))
    point, teacher = open_teacher(place / "teacher", same, shards)
    model = Pretrainer(point)
    model.load_state_dict(loaded.model.state_dict())
    model.teacher = teacher
    losses = model.eval()(PretrainingBatches(point, shards)(0, slice(None)))
    for name in ("soft", "relations"):
        assert losses[name].total.item() / losses[name].count.item() == pytest.approx(0, abs=1e-5)
    assert losses["soft"].correct == losses["soft"].count
    assert losses["mlm"].total > 0


def test_a_fingerprint_depends_on_weights_and_config_alone(tmp_path: Path) -> None:
    point = points.config(("mlm",))
    model = Pretrainer(point)
    first = compute_fingerprint(LoadedModel(model, point, None, tmp_path))
    assert (
        compute_fingerprint(
            LoadedModel(model, replace(point, name="renamed"), None, tmp_path / "moved")
        )
        == first
    )
    masked = replace(point, masking=replace(point.masking, rate=0.3))
    assert compute_fingerprint(LoadedModel(model, masked, None, tmp_path)) != first
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert compute_fingerprint(LoadedModel(model, point, None, tmp_path)) != first


# ----------------------------------------------------------------------------------------- refusals


def test_a_run_goes_on_with_its_own_teacher_only(
    place: Path, tiny_data: Path, tmp_path: Path
) -> None:
    point = student(DistillConfig(), train={"budget": "2 steps"})
    teach(place, tiny_data, tmp_path / "run", point)
    other = pretrain(
        config(objectives=("mlm",), train={"budget": "2 steps"}), tiny_data, tmp_path / "other"
    ).folder
    with refused(RunError, tmp_path / "run", place / "teacher", other):
        teach(place, tiny_data, tmp_path / "run", point, teacher=other)
    with refused(RunError, tmp_path / "run", place / "teacher", "--teacher"):
        pretrain(point, tiny_data, tmp_path / "run")
    with refused(RunError, other, "--teacher"):
        teach(place, tiny_data, other, config(objectives=("mlm",), train={"budget": "2 steps"}))
    with refused(RunError, "--overwrite", place / "teacher"):
        teach(place, tiny_data, place / "teacher", overwrite=True)


def test_what_cannot_be_learned_is_refused(place: Path, tiny_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with refused(ConfigError, "states", "--teacher"):
        pretrain(replace(student(), objectives=("mlm", "states")), tiny_data, out)
    with refused(ConfigError, "--teacher", "distill.soft"):
        teach(place, tiny_data, out, student(DistillConfig(soft=0)))
    with refused(ConfigError, "distill.state_layers", 4, place / "teacher"):
        teach(place, tiny_data, out, student(replace(ALL, state_layers=((1, 4),))))
    with refused(ConfigError, "distill.state_layers", 3):
        teach(place, tiny_data, out, student(replace(ALL, state_layers=((3, 1),))))
    with refused(ConfigError, "distill.relation_heads", 3, 16, 24):
        teach(place, tiny_data, out, student(replace(ALL, relation_heads=3)))
    with refused(ConfigError, "train.depth_schedule"):
        teach(place, tiny_data, out, student(train={"depth_schedule": ((0.5, 1),)}))
    with refused(ModelError, tmp_path / "absent"):
        teach(place, tiny_data, out, teacher=tmp_path / "absent")
    assert not out.exists() or not list(out.glob("[!.]*"))


def test_a_teacher_without_a_common_vocabulary_is_refused(
    place: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, kind="unigram", vocab_size=380).save(tmp_path / "words")
    prepare(tiny_corpus, tmp_path / "data", tmp_path / "words")
    with refused(DataError, place / "teacher", tmp_path / "data", "--tokenizer", "distill.soft"):
        teach(place, tmp_path / "data", tmp_path / "run")


def test_states_and_relations_come_from_a_teacher_with_another_tokenizer(
    run: Any, place: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    """A killed run ends with the same bits, and the teacher's states are those of its tokens."""
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, kind="wordpiece", vocab_size=380).save(tmp_path / "words")
    data = tmp_path / "data"
    words = ("--tokenizer", tmp_path / "words", "--heldout", "0.1", "--processes", "1")
    status, _, err = run("prepare", tiny_corpus, *words, "--out", data)
    assert status == 0, err
    point = student(DistillConfig(soft=0, states=1.0, relations=1.0))
    whole = teach(place, data, tmp_path / "whole", point)
    assert whole.outcome.finished

    assert not teach(place, data, tmp_path / "broken", point, on_step=leave_at(5)).outcome.finished
    assert teach(place, data, tmp_path / "broken", point).outcome.finished
    assert result(tmp_path / "whole") == result(tmp_path / "broken")

    shards = Shards.open(data)
    complete, teacher = open_teacher(place / "teacher", point, shards)
    assert teacher is not None
    batch = PretrainingBatches(complete, shards)(0, slice(None))
    lesson = Lesson(teacher, batch)
    other, real = read_folder(place / "teacher").tokenizer, batch.attention_mask
    assert other is not None
    for number in (0, len(batch.input_ids) - 1):
        tokens = slice(None) if real is None else real[number].bool()
        ids = batch.input_ids[number][tokens].tolist()
        aligned = Alignment(shards.tokenizer, other).align(ids, 512)
        types = torch.from_numpy(batch.token_type_ids[number][tokens].numpy()[aligned.sources])[
            None
        ]
        inputs = torch.from_numpy(aligned.ids)[None]
        uses_types = teacher.encoder.config.segment_types
        states = list(teacher.encoder.states(inputs, types if uses_types else None, None))
        for token in range(len(ids)):
            places = slice(aligned.first[token], aligned.last[token] + 1)
            expected = states[-1][0, places].mean(0)
            torch.testing.assert_close(lesson.states[-1][number][tokens][token], expected)
            query = teacher.encoder.projections(1, states[1])[0][0, :, places].mean(1)
            aligned_query = lesson.projections(2)[0][number].transpose(0, 1)[tokens][token]
            torch.testing.assert_close(aligned_query, query)


def test_a_teacher_without_a_tokenizer_is_refused_though_its_vocabulary_is_as_large(
    run: Any, place: Path, tiny_data: Path, tmp_path: Path
) -> None:
    convert(place / "teacher", tmp_path / "lacking", to="hf")
    for file in (tmp_path / "lacking").iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            file.unlink()
    with refused(DataError, tmp_path / "lacking", tiny_data, "no tokenizer"):
        teach(place, tiny_data, tmp_path / "run", teacher=tmp_path / "lacking")
    with refused(DataError, tmp_path / "lacking", tiny_data, "no tokenizer"):
        pretrain(
            config(objectives=("mlm",)),
            tiny_data,
            tmp_path / "run",
            from_model=tmp_path / "lacking",
        )
    assert not list(tmp_path.glob("run/[!.]*"))
    for verb, *page in (("evaluate",), ("analyze", "--out", tmp_path / "page.html")):
        status, _, err = run(verb, tmp_path / "lacking", "--shards", tiny_data, *page)
        assert status == 2
        names(err.splitlines()[-1], tmp_path / "lacking", tiny_data, "no tokenizer")
    # With its tokenizer back it teaches.
    shutil.copy(place / "teacher" / "tokenizer" / "spiece.model", tmp_path / "lacking")
    assert teach(place, tiny_data, tmp_path / "run", teacher=tmp_path / "lacking").outcome.finished


def test_a_generator_teaches_no_guesses(place: Path, tiny_data: Path, tmp_path: Path) -> None:
    pretrain(
        config(objectives=("mlm", "rtd"), train={"budget": "2 steps"}),
        tiny_data,
        tmp_path / "electra",
    )
    with refused(ModelError, tmp_path / "electra", "distill.soft=0"):
        teach(place, tiny_data, tmp_path / "run", teacher=tmp_path / "electra")


def test_the_command_as_it_is_typed(run: Any, place: Path, tiny_data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "student.toml"
    recipe.write_text(
        "[encoder]\nembedding_size = 8\nhidden_size = 16\nlayers = 2\nheads = 2\nintermediate_size "
        "= 32\nmax_positions = 64\n[sequences]\nlength = 32\n"
    )
    words = typed(
        "pretrain {} --shards {} --budget '2 steps' --train.batch '4 sequences'", recipe, tiny_data
    )
    status, out, _ = run(
        *words,
        *typed(
            "--teacher {} --distill.relations 1 --out {} --json",
            place / "teacher",
            tmp_path / "run",
        ),
    )
    assert status == 0
    assert {"soft_loss", "relations_loss", "mlm_loss", "sop_loss"} <= json.loads(out)[
        "heldout"
    ].keys()
    status, _, err = run(*words, "--out", tmp_path / "run")
    assert status == 2
    names(err.splitlines()[-1], tmp_path / "run", "--teacher")


def test_a_model_made_smaller_learns_from_the_one_it_was_made_of(
    run: Any, place: Path, tiny_data: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    status, out, _ = run(
        *typed(
            "resize {} --out {} --share all --embedding-size 8 --shards {}",
            place / "teacher",
            small,
            tiny_data,
        )
    )
    assert status == 0
    assert "held-out mlm loss" in out
    words = typed(
        "pretrain {} --from {} --teacher {} --shards {}",
        small / "recipe.json",
        small,
        place / "teacher",
        tiny_data,
    )
    status, out, err = run(
        *words, "--budget", "2 steps", "--distill.states", 1, "--out", tmp_path / "run", "--json"
    )
    assert status == 0
    assert "untrained: states head" in err
    assert {"mlm_loss", "soft_loss", "states_loss"} <= json.loads(out)["heldout"].keys()


def test_what_belongs_to_a_run_stays_with_it(place: Path, tiny_data: Path, tmp_path: Path) -> None:
    """The student goes on without its teacher."""
    run = teach(place, tiny_data, tmp_path / "run", student(train={"budget": "3 steps"}))
    further = build_further_recipe(run.folder)
    assert further.objectives == ("mlm",)
    assert further.distill == DistillConfig()
    pretrain(
        replace(further, train=replace(further.train, budget="2 steps")),
        tiny_data,
        tmp_path / "further",
        from_model=run.folder,
    )
    changed = replace(further, objectives=("mlm", "soft"), distill=DistillConfig(relations=1.0))
    again, _ = open_teacher(place / "teacher", changed, Shards.open(tiny_data))
    assert again.objectives == ("mlm", "soft", "relations")
    resize(run.folder, tmp_path / "small", shrinking=Shrinking(layers=1))
    resize(run.folder, tmp_path / "long", window=16, global_every=2)
