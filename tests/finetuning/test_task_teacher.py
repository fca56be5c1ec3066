"""Learning a task from a teacher's answers: what a run keeps, resumes and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

import litebert
from litebert.answer.engines.runtime import Runtime
from litebert.answer.export import export
from litebert.base.errors import ConfigError, ModelError, RunError
from litebert.base.registry import ENGINES
from litebert.change.conversion import convert
from litebert.config import FinetuneConfig, TaskDistillConfig, replace
from litebert.finetuning.results import Finetuned
from litebert.finetuning.teachers import KEPT
from litebert.interop import LoadedModel, read_folder
from litebert.interop.files import read_tensors
from litebert.tasks.rows import PaddedRows
from litebert.tasks.values import TaskBatch
from litebert.tokenizer.training import train_tokenizer
from litebert.train import memory
from litebert.train.loop import Loop
from litebert.train.metrics import read
from toys.finetuning import config, finetune, finetune_seeds, recipe_file, write_table
from toys.pretraining import leave_at
from toys.refusals import names, refused
from toys.tasks import Table, task_of

pytestmark = pytest.mark.thorough


# --------------------------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def place(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, an untrained student, and a teacher fine-tuned on the tables."""
    folder = tmp_path_factory.mktemp("teaching")
    write_table(folder / "train.csv", 60)
    write_table(folder / "dev.csv", 20, seed=1)
    text = write_table(folder / "more.csv", 40, seed=2).read_text().splitlines()
    (folder / "more.csv").write_text("\n".join(line.rpartition(",")[0] for line in text) + "\n")
    finetune(
        recipe_file(folder),
        table(folder),
        folder / "teacher",
        config(epochs=2, restart=False),
        tokenizer=tiny_tokenizer,
    )
    return folder


def quick(seed: int = 0, **changes: Any) -> FinetuneConfig:
    """One pass, without a second try."""
    return config(epochs=1, seed=seed, restart=False, **changes)


def table(place: Path) -> Table:
    return Table(place / "train.csv", place / "dev.csv")


def teach(
    place: Path, out: Path, tokenizer: Path, *, weight: float = 0.5, **more: Any
) -> Finetuned:
    layers = {
        name: more.pop(name) for name in ("states", "state_layers", "relations") if name in more
    }
    distill = TaskDistillConfig(weight=weight, **layers)
    settings = quick(
        seed=more.pop("seed", 0), distill=distill, early_exits=more.pop("exits", False)
    )
    return finetune(
        recipe_file(out.parent),
        table(place),
        out,
        settings,
        tokenizer=tokenizer,
        **{"teacher": place / "teacher", **more},
    )


def more_texts(place: Path) -> list[Any]:
    return [row.example for row in table(place).stream(place / "more.csv")]


def weights(run: Path) -> bytes:
    return (max((run / "checkpoints").glob("step-*")) / "model.safetensors").read_bytes()


