"""Pretraining: a recipe, token shards and a run folder; `evaluate` for held-out scores afterwards.

A run folder is readable by a person:

    recipe.json     the config, its budget and vocabulary resolved
    run.json        the steps the budget bought, the data and the machine, the weights it started
                    from and each extension: what makes a resumed run the same run
    tokenizer/      opens with transformers.AutoTokenizer too
    metrics.jsonl   one row per window of steps, held-out scores and remarks
    speed.jsonl     seconds and tokens per second, one row per window of steps
    checkpoints/    the newest valid ones
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from litebert import launch
from litebert.config import Config, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.cost import training_flops
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.errors import ConfigError, DataError, RunError
from litebert.model.blocks import compile_blocks
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.progress import task
from litebert.storage import checkpoints
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.evaluate import evaluate_split
from litebert.train.loop import Loop, Outcome
from litebert.train.measure import build_share_of_peak
from litebert.train.memory import choose_parallel, explain_out_of_memory, require_memory
from litebert.train.parallel import build_module, parallelize
from litebert.train.ranks import Ranks, join_group
from litebert.train.run_folder import RunFolder
from litebert.train.start import (
    CONTENTS,
    LEFTOVERS,
    list_earlier_ends,
    load_weights,
    read_optimizer,
    require_same_run,
    resolve_vocabulary,
    settle_batch_sizes,
    start_run,
    start_table,
)
from litebert.train.supply import PretrainingBatches, count_processes, make_in_processes
from litebert.train.teacher import build_record, open_teacher, refuse_other_teacher
from litebert.train.teacher_answers import open_answers

log = logging.getLogger("litebert")

IDENTITY = "run.json"
PLATEAU_NATS = 0.15
"""A loss less than this below the unigram entropy has learned little but how frequent pieces
are."""
PLATEAU_ROWS = 40
"""Rows of metrics, a fifth of a run, before that is called a plateau; and never before
`PLATEAU_STEPS`.
"""
PLATEAU_STEPS = 300

UNLABELLED_SHARE = 0.2
"""Above this share of segment pairs without a label, an objective about the order of sentences
learns from few.
"""
DIVERGED_NATS = 1.0
"""A loss that has risen this much above its lowest, and above the unigram entropy, has diverged."""
DIVERGED_ROWS = 10
"""Rows of metrics, a twentieth of a run, before that is reported."""


@dataclass(frozen=True)
class Run:
    """A pretraining run as it stands in its folder."""

    folder: Path
    config: Config
    steps: int
    outcome: Outcome


class TrainablePretrainer:
    """A `Pretrainer` with its batches, as the loop sees it (`train.trainable`)."""

    def __init__(
        self,
        config: Config,
        model: Pretrainer,
        shards: Shards,
        device: devices.Device,
        network: nn.Module | None = None,
        ranks: Ranks | None = None,
        steps: int = 0,
    ) -> None:
        """`steps` is what `PretrainingBatches` takes."""
        self.config, self.module, self.shards, self.device = config, model, shards, device
        self.network, self.ranks = network or model, ranks or Ranks()
        self.layers = config.encoder.layers
        self.batch = PretrainingBatches(config, shards, steps)
        self.diagnostic_state: dict[str, Any] = {}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {
            name: objective.count(batch) for name, objective in self.module.named_objectives.items()
        }

    def losses(self, batch: Batch, layers: int) -> dict[str, Loss]:
        losses: dict[str, Loss] = self.network(batch, layers)
        return losses

    def weights(self) -> Mapping[str, float]:
        return {name: objective.weight for name, objective in self.module.named_objectives.items()}

    def lr_scales(self) -> Mapping[str, float]:
        return {}

    def evaluate(self, shards: Shards | None = None) -> dict[str, float]:
        """Scores on the held-out part of the data of the run, or of other data."""
        with torch.compiler.set_stance(
            "force_eager"
        ):  # compiling once more would take longer than it saves
            return evaluate_split(
                self.module,
                (shards or self.shards).heldout,
                self.shards.tokenizer,
                self.device,
                length=self.config.sequences.length,
                sequences=self.config.train.evaluate_sequences,
                ranks=self.ranks,
            )

    def diagnostics(self, step: int, row: Mapping[str, Any]) -> list[str]:
        loss, random = (
            row.get(f"{_find_watched_objective(self.module)}_loss"),
            math.log(self.config.encoder.vocab_size),
        )
        warning = watch_plateau(
            self.diagnostic_state, step, loss, self.shards.unigram_entropy, random
        )
        return [warning] if warning else []


def _find_watched_objective(model: Pretrainer) -> str | None:
    """The objective whose loss falls below the unigram entropy where a model learns."""
    own = model.named_objectives.items()
    return next(
        (name for name, one in own if any(curves.unigram_entropy for curves in one.curves)), None
    )


def remark_on_short_run(loss: float | None, steps: int, entropy: float) -> str | None:
    """Remark on a run too short for `watch_plateau` whose held-out loss ends about the unigram
    entropy.
    """
    if loss is None or steps >= PLATEAU_STEPS or loss <= entropy - PLATEAU_NATS:
        return None
    return (
        f"the held-out loss, {loss:.2f} nats, is not clearly below the unigram entropy of "
        f"this data ({entropy:.2f}): "
        f"in {steps:,} steps the model has learned little more than how frequent each "
        "piece is; give it a larger budget"
    )


def watch_plateau(
    state: dict[str, Any], step: int, loss: float | None, entropy: float, random: float = math.inf
) -> str | None:
    """Warn when a run is stuck at the unigram entropy of its data, the loss of knowing only piece
    frequencies, or has diverged, and report when it has left.

    Args:
        state: smooths the loss and counts the rows between calls.
        random: the loss of guessing every piece with the same probability.
    """
    if loss is None:
        return None
    loss = state["plateau_loss"] = (
        0.8 * state.get("plateau_loss", loss) + 0.2 * loss
    )  # small batches are noisy
    lowest = state["plateau_lowest"] = min(loss, state.get("plateau_lowest", loss))
    on_it, above = loss > entropy - PLATEAU_NATS, loss > entropy + PLATEAU_NATS
    risen = loss > lowest + DIVERGED_NATS
    diverged = above and (risen or loss > random + PLATEAU_NATS)
    state["plateau_rows"] = state.get("plateau_rows", 0) + 1 if on_it else 0
    state["diverged_rows"] = state.get("diverged_rows", 0) + 1 if diverged else 0
    said = state.get("plateau_said")
    if said and not on_it:
        state["plateau_said"] = False
        what = "recovered" if said == "diverged" else "left the plateau"
        return f"step {step}: the loss has {what} ({loss:.2f}; unigram entropy {entropy:.2f})"
    if step < PLATEAU_STEPS:
        return None
    if state["diverged_rows"] >= DIVERGED_ROWS and said != "diverged":
        state["plateau_said"] = "diverged"
        how = (
            f"has risen from {lowest:.2f} to {loss:.2f}, above the unigram entropy of this "
            f"data ({entropy:.2f} nats)"
        )
        if not risen:
            how = f"({loss:.2f}) is worse than that of guessing at random ({random:.2f} nats)"
        return (
            f"step {step}: the loss {how}: the run has diverged and is unlikely to "
            "recover. Stop it and start another "
            "--out with a lower train.optimizer.learning_rate, a longer "
            "train.schedule.warmup or encoder.norm=pre"
        )
    if state["plateau_rows"] < PLATEAU_ROWS or said or diverged:
        return None
    state["plateau_said"] = True
    if above:
        return (
            f"step {step}: the loss {loss:.2f} is still above the unigram entropy of this "
            f"data ({entropy:.2f} nats): "
            "so far the model has not even learned how frequent each piece is. The "
            "train.optimizer.learning_rate may "
            "be too low, or so high that nothing is learned"
        )
    return (
        f"step {step}: the loss {loss:.2f} is stuck at the unigram entropy of this data "
        f"({entropy:.2f} nats): so far "
        "the model has learned how frequent each piece is and nothing else. Some runs "
        "leave this plateau late; to "
        "leave it sooner try train.optimizer.name=muon, encoder.norm=pre, shallower layers first "
        "(train.depth_schedule), shorter sequences, or another train.optimizer.learning_rate"
    )


def pretrain(
    recipe: Config,
    data: str | Path,
    out: str | Path,
    *,
    from_model: str | Path | None = None,
    watch: str | Path | None = None,
    teacher: str | Path | None = None,
    teacher_answers: str | Path | None = None,
    extend: str | Sequence[str] = (),
    overwrite: bool = False,
    device: str = "auto",
    tensorboard: bool = False,
    on_step: Callable[[Loop[Batch]], None] | None = None,
) -> Run:
    """Pretrain a config on token shards; the same call on the same folder continues, or returns
    what is finished.

    An extension gives a finished run a further budget. The learning rate goes, within its first
    twentieth, from where the run ended to the schedule of a run that was as long from the start,
    and follows it; the optimizer's state and the order of the data go on. The same call again
    continues the extension and does not begin another.

    Args:
        recipe: the point of the space; its `train.budget` says how long.
        data: a folder written by `prepare`.
        out: the run folder.
        from_model: a model folder whose weights a new run starts from: the encoder, and each
            objective that fits. Of a run with the same optimizer, its state too.
        watch: another folder written by `prepare` with the same tokenizer, on whose held-out part
            the model is scored at each evaluation and before the first step: what it forgets. It
            changes no weight.
        teacher: the folder of a pretrained model with the tokenizer of the data, from which is
            learned what `recipe.distill` says.
        teacher_answers: a folder that keeps its guesses, for runs that ask for the same; needs
            `distill.top_k`.
        extend: a budget, such as "30m". To extend a run again, all of them: ("30m", "1h").
        overwrite: delete the run in `out`, if there is one, and start anew.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac.
        on_step: called after every step.

    Raises:
        ConfigError: the batch does not fit in memory, a budget in time is too short, or objectives
            lack their teacher.
        DataError: the data cannot be used, holds nothing out, or has another tokenizer than the
            teacher.
        ModelError: the weights to start from do not fit, or the teacher lacks what is learned from
            it.
        RunError: the folder is in use, or holds a run of another config or of other data.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    remarks: list[str] = []
    extensions = (extend,) if isinstance(extend, str) else tuple(extend)
    with join_group() as ranks, metrics.collect_remarks(remarks):
        anew = overwrite and not launch.restarts()
        return _pretrain(
            recipe,
            data,
            out,
            from_model,
            watch,
            teacher,
            teacher_answers,
            extensions,
            anew,
            device,
            tensorboard,
            on_step,
            remarks,
            ranks,
        )


