"""MLflow: the store that MLFLOW_TRACKING_URI names, or a store of files in `mlruns` beside the run
folder.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.train.trackers.tracker import TrackedRun, Tracker


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
    """Return parameters by dotted names, with values as short as MLflow takes them."""
    flat: dict[str, str] = {}
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = str(value)[:500]
    return flat
