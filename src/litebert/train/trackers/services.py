"""The trackers of four services.

TensorBoard: event files in the run folder, read by `tensorboard --logdir RUN/tensorboard`.
MLflow: the store that MLFLOW_TRACKING_URI names, or a store of files in `mlruns` beside the run
folder. Trackio: a database in the folder that TRACKIO_DIR names, read by `trackio show`. Weights &
Biases: online where there is a key, else offline in RUN/wandb, from where `wandb sync` uploads.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from uuid import uuid4

from litebert.base.storage import json_text
from litebert.train.trackers import TrackedRun, Tracker


class TensorBoard(Tracker):
    """Writes event files, which hold numbers and texts alone."""

    package, extra = "tensorboard", "tensorboard"
    repeats = True  # rows after the checkpoint are purged when a run continues

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purged = None if run.resume is None else run.resume + 1
        self._writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=purged)
        if not run.memory:
            self._writer.add_text("config", f"```json\n{json_text(dict(run.config))}\n```")
        run.memory["folder"] = "tensorboard"

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def note(self, step: int, message: str) -> None:
        self._writer.add_text("event", message, step)

    def close(self) -> None:
        self._writer.close()


class Mlflow(Tracker):
    """A run of the experiment MLFLOW_EXPERIMENT_NAME, or litebert."""

    package, extra = "mlflow", "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # A server that is down holds a run up for seconds; by itself MLflow tries for minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        store = (run.folder.resolve().parent / "mlruns").as_uri()
        address = run.memory.get("store") or os.environ.get("MLFLOW_TRACKING_URI") or store
        if address.startswith("sqlite:///"):  # of which MLflow tries to open ten times
            sqlite3.connect(address.removeprefix("sqlite:///").partition("?")[0]).close()
        if address.startswith("file:"):  # which MLflow refuses unless it is asked for
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self._metric: Any = Metric
        self._client: Any = MlflowClient(tracking_uri=address)
        if "run_id" in run.memory:
            self._id = run.memory["run_id"]
            self._client.update_run(self._id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "litebert"
        experiment: Any = self._client.get_experiment_by_name(name)
        place = (
            self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        )
        record = self._client.create_run(place, run_name=run.name)
        self._id = record.info.run_id
        for key, value in _flatten(run.config).items():
            self._client.log_param(self._id, key, value)
        run.memory.update({"run_id": self._id, "store": address})

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def keep(self, name: str, kind: str, path: Path) -> None:
        keep = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        keep(self._id, str(path), kind)

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _flatten(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = str(value)[:500]
    return flat


class Trackio(Tracker):
    """A run of the project litebert."""

    package, extra = "trackio", "trackio"

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._library: Any = trackio
        # Trackio knows runs by their names, and folders may have the same name.
        self._name = run.memory.setdefault("name", f"{run.name}-{uuid4().hex[:6]}")
        self._run: Any = trackio.init(
            project="litebert",
            name=self._name,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def keep(self, name: str, kind: str, path: Path) -> None:
        artifact = self._library.Artifact(f"{self._name}-{name}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()


class Wandb(Tracker):
    """A run of the project WANDB_PROJECT, or litebert."""

    package, extra = "wandb", "wandb"

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._library: Any = wandb
        self._id = run.memory.setdefault("id", uuid4().hex[:12])
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            x_disable_meta=True,
        )
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "litebert",
            id=self._id,
            name=run.name,
            config=dict(run.config),
            dir=str(run.folder),
            resume="allow",
            mode=None if _has_key() else "offline",
            settings=settings,
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def keep(self, name: str, kind: str, path: Path) -> None:
        artifact = self._library.Artifact(f"{name}-{self._id}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()


def _has_key() -> bool:
    """Return True if there is a key or a mode: else the library asks on the terminal, and waits."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE"):
        return True
    try:
        return any("wandb" in host for host in netrc().hosts)
    except (OSError, NetrcParseError):
        return False