def _pretrain(
    recipe: Config,
    data: str | Path,
    out: str | Path,
    from_model: str | Path | None,
    watch: str | Path | None,
    teacher_model: str | Path | None,
    teacher_answers: str | Path | None,
    extensions: Sequence[str],
    overwrite: bool,
    device: str,
    tensorboard: bool,
    on_step: Callable[[Loop[Batch]], None] | None,
    remarks: list[str],
    ranks: Ranks,
) -> Run:
    for amount in extensions:
        parse_amount(amount, "--extend", BUDGET_UNITS)
    if overwrite and extensions:
        raise ConfigError("--extend continues a run and --overwrite deletes it; give one of them")
    folder = replace(run_folder(out), ranks=ranks)
    ranks.decide(folder.check)
    if overwrite:
        ranks.decide(folder.list_removable)
        ranks.decide(lambda: folder.protect(from_model))
        ranks.decide(lambda: folder.protect(teacher_model))
    if extensions and not ranks.decide(folder.identity_file.exists):
        raise RunError(f"{folder.path} holds no run to extend; leave --extend out to start one")
    shards = Shards.open(data, verify=True)
    if ranks.agree(shards.fingerprint) != shards.fingerprint:
        raise DataError(
            f"{shards.path} is not the same on all machines of this run; copy it from the first one"
        )
    if not shards.heldout.tokens:
        remedy = "prepare it with a --heldout above 0"
        if shards.index["settings"].get("heldout"):
            remedy = "prepare more documents, or shorter ones (--split sets where one ends)"
        raise DataError(f"{shards.path} has no held-out text to evaluate on; {remedy}")
    watched = None if watch is None else _open_watched(watch, shards)
    machine = devices.choose(recipe.train.precision, ranks.device(device))
    config, teacher = open_teacher(teacher_model, resolve_vocabulary(recipe, shards), shards)
    if teacher is not None:
        teacher.to(machine.device)  # before anyone asks how much memory is free
    answers = open_answers(teacher_answers, config, teacher, folder.path)
    taught = build_record(teacher_model, None if teacher is None else teacher.fingerprint)
    config = settle_batch_sizes(config, folder, machine, overwrite, teacher)
    if ranks.size > 1:
        config = replace(
            config, train=replace(config.train, parallel=choose_parallel(config, machine, ranks))
        )
    require_memory(
        config, machine, ranks=ranks, teacher=None if teacher is None else teacher.encoder.config
    )
    with (
        folder.lock(),
        explain_out_of_memory(machine, config.micro_sequences, config.train.recompute),
    ):
        identities = ranks.decide(lambda: [] if overwrite else folder.identities())
        model = build(config, machine, ranks)
        fresh = overwrite or not ranks.decide(lambda: checkpoints(folder.path / "checkpoints"))
        if from_model is not None and fresh and ranks.main:
            load_weights(from_model, model, shards)
        if teacher is not None:
            model.teacher = teacher
        if identities:
            refuse_other_teacher(
                folder.path, identities[-1], teacher_model, taught["teacher_fingerprint"]
            )
            run, config = require_same_run(
                folder, identities[-1], config, shards, machine, from_model, extensions, teacher
            )
        else:
            run = start_run(folder, config, shards, machine, from_model, overwrite, taught, teacher)
        if teacher is not None:
            teacher.answers = answers  # not before the speed is measured, on made-up text
        if from_model is None and fresh and ranks.main:
            start_table(model, shards)
        network = parallelize(
            model, machine.device, ranks, config.train.parallel, config.batch_sequences
        )
        ends = list_earlier_ends(run)
        steps = (*ends, run["steps"])[0]
        trainable = TrainablePretrainer(config, model, shards, machine, network, ranks, steps)
        if fresh and ranks.main:
            report_unlabeled_pairs(trainable.batch.measure_unlabeled_shares())
        loop = Loop(
            trainable=trainable,
            config=config.train,
            steps=run["steps"],
            batch_sequences=config.batch_sequences,
            device=machine,
            folder=folder.path,
            depth_schedule=config.train.depth_schedule,
            earlier_ends=ends,
            tensorboard=tensorboard,
            on_step=on_step,
            ranks=ranks,
            remarks=remarks,
            share_of_peak=build_share_of_peak(config, machine),
            work=training_flops(config, steps, None if teacher is None else teacher.encoder.config),
            watch=None if watched is None else lambda: trainable.evaluate(watched),
        )
        if from_model is not None and fresh:
            state = read_optimizer(from_model, config) if ranks.main else None
            if ranks.agree(state is not None):
                taken = loop.optimizers.start(state)
                log.info(f"the optimizer goes on with its state in {from_model} ({taken} tensors)")
        if extensions and loop.step == loop.steps:
            again = " ".join(
                shlex.quote(one["budget"]) for one in (*run["extensions"], run["extensions"][-1])
            )
            log.info(
                f"this extension is finished; to extend the run once more, give --extend {again}"
            )
        left, processes = range(loop.step, loop.steps), count_processes(config, machine)
        with make_in_processes(config, shards.path, loop.rows, left, processes, steps) as make:
            outcome = loop.run(make)
        if answers is not None:
            log.info(
                f"{answers.batches_read:,} batches of guesses were in {answers.folder}; the "
                f"teacher made {answers.batches_computed:,}"
            )
        loss = outcome.scores.get(f"{_find_watched_objective(model)}_loss")
        if outcome.finished and (
            remark := remark_on_short_run(loss, run["steps"], shards.unigram_entropy)
        ):
            log.info(remark)
        return Run(folder.path, config, run["steps"], outcome)


