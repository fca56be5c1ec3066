"""The search for hyper-parameters: Optuna tries configs on folds of the training part, and the run
is trained with the best of them.

A trial trains on two thirds of the training rows and is scored on the others, three times. The
development part is never read, so that the scores of the run stay honest. Trials that fall behind
the median of those before them are stopped early. The journal of the study lies in the run folder:
a search that was killed goes on with the trial that it lost.
"""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from litebert import progress
from litebert.config import replace
from litebert.config.amounts import parse_amount
from litebert.config.distillation import TaskDistillConfig
from litebert.config.finetuning import FinetuneConfig
from litebert.data.random_keys import derive, permute
from litebert.errors import (
    ConfigError,
    MissingExtraError,
    NonFiniteError,
    RunError,
    nearest,
    require,
)
from litebert.finetuning.batches import TaskBatch, TaskBatches
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.items import Item
from litebert.finetuning.prepared import FinetuneRequest, PreparedTask, prepare_task
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.json_reader import read_json
from litebert.storage import write_json
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.ranks import Ranks

log = logging.getLogger("litebert")

JOURNAL, SEARCH = "search.journal", "search.json"
"""The files of a run folder: the study as Optuna writes it, and its result."""
LOCK = f"{JOURNAL}.lock"
SEARCHED = (JOURNAL, SEARCH, LOCK)
"""All that a search writes."""
FOLDS = 3
MOST_ROWS = 6_000
"""Training rows that a trial reads, at most: a random part of a larger table."""
FEWEST_TRIALS = 4
"""Trials before the first is stopped early."""
_ORDER, _LOOKS = 73, 3
_BATCHES = (8, 16, 32, 64)
_DECAYS = (1.0, 0.9, 0.8, 0.65)
FIELDS = ("rate", "epochs", "batch", "head", "length", "layer_decay")
"""The names of all that is searched, unless a person gives it."""


def require_search(budget: str, task: Any, fixed: Collection[str] = ()) -> tuple[float, int]:
    """Return the seconds and the trials of a search, of which one has no limit, if it is possible.

    Args:
        fixed: as `search_config` takes it.

    Raises:
        ConfigError: the budget is no time and no number of trials, a name is not searched, or the
            task answers otherwise than with a class, labels or a number of whole texts.
        MissingExtraError: Optuna is not installed.
    """
    for name in fixed:
        require(name in FIELDS, f"fixed has '{name}'; {nearest(name, FIELDS)}")
    counted = re.fullmatch(r"\s*([1-9]\d*)\s*trials?\s*", budget)
    if counted is None and not re.search(r"\d\s*[a-z]", budget):
        raise ConfigError(f"search is '{budget}'; write it like 20m or 30 trials")
    limits = (
        (parse_amount(budget, "search", ("time",)).value, sys.maxsize)
        if counted is None
        else (math.inf, int(counted[1]))
    )
    if find_spec("optuna") is None:
        raise MissingExtraError("optuna", "search")
    require(
        task.output.linear,
        "search is for classes, labels and numbers of whole texts, and this task answers with "
        f"{task.output.name}; leave it out",
    )
    return limits


def search_config(
    request: FinetuneRequest, budget: str, fixed: Collection[str] = ()
) -> tuple[FinetuneConfig, str]:
    """Search for the config of a run, or read the result of a search that has ended in its folder.

    Args:
        request: with `start` and `config`; the search lies in `request.out`.
        budget: how long, such as 20m or 30 trials, over all processes that go on with it.
        fixed: the names of `FIELDS` that keep the values of the config.

    Returns:
        The config of the best trial, with no open choices, and a sentence about the search.

    Raises:
        ConfigError, MissingExtraError: as `require_search`.
        RunError: the folder holds another search.
    """
    limits = require_search(budget, request.files.task, fixed)
    start, config = request.start, request.config
    assert start is not None
    assert config is not None
    # The rate and the head are searched, so no short runs choose them.
    config = replace(
        config,
        choose=tuple(name for name in config.choose if name in ("length", "batch", "epochs")),
        fit_head=False,
        distill=TaskDistillConfig(),
    )
    plain = replace(request, config=config, teachers=(), unlabeled=None)
    prepared = prepare_task(plain, start, config)
    prepared.announce_baseline(request.folders)
    machine = devices.choose(config.train.precision, request.device)
    if (request.out / "finetune.json").exists() and not (request.out / SEARCH).exists():
        raise RunError(
            f"{request.out} holds a run without a search; leave --search out, or give another --out"
        )
    search = _Search(prepared, request.out, machine, frozenset(fixed))
    search.run(*limits)
    return search.finish(budget)


