"""Two hosts train one model: the losses of one process, and an end for everything that breaks.

`toys.hosts` makes the hosts. Each has a run folder of its own, as machines without a common disk.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from toys.hosts import Hosts, explain_absence, open_hosts
from train.test_ranks import assert_same_course, newest, weights, words_of

pytestmark = pytest.mark.slow

STEPS = ("--budget", "120 steps", "--train.save-every", "20 steps")
SOURCES = str(Path(__file__).resolve().parents[2] / "src")
SENTENCE = "did not answer for"


@pytest.fixture(scope="module")
def _two_hosts() -> None:
    if reason := explain_absence():
        pytest.skip(reason)


@pytest.fixture
def hosts(_two_hosts: None) -> Iterator[Hosts]:
    with open_hosts() as opened:
        yield opened


class Run:
    """`litebert pretrain` on both hosts under torchrun."""

    def __init__(
        self,
        hosts: Hosts,
        folder: Path,
        data: Path,
        out: str,
        *more: object,
        wait_minutes: float = 5.0,
        rendezvous: str = "read_timeout=60",
        second: Sequence[str] = (),
    ) -> None:
        """Start the commands.

        Args:
            rendezvous: a further setting of torchrun's rendezvous.
            second: the words before the second host's command.
        """
        self.folder = folder / out
        environment = {
            "PYTHONPATH": SOURCES,
            "OMP_NUM_THREADS": "1",
            # The name of this machine leads to neither host.
            "GLOO_SOCKET_IFNAME": "wire",
            "LITEBERT_WAIT_MINUTES": str(wait_minutes),
        }
        self._logs = [folder / f"{out}-{host}.txt" for host in range(2)]
        self._processes = []
        for host, log in enumerate(self._logs):
            words = words_of(folder, data, out if host == 0 else f"{out}-second", *STEPS, *more)
            command = [
                *(second if host else ()),
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{Hosts.addresses[0]}:29500"),
                *("--rdzv-conf", f"is_host={int(host == 0)},{rendezvous}"),
                *("--local-addr", Hosts.addresses[host], "--monitor-interval", "0.5"),
                *("-m", "litebert", *map(str, words)),
            ]
            with open(log, "wb") as output:
                self._processes.append(hosts.start(host, command, output, environment))

    def await_checkpoint(self, step: int = 0) -> None:
        """Wait for a checkpoint of a later step."""
        self._await(lambda: newest(self.folder) > step, 120)

    def await_sentence(self, host: int, sentence: str, seconds: float) -> None:
        """Wait until a host's command has said something."""
        self._await(lambda: sentence in self.output(host), seconds)

    def end(self, host: int, seconds: float) -> int:
        """Wait for the end of a host's command; return its status."""
        self._await(lambda: self._processes[host].poll() is not None, seconds)
        return self._processes[host].wait()

    def output(self, host: int) -> str:
        return self._logs[host].read_text("utf-8", "replace")

    def _await(self, condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.output(0) + self.output(1)
            time.sleep(0.1)


@pytest.fixture(scope="module")
def undisturbed(
    _two_hosts: None, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run on both hosts that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with open_hosts() as hosts:
        run = Run(hosts, folder, tiny_data, "run")
        assert [run.end(host, 300) for host in range(2)] == [0, 0], run.output(0) + run.output(1)
        assert not (folder / "run-second").exists(), "only the first host has the run"
        assert "Traceback" not in run.output(1)
    return run.folder


def test_two_hosts_train_as_one_process_does(
    undisturbed: Path, tiny_data: Path, tmp_path: Path
) -> None:
    words = words_of(tmp_path, tiny_data, "one", *STEPS)
    subprocess.run([sys.executable, "-m", "litebert", *map(str, words)], check=True)
    # The order of sums differs, and 120 steps let the difference of the last bits grow.
    assert_same_course(undisturbed, tmp_path / "one", tolerance=2e-2)


def test_a_slow_wire_changes_no_bit(
    hosts: Hosts, undisturbed: Path, tiny_data: Path, tmp_path: Path
) -> None:
    hosts.delay = 0.05
    run = Run(hosts, tmp_path, tiny_data, "run")
    assert [run.end(host, 600) for host in range(2)] == [0, 0], run.output(0)
    assert weights(run.folder) == weights(undisturbed)


def test_a_wire_that_is_cut_for_a_minute_changes_no_bit(
    hosts: Hosts, undisturbed: Path, tiny_data: Path, tmp_path: Path
) -> None:
    run = Run(hosts, tmp_path, tiny_data, "run", rendezvous="read_timeout=600")
    run.await_checkpoint()
    hosts.cut = True
    time.sleep(60)
    assert newest(run.folder) < 120, "the cut must fall into the training"
    hosts.cut = False
    assert [run.end(host, 400) for host in range(2)] == [0, 0], run.output(0)
    assert weights(run.folder) == weights(undisturbed)


@pytest.mark.parametrize("dead", [0, 1])
def test_a_host_that_dies_ends_the_other_and_the_run_goes_on_bit_for_bit(
    dead: int, hosts: Hosts, undisturbed: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """The wire is cut too: a machine without power closes no connection."""
    run = Run(hosts, tmp_path, tiny_data, "run", wait_minutes=0.25)
    run.await_checkpoint()
    hosts.cut = True
    hosts.kill(dead)
    # A quarter of a minute of waiting, and no two hours. torchrun itself may wait for minutes for
    # a store that vanished.
    run.await_sentence(1 - dead, SENTENCE, 100)
    hosts.kill(1 - dead)
    hosts.cut = False
    run = Run(hosts, tmp_path, tiny_data, "run")
    assert [run.end(host, 300) for host in range(2)] == [0, 0], run.output(0)
    assert "continuing from step" in run.output(0)
    assert weights(run.folder) == weights(undisturbed)


def test_the_second_host_needs_no_disk(
    hosts: Hosts, undisturbed: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """No file can grow beyond 64 kB there, which is less than a checkpoint."""
    full = ("bash", "-c", 'set -o pipefail; (ulimit -f 64; exec "$@") 2>&1 | cat', "bash")
    run = Run(hosts, tmp_path, tiny_data, "run", second=full)
    assert [run.end(host, 300) for host in range(2)] == [0, 0], run.output(0) + run.output(1)
    assert weights(run.folder) == weights(undisturbed)
