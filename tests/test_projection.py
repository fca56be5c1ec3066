"""The projection against counts by hand, and against what must hold on any cluster."""

from __future__ import annotations

import pytest

from litebert.config import cost, replace
from litebert.recipes.files import recipe
from projection import Cluster, project_step

LARGE = recipe("albert-xxlarge")


def test_the_largest_albert_on_64_gpus_by_hand() -> None:
    projection = project_step(LARGE, Cluster(64))
    assert projection is not None
    assert not projection.sharded
    assert projection.sequences == 64
    layer = 2 * (4 * 4096**2 + 2 * 4096 * 16384) + 4 * 512 * 4096
    assert projection.compute_seconds == pytest.approx(
        3 * 12 * layer * 64 * 512 / 396e12, rel=0.01
    )  # heads aside
    parameters = sum(cost.model_parameters(LARGE).values())
    assert projection.communication_seconds == pytest.approx(2 * 63 / 64 * 4 * parameters / 50e9)
    assert projection.days is not None
    assert projection.days[0] == pytest.approx(125_000 * projection.compute_seconds / 86400)
    assert projection.days[1] == pytest.approx(
        125_000 * (projection.compute_seconds + projection.communication_seconds) / 86400
    )


@pytest.mark.parametrize("devices", [1, 8, 512])
def test_what_is_planned_fits_and_one_sequence_more_does_not(devices: int) -> None:
    cluster = Cluster(devices)
    projection = project_step(LARGE, cluster)
    assert projection is not None
    room = cluster.usable * cluster.memory
    assert projection.memory_bytes <= room
    each = cost.memory(
        replace(LARGE, train=replace(LARGE.train, precision="bfloat16")), 1
    ).activations
    assert projection.micro_batch == projection.sequences or projection.memory_bytes + each > room


def test_what_does_not_fit_is_sharded_and_then_talks_more() -> None:
    small = Cluster(64, memory=4e9)
    projection, whole = project_step(LARGE, small), project_step(LARGE, Cluster(64))
    assert projection is not None
    assert whole is not None
    assert projection.sharded
    assert projection.memory_bytes <= 0.8 * 4e9
    assert projection.communication_seconds > whole.communication_seconds
    assert project_step(LARGE, Cluster(64, memory=1e8)) is None