@dataclass
class _Search:
    """A study in a run folder."""

    prepared: PreparedTask
    folder: Path
    machine: devices.Device
    fixed: frozenset[str]

    def __post_init__(self) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self.folder.mkdir(parents=True, exist_ok=True)
        # Optuna's own lock, which a killed process leaves; the lock of the folder holds others off.
        (self.folder / LOCK).unlink(missing_ok=True)
        seed = self.prepared.config.train.seed
        self.study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(self.folder / JOURNAL))),
            study_name="search",
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=FEWEST_TRIALS),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=FEWEST_TRIALS),
            direction="maximize",
            load_if_exists=True,
        )
        self.space = self._describe_space()
        identity = {"space": {name: list(map(str, values)) for name, values in self.space.items()}}
        before = self.study.user_attrs.get("identity", identity)
        if before != identity:
            raise RunError(
                f"{self.folder / JOURNAL} holds a search over other values; give its options "
                "again, or another --out"
            )
        self.study.set_user_attr("identity", identity)
        self._items: dict[int, list[Item]] = {}
        self._folds = self._deal_folds()

    def _describe_space(self) -> dict[str, tuple[Any, ...]]:
        """Describe what is searched: two ends of a range of the rate and the epochs, and the values
        of the others.
        """
        config, prepared = self.prepared.config, self.prepared
        rate = config.train.optimizer.learning_rate
        rows, positions = len(prepared.train.items), prepared.start.encoder.max_positions
        batches = {size for size in _BATCHES if size <= max(8, rows // 8)} | {prepared.batch}
        shorter = max(16, config.length // 2)
        lengths = {length for length in (shorter, config.length) if length <= positions}
        space: dict[str, tuple[Any, ...]] = {
            "rate": (min(3e-5, rate), max(3e-3, rate)),
            "batch": tuple(sorted(batches)),
            "length": tuple(sorted(lengths)),
            "layer_decay": tuple(sorted({*_DECAYS, config.layer_decay})),
        }
        if not config.steps:
            space["epochs"] = (config.epochs / 2, config.epochs * 2)
        if prepared.start.state is not None:
            space["head"] = ("mean", "paper")
        return {
            name: values
            for name, values in space.items()
            if name not in self.fixed and len(set(values)) > 1
        }

    def _deal_folds(self) -> list[list[int]]:
        """Deal the training examples, by their places, to folds."""
        places = sorted({item.example for item in self.prepared.train.items})
        order = permute(np.arange(len(places)), len(places), derive(0, _ORDER, 0))
        dealt = [place for _, place in sorted(zip(order.tolist(), places, strict=True))][:MOST_ROWS]
        require(
            len(dealt) >= 2 * FOLDS,
            f"search divides the training rows by {FOLDS}, and there are {len(dealt)}; give more "
            "rows, or leave search out",
        )
        return [sorted(dealt[fold::FOLDS]) for fold in range(FOLDS)]

    # ------------------------------------------------------------------------------------- trials

    def run(self, seconds: float, most: int) -> None:
        """Run trials until the time is over or there are as many as asked for; a trial that was
        killed begins again.
        """
        if (self.folder / SEARCH).is_file():
            return
        states = self._optuna.trial.TrialState
        for lost in self.study.get_trials(states=(states.RUNNING,)):
            self.study.tell(lost.number, state=states.FAIL)
            self.study.enqueue_trial(lost.params)
        if not self.study.trials:
            self.study.enqueue_trial(self._list_defaults())
        spent = sum(trial.duration.total_seconds() for trial in self.study.trials if trial.duration)
        began = time.monotonic() - spent
        with progress.task("searching", unit="trials") as bar:
            bar.advance(self._count_ended())
            while not self._completed or (
                time.monotonic() - began < seconds and self._count_ended() < most
            ):
                self._try(began + seconds)
                bar.advance()

    def _count_ended(self) -> int:
        """Count the trials that came to their end or were stopped."""
        states = self._optuna.trial.TrialState
        return len(self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))

    @property
    def _completed(self) -> list[Any]:
        """The trials that came to their end."""
        return list(self.study.get_trials(states=(self._optuna.trial.TrialState.COMPLETE,)))

    def _list_defaults(self) -> dict[str, Any]:
        """List the values of the config itself, which are tried first."""
        config = self.prepared.config
        values = {
            "rate": config.train.optimizer.learning_rate,
            "epochs": config.epochs,
            "batch": self.prepared.batch,
            "head": config.head_reads,
            "length": config.length,
            "layer_decay": config.layer_decay,
        }
        return {name: values[name] for name in self.space}

    def _try(self, deadline: float) -> None:
        """Run a trial, to its end or until it is stopped."""
        trial = self.study.ask()
        values = {name: self._suggest(trial, name, ends) for name, ends in self.space.items()}
        config = _apply(self.prepared.config, values)
        scores: list[float] = []
        states, look = self._optuna.trial.TrialState, 0
        try:
            for fold in range(FOLDS):
                for share, score in self._train(config, fold):
                    trial.report(float(np.mean([*scores, score])), look)
                    look += 1
                    late = time.monotonic() > deadline and bool(self._completed)
                    if late or trial.should_prune():
                        self.study.tell(trial, state=states.PRUNED)
                        return
                    if share == 1:
                        scores.append(score)
        except NonFiniteError:
            self.study.tell(trial, state=states.FAIL)
            return
        self.study.tell(trial, float(np.mean(scores)))

    @staticmethod
    def _suggest(trial: Any, name: str, values: Sequence[Any]) -> Any:
        if name in ("rate", "epochs"):
            return trial.suggest_float(name, *values, log=True)
        return trial.suggest_categorical(name, list(values))

    def _train(self, config: FinetuneConfig, fold: int) -> Iterator[tuple[float, float]]:
        """Train without a fold, and yield the share of the training that is done and the score on
        the fold, a few times; the last share is 1.
        """
        held = set(self._folds[fold])
        chosen = {place for places in self._folds for place in places}
        items = [item for item in self._encode(config.length) if item.example in chosen]
        learned = [item for item in items if item.example not in held]
        tried = [item for item in items if item.example in held]
        score = self._make_scorer(tried)
        trainable, loop = self._make_loop(config, learned)
        trainable.module.train()
        looks = {max(1, loop.steps * look // _LOOKS) for look in range(1, _LOOKS + 1)}
        while loop.step < loop.steps:
            loop.train_step()
            if loop.step in looks:
                share = loop.step / loop.steps
                yield share, score(trainable)

    def _encode(self, length: int) -> list[Item]:
        """Encode the labeled training examples as rows of a length; once for each length."""
        if length == self.prepared.config.length:
            return self.prepared.train.items
        if length not in self._items:
            tokenizer = self.prepared.start.tokenizer
            items = self.prepared.task.encode(self.prepared.train.examples, tokenizer, length)
            self._items[length] = [item for item in items if item.target is not None]
        return self._items[length]

    def _make_scorer(self, tried: Sequence[Item]) -> Callable[[TrainableTaskModel], float]:
        """Make the function that scores a model on rows that it did not learn from."""
        task, examples = self.prepared.task, self.prepared.train.examples
        places = sorted({item.example for item in tried})
        rank = {place: number for number, place in enumerate(places)}
        held = [examples[place] for place in places]
        items = [replace(item, example=rank[item.example]) for item in tried]

        def score(trainable: TrainableTaskModel) -> float:
            answers = task.answers(held, items, trainable.logits_of_items(items))
            value = task.score(held, answers)[task.metric]
            return value if np.isfinite(value) else -1e9

        return score

    def _make_loop(
        self, config: FinetuneConfig, learned: list[Item]
    ) -> tuple[TrainableTaskModel, Loop[TaskBatch]]:
        """Make the loop of a trial, which writes nothing."""
        train = replace(self.prepared.train, items=learned)
        prepared = replace(self.prepared, config=config, train=train)
        output, targets = prepared.task.output.fit([item.target for item in learned])
        output = output.weigh(config, targets)
        items = [
            replace(item, target=target) for item, target in zip(learned, targets, strict=True)
        ]
        schedule = config.train.schedule
        if schedule.warmup >= 1:  # steps of the whole run
            schedule = replace(schedule, warmup=schedule.warmup / self.prepared.steps)
        settings = replace(config.train, schedule=schedule)
        if settings.micro_batch == "auto":  # how much fits is measured when the run starts
            settings = replace(settings, micro_batch=min(8, prepared.batch))
        model = build_task_model(prepared.start, prepared.task, config).to(self.machine.device)
        batches = TaskBatches(
            items,
            output,
            prepared.start.tokenizer.pad_id,
            prepared.batch,
            prepared.steps,
            config.train.seed,
            positions=model.encoder.config.max_positions,
            deletion=config.deletion,
        )
        aside = self.folder / "search"  # where nothing is written
        trainable = TrainableTaskModel(
            model, output, batches, prepared, self.machine, aside, network=model, ranks=Ranks()
        )
        loop = Loop(
            trainable=trainable,
            config=settings,
            steps=prepared.steps,
            batch_sequences=prepared.batch,
            device=self.machine,
            folder=aside,
        )
        return trainable, loop

    # ------------------------------------------------------------------------------------- result

    def finish(self, budget: str) -> tuple[FinetuneConfig, str]:
        """Write search.json if it is not there; return the best config, and a sentence."""
        file = self.folder / SEARCH
        if not file.is_file():
            write_json(file, self._build_record(budget))
        record = read_json(file, RunError)
        try:
            best = record["best"]
            config = _apply(self.prepared.config, best["values"])
            stopped = sum(trial["state"] == "stopped" for trial in record["trials"])
            values = ", ".join(f"{name} {_format(value)}" for name, value in best["values"].items())
            return config, (
                f"search of {len(record['trials'])} trials, {stopped} stopped early: "
                f"{record['metric']} {best['score']:.4g} on folds of the training part, where the "
                f"first values have {record['trials'][0]['score']:.4g}; {values}"
            )
        except (KeyError, TypeError, ValueError, ConfigError, IndexError):
            raise RunError(f"{file} was changed; restore it, or give another --out") from None

    def _build_record(self, budget: str) -> dict[str, Any]:
        """Build the content of search.json."""
        states = {"COMPLETE": "finished", "PRUNED": "stopped"}
        trials = [
            {
                "number": trial.number,
                "state": states.get(trial.state.name, "failed"),
                "score": (
                    trial.value
                    if trial.value is not None
                    else max(trial.intermediate_values.items(), default=(0, None))[1]
                ),
                "seconds": 0.0 if trial.duration is None else trial.duration.total_seconds(),
                "values": trial.params,
            }
            for trial in self.study.trials
            if trial.state.is_finished()
        ]
        best = self.study.best_trial
        return {
            "budget": budget,
            "metric": self.prepared.task.metric,
            "folds": [len(fold) for fold in self._folds],
            "trials": trials,
            "best": {"number": best.number, "score": best.value, "values": best.params},
        }


def _apply(config: FinetuneConfig, values: Mapping[str, Any]) -> FinetuneConfig:
    """Return a config with the values of a trial, and no open choices."""
    train = config.train
    optimizer = replace(
        train.optimizer, learning_rate=values.get("rate", train.optimizer.learning_rate)
    )
    batch = f"{values['batch']} sequences" if "batch" in values else train.batch
    return replace(
        config,
        choose=(),
        length=values.get("length", config.length),
        epochs=values.get("epochs", config.epochs),
        head_reads=values.get("head", config.head_reads),
        layer_decay=values.get("layer_decay", config.layer_decay),
        train=replace(train, batch=batch, optimizer=optimizer),
    )


def _format(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