def report_unlabeled_pairs(shares: Mapping[int, float]) -> None:
    """Log how many pairs of segments have no label, and warn where they are many.

    Args:
        shares: the share, from 0 to 1, at each length of the run
            (`PretrainingBatches.measure_unlabeled_shares`).
    """
    if not shares:
        return
    listed = ", ".join(f"{share:.0%} at length {length}" for length, share in shares.items())
    log.info(f"pairs of segments without a label for the sentence objective: {listed}")
    length, share = max(shares.items())  # most training is at the longest
    if share > UNLABELLED_SHARE:
        log.warning(
            f"{share:.0%} of the pairs of segments have no label at length {length}: few "
            "sentences of this text fit "
            "in it; raise --sequences.length, or leave the sentence objective out with "
            "--objectives mlm"
        )


def _open_watched(watch: str | Path, shards: Shards) -> Shards:
    """The data to watch.

    Raises:
        DataError: it was prepared with another tokenizer, or holds nothing out.
    """
    watched = Shards.open(watch)
    if watched.tokenizer.fingerprint != shards.tokenizer.fingerprint:
        raise DataError(
            f"{watched.path} was not prepared with the tokenizer of {shards.path}; to "
            "watch that text, prepare it "
            f"again with --tokenizer {shards.path / 'tokenizer'}"
        )
    if not watched.heldout.tokens:
        raise DataError(
            f"{watched.path} has no held-out text to watch; prepare it with a --heldout above 0"
        )
    return watched


def run_folder(out: str | Path) -> RunFolder:
    """The folder of a pretraining run."""
    return RunFolder(Path(out), IDENTITY, LEFTOVERS, CONTENTS)


@task("building the network")
def build(config: Config, machine: devices.Device, ranks: Ranks | None = None) -> Pretrainer:
    """The untrained model, a function of the config and its seed; in a group, for `parallelize`."""
    torch.manual_seed(config.train.seed)
    model = build_module(
        lambda: Pretrainer(config), machine.device, ranks or Ranks(), config.train.parallel
    )
    if config.train.compile:
        compile_blocks(model)
    return model