def test_the_run_records_its_teacher_and_keeps_its_answers(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    run = teach(place, tmp_path / "run", tiny_tokenizer)
    identity = json.loads((tmp_path / "run" / "finetune.json").read_text())
    assert identity["teacher"] == str((place / "teacher").resolve())
    assert len(identity["teacher_fingerprint"]) == 64
    logits = read_tensors(tmp_path / "run" / KEPT)["logits"]
    assert (logits.dtype, logits.shape) == (torch.float16, (60 * 2,))
    rows = list(read(tmp_path / "run" / "metrics.jsonl"))
    last = [row for row in rows if "teacher_loss" in row][-1]
    assert last["loss"] == pytest.approx(0.5 * last["task_loss"] + 0.5 * last["teacher_loss"])
    student = read_folder(recipe_model(run)).model.state_dict()
    teacher = read_folder(place / "teacher").model.state_dict()
    assert student.keys() == teacher.keys()  # the student alone


def recipe_model(run: Finetuned) -> Path:
    return run.folder / "model"


def test_its_answers_are_those_it_gives(place: Path, tiny_tokenizer: Path, tmp_path: Path) -> None:
    run = teach(place, tmp_path / "run", tiny_tokenizer)
    texts = [example.text for example in table(place).read("train")]
    answers = litebert.load(place / "teacher").predict(texts)
    logits = read_tensors(run.folder / KEPT)["logits"].float().view(-1, 2)
    likely = F.softmax(logits, -1)[:, 1].tolist()
    assert likely == pytest.approx([answer["probabilities"]["yes"] for answer in answers], abs=2e-3)


def test_answers_are_kept_for_texts_as_the_teacher_reads_them(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Texts of a changed file that are the same up to the student's length are answered anew."""

    def answer(out: Path, tail: str) -> torch.Tensor:
        lines = [f"{sign} de lu mi no ke {tail},{sign}" for sign in ("no", "yes") * 12]
        (tmp_path / "train.csv").write_text("\n".join(["text,label", *lines]) + "\n")
        finetune(
            recipe_file(tmp_path),
            Table(tmp_path / "train.csv", place / "dev.csv"),
            out,
            replace(quick(), length=8),
            tokenizer=tiny_tokenizer,
            teacher=place / "teacher",
        )
        return read_tensors(out / KEPT)["logits"]

    first = answer(tmp_path / "run", "na na na")
    for path in (tmp_path / "run").iterdir():  # as of a run that was killed before it began
        if path.name != KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    second = answer(tmp_path / "run", "bafi gi tu")
    assert torch.equal(second, answer(tmp_path / "other", "bafi gi tu"))
    assert not torch.equal(second, first)


def test_all_weight_on_the_teacher_needs_no_true_label(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    first = teach(place, tmp_path / "one", tiny_tokenizer, weight=1.0)
    turned = place / "turned"
    turned.mkdir(exist_ok=True)
    for name in ("train.csv", "dev.csv"):
        (turned / name).write_text((place / name).read_text())
    lines = (turned / "train.csv").read_text().splitlines()
    flipped = [
        f"{text},{'no' if label == 'yes' else 'yes'}"
        for text, _, label in (x.rpartition(",") for x in lines[1:])
    ]
    (turned / "train.csv").write_text("\n".join([lines[0], *flipped]) + "\n")
    settings = quick(distill=TaskDistillConfig(weight=1.0))
    two = finetune(
        recipe_file(tmp_path),
        table(turned),
        tmp_path / "two",
        settings,
        tokenizer=tiny_tokenizer,
        teacher=place / "teacher",
    )
    assert weights(first.folder) == weights(two.folder)


@pytest.mark.parametrize("exits", [False, True])
def test_unlabeled_texts_are_learned_and_a_kill_changes_nothing(
    place: Path, tiny_tokenizer: Path, tmp_path: Path, exits: bool
) -> None:
    options: dict[str, Any] = {"unlabeled": more_texts(place), "exits": exits}
    whole = teach(place, tmp_path / "whole", tiny_tokenizer, **options)
    assert whole.steps == 7  # 100 rows in batches of 16

    broken = teach(place, tmp_path / "broken", tiny_tokenizer, on_step=leave_at(4), **options)
    assert not broken.outcome.finished
    again = teach(place, tmp_path / "broken", tiny_tokenizer, **options)
    assert again.outcome.finished
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    assert again.scores == whole.scores


def test_seeds_ask_the_teacher_once(
    place: Path, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_batches, engine = [], ENGINES["torch"]

    class Noting(Runtime):
        def __init__(self, loaded: LoadedModel, device: str) -> None:
            self._runtime = engine(loaded, device)

        def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
            row_batches.append(rows)
            logits: NDArray[np.float32] = self._runtime.logits(rows)
            return logits

    monkeypatch.setitem(ENGINES._parts, "torch", Noting)
    finetune_seeds(
        recipe_file(tmp_path),
        table(place),
        tmp_path / "run",
        quick(),
        seeds=2,
        tokenizer=tiny_tokenizer,
        teacher=place / "teacher",
    )
    assert sum(len(rows.ids) for rows in row_batches) == 60 + 20
    contents = [(tmp_path / "run" / name / KEPT).read_bytes() for name in ("seed-0", "seed-1")]
    assert contents[0] == contents[1]


def test_a_teacher_may_have_another_tokenizer_and_another_order_of_labels(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    texts = [example.text for example in table(place).read("train")]
    train_tokenizer(texts, kind="wordpiece", vocab_size=120).save(tmp_path / "other")
    settings = quick()
    turned = Table(place / "train.csv", place / "dev.csv", labels=("yes", "no"))
    finetune(
        recipe_file(tmp_path), turned, tmp_path / "teacher", settings, tokenizer=tmp_path / "other"
    )
    run = teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / "teacher")
    answers = litebert.load(tmp_path / "teacher").predict(texts)
    logits = read_tensors(run.folder / KEPT)["logits"].float().view(-1, 2)
    likely = F.softmax(logits, -1)[:, 1].tolist()
    assert likely == pytest.approx([answer["probabilities"]["yes"] for answer in answers], abs=2e-3)


@pytest.mark.parametrize("form", ["exported", "hf"])
def test_a_teacher_of_another_form_teaches_the_same(
    place: Path, tiny_tokenizer: Path, tmp_path: Path, form: str
) -> None:
    if form == "hf":
        convert(place / "teacher", tmp_path / form, to="hf")
    else:
        pytest.importorskip("onnxruntime")
        export(place / "teacher", tmp_path / form, format="onnx")
    run = teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / form)
    same = teach(place, tmp_path / "same", tiny_tokenizer)
    first, two = (read_tensors(each.folder / KEPT)["logits"].float() for each in (run, same))
    assert torch.allclose(first, two, atol=2e-3)


def tables_of(name: str, folder: Path) -> Any:
    """A few made-up examples with answers at tokens or among choices."""
    for part in ("train", "dev"):
        if name == "tagging":
            sentence = "bado B-PER\ntoto O\nfegi B-PER\nmimi O\n\n"
            (folder / f"{part}.txt").write_text(sentence * 12)
        else:
            rows = [
                {
                    "context": "toto",
                    "question": "",
                    "choices": ["mimi", "bado", "ko"][: 2 + i % 2],
                    "label": i % 2,
                }
                for i in range(24)
            ]
            (folder / f"{part}.txt").write_text("\n".join(map(json.dumps, rows)))
    form = "conll" if name == "tagging" else "jsonl"
    paths = [
        (folder / f"{part}.txt").rename(folder / f"{part}.{form}") for part in ("train", "dev")
    ]
    return task_of(name, str(paths[0]), dev=str(paths[1]))


@pytest.mark.parametrize("name", ["tagging", "choices"])
def test_answers_at_tokens_and_among_choices_are_learned(
    tiny_tokenizer: Path, tmp_path: Path, name: str
) -> None:
    task, recipe = tables_of(name, tmp_path), recipe_file(tmp_path)
    finetune(recipe, task, tmp_path / "teacher", quick(), tokenizer=tiny_tokenizer)
    run = finetune(
        recipe,
        task,
        tmp_path / "run",
        quick(),
        tokenizer=tiny_tokenizer,
        teacher=tmp_path / "teacher",
    )
    row = [row for row in read(run.folder / "metrics.jsonl") if "teacher_loss" in row][-1]
    assert 0 <= row["teacher_loss"] < 1
    texts = ["toto mimi bado", "fegi ko"] * 50
    train_tokenizer(texts, kind="wordpiece", vocab_size=30).save(tmp_path / "other")
    if name == "tagging":
        with refused(ModelError, tmp_path / "teacher", "tokens"):
            finetune(
                recipe,
                task,
                tmp_path / "new",
                quick(),
                tokenizer=tmp_path / "other",
                teacher=tmp_path / "teacher",
            )
        with refused(ConfigError, "--unlabeled", "tokens"):
            finetune(
                recipe,
                task,
                tmp_path / "new",
                quick(),
                tokenizer=tiny_tokenizer,
                teacher=tmp_path / "teacher",
                unlabeled=task.read("dev"),
            )
    else:
        new = finetune(
            recipe,
            task,
            tmp_path / "new",
            quick(),
            tokenizer=tmp_path / "other",
            teacher=tmp_path / "teacher",
        )
        logits = [read_tensors(each.folder / KEPT)["logits"] for each in (run, new)]
        assert torch.equal(*logits)


# --------------------------------------------------------------------------------------- its layers

LAYERS = {"states": 0.5, "relations": 2.0}


@pytest.mark.parametrize("exits", [False, True])
def test_layers_are_learned_beside_the_answers(
    place: Path, tiny_tokenizer: Path, tmp_path: Path, exits: bool
) -> None:
    options: dict[str, Any] = {"unlabeled": more_texts(place), "exits": exits, **LAYERS}
    whole = teach(place, tmp_path / "whole", tiny_tokenizer, **options)
    rows = [row for row in read(whole.folder / "metrics.jsonl") if "relations_loss" in row]
    last = rows[-1]
    parts = [last[f"{name}_loss"] for name in ("task", "teacher", "states", "relations")]
    assert last["loss"] == pytest.approx(np.dot(parts, [0.5, 0.5, 0.5, 2.0]), rel=1e-5)
    student, teacher = (
        read_folder(folder).model for folder in (recipe_model(whole), place / "teacher")
    )
    assert student.state_dict().keys() == teacher.state_dict().keys()  # without the map

    assert not teach(
        place, tmp_path / "broken", tiny_tokenizer, on_step=leave_at(4), **options
    ).outcome.finished
    again = teach(place, tmp_path / "broken", tiny_tokenizer, **options)
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    assert again.scores == whole.scores


def test_the_distance_of_layers_is_that_of_their_formula(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Written out for a batch with padding: MiniLMv2's relations of the last layers, and states of
    all pairs.
    """
    measured: list[tuple[dict[str, float], float, float]] = []

    def look(loop: Loop[TaskBatch]) -> None:
        model: Any = loop.trainable.module
        batch = loop.trainable.batch(0, slice(0, 16))
        losses = loop.trainable.compute_losses(batch, 2)
        with torch.no_grad():
            kinds = batch.token_type_ids
            student_states, teacher_states = (
                list(network.encoder.states(batch.input_ids, kinds, batch.attention_mask))
                for network in (model, teacher)
            )
            states = relations = 0.0
            real = batch.attention_mask
            for row in range(len(real)):
                length = int(real[row].sum())
                for student_layer, teacher_layer in ((1, 1), (2, 2)):
                    student_state, teacher_state = (
                        F.layer_norm(x[row, :length], x.shape[-1:])
                        for x in (student_states[student_layer], teacher_states[teacher_layer])
                    )
                    states += (
                        float(
                            (model.state_map(student_state) - teacher_state).square().mean(-1).sum()
                        )
                        / 2
                    )
                parts = [
                    network.encoder.projections(1, x[1][row : row + 1, :length])
                    for network, x in ((model, student_states), (teacher, teacher_states))
                ]
                for student_part, teacher_part in zip(*parts, strict=True):
                    laws = [
                        (x @ x.transpose(-1, -2) / x.shape[-1] ** 0.5).log_softmax(-1)
                        for x in (student_part, teacher_part)
                    ]
                    relations += (
                        float((laws[1].exp() * (laws[1] - laws[0])).sum()) / student_part.shape[1]
                    )
        measured.append(
            ({name: loss.total.item() for name, loss in losses.items()}, states, relations)
        )

    teacher: Any = read_folder(place / "teacher").model
    teach(place, tmp_path / "run", tiny_tokenizer, on_step=look, seed=5, **LAYERS)
    assert len(measured) >= 2
    for losses, states, relations in measured[:2]:
        assert losses["states"] == pytest.approx(states, rel=1e-4)
        assert losses["relations"] == pytest.approx(relations, rel=1e-4)


def test_a_teacher_that_computes_beside_counts_in_the_plan_of_memory(
    place: Path, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 16 fits with its answers alone, which are known before training, and not with its
    layers.
    """
    monkeypatch.setattr(memory, "_count_resident_bytes", lambda _: 0)
    monkeypatch.setattr(memory, "measure_peak_bytes", lambda *_: 100_000)
    monkeypatch.setattr(
        memory, "measure_free_memory", lambda _: int(16.5 * 100_000 / memory.USABLE)
    )
    teach(place, tmp_path / "answers", tiny_tokenizer)
    with refused(ConfigError, "train.micro_batch", "--train.micro-batch"):
        teach(place, tmp_path / "layers", tiny_tokenizer, states=1.0)
    for name, distill in (
        ("answers", TaskDistillConfig()),
        ("layers", TaskDistillConfig(states=1.0)),
    ):
        settings = quick(distill=distill)
        settings = replace(settings, train=replace(settings.train, micro_batch="auto"))
        run = tmp_path / f"{name} auto"
        words: dict[str, Any] = {"tokenizer": tiny_tokenizer, "teacher": place / "teacher"}
        finetune(recipe_file(tmp_path), table(place), run, settings, **words)
        chosen = json.loads((run / "finetune.json").read_text())["config"]["train"]["micro_batch"]
        assert (chosen < 16) is (name == "layers")


def test_layers_that_cannot_be_compared_are_refused(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    train_tokenizer(["toto mimi bado", "fegi ko"] * 50, kind="wordpiece", vocab_size=30).save(
        tmp_path / "words"
    )
    finetune(
        recipe_file(tmp_path),
        table(place),
        tmp_path / "other",
        quick(),
        tokenizer=tmp_path / "words",
    )
    with refused(ModelError, tmp_path / "other", "tokenizer", "distill.relations"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / "other", **LAYERS)
    for pairs in (((1, 3),), ((3, 1),)):
        with refused(ConfigError, "distill.state_layers", 3, 2):
            teach(place, tmp_path / "run", tiny_tokenizer, states=1.0, state_layers=pairs)
    assert not (tmp_path / "run" / "finetune.json").exists()
    pytest.importorskip("onnxruntime")
    export(place / "teacher", tmp_path / "exported", format="onnx")
    with refused(ModelError, tmp_path / "exported", "distill.states"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / "exported", **LAYERS)


# ----------------------------------------------------------------------------------------- refusals


def test_a_run_goes_on_with_its_own_teacher_only(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    teach(place, tmp_path / "run", tiny_tokenizer)
    with refused(RunError, tmp_path / "run", place / "teacher", "--teacher"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=None)
    finetune(
        recipe_file(tmp_path),
        table(place),
        tmp_path / "other",
        quick(seed=3),
        tokenizer=tiny_tokenizer,
    )
    with refused(RunError, tmp_path / "run", place / "teacher", tmp_path / "other"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / "other")
    with refused(RunError, tmp_path / "other", "--teacher"):
        finetune(
            recipe_file(tmp_path),
            table(place),
            tmp_path / "other",
            quick(seed=3),
            tokenizer=tiny_tokenizer,
            teacher=place / "teacher",
        )


def test_a_teacher_that_cannot_teach_is_refused(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    write_table(tmp_path / "train.csv", 40, labels=("good", "bad"))
    write_table(tmp_path / "dev.csv", 20, labels=("good", "bad"))
    with refused(ModelError, place / "teacher", "no, yes", "bad, good"):
        finetune(
            recipe_file(tmp_path),
            table(tmp_path),
            tmp_path / "run",
            config(),
            tokenizer=tiny_tokenizer,
            teacher=place / "teacher",
        )
    with refused(ModelError, tmp_path / "absent"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / "absent")
    with refused(ConfigError, "--unlabeled", "--teacher"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=None, unlabeled=more_texts(place))
    with refused(ConfigError, "--unlabeled"):
        teach(place, tmp_path / "run", tiny_tokenizer, unlabeled=[])
    assert not (tmp_path / "run" / "finetune.json").exists()


@pytest.mark.parametrize("layers", [{}, {"states": 0.5}])
def test_a_teacher_without_a_tokenizer_is_refused(
    place: Path, tiny_tokenizer: Path, tmp_path: Path, layers: dict[str, float]
) -> None:
    """Its table has as many rows as the student's tokenizer has tokens, and nobody knows what they
    stand for.
    """
    shutil.copytree(place / "teacher" / "model", tmp_path / "lacking")
    shutil.rmtree(tmp_path / "lacking" / "tokenizer")
    with refused(ModelError, tmp_path / "lacking", "no tokenizer"):
        teach(place, tmp_path / "run", tiny_tokenizer, teacher=tmp_path / "lacking", **layers)
    assert not (tmp_path / "run" / "finetune.json").exists()


def test_the_commands_as_they_are_typed(
    run: Any, place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    words = (
        "finetune",
        recipe_file(tmp_path),
        "--tokenizer",
        tiny_tokenizer,
        "--task",
        "table",
        "--data",
        place / "train.csv",
        "--dev",
        place / "dev.csv",
        "--length",
        32,
        "--epochs",
        1,
    )
    teaching = (
        "--teacher",
        place / "teacher",
        "--unlabeled",
        place / "more.csv",
        "--distill.weight",
        0.7,
    )
    status, out, _ = run(*words, *teaching, "--out", tmp_path / "run", "--json")
    assert status == 0
    assert json.loads(out)["scores"]
    status, _, err = run(*words, "--unlabeled", place / "more.csv", "--out", tmp_path / "new")
    assert status == 2
    names(err, "--unlabeled", "--teacher")
    status, _, err = run(*words, *teaching[:4], "--distill.weight", 1.5, "--out", tmp_path / "new")
    assert status == 2
    names(err, "distill.weight", "1.5")
