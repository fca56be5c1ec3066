"""Two hosts on one machine: network namespaces that a wire of this process joins.

Each host has a TUN device. A thread carries packets from one device to the other, so a test can
delay them, or cut the wire, without a kernel module. It needs root and the command `ip`.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

_NAMESPACE, _TUNSETIFF, _TUN_WITHOUT_HEADER = 0x40000000, 0x400454CA, 0x1001
_PACKET = 65536


class Hosts:
    """Two hosts, numbered 0 and 1."""

    addresses = ("10.77.0.1", "10.77.0.2")
    delay = 0.0
    """Seconds that a packet takes from one host to the other."""
    cut = False
    """True where packets are lost."""

    def __init__(self, names: Sequence[str], devices: Sequence[int]) -> None:
        self._names = names
        self._devices = devices
        self._processes: list[list[subprocess.Popen[bytes]]] = [[], []]
        self._done = False
        self._wire = threading.Thread(target=self._carry, daemon=True)
        self._wire.start()

    def start(
        self, host: int, command: Sequence[str], output: IO[Any], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host, in a session of its own."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._names[host], *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self._processes[host].append(process)
        return process

    def kill(self, host: int) -> None:
        """Kill every process of a host, as a failure of its power does."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._names[host]], capture_output=True, text=True, check=True
        )
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in self._processes[host]:
            process.wait()

    def close(self) -> None:
        """Kill every process of both hosts, stop the wire, and remove the hosts."""
        for host in range(2):
            self.kill(host)
        self._done = True
        self._wire.join()
        for device in self._devices:
            os.close(device)
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], check=True)

    def _carry(self) -> None:
        """Carry packets until the hosts are closed."""
        waiting: list[tuple[float, int, int, bytes]] = []  # due, order, to, packet
        order = count()
        while not self._done:
            due = waiting[0][0] - time.monotonic() if waiting else 0.1
            for device in select.select(self._devices, [], [], min(max(0.0, due), 0.1))[0]:
                packet = os.read(device, _PACKET)
                other = self._devices[1 - self._devices.index(device)]
                if not self.cut:
                    heapq.heappush(
                        waiting, (time.monotonic() + self.delay, next(order), other, packet)
                    )
            while waiting and waiting[0][0] <= time.monotonic():
                *_, other, packet = heapq.heappop(waiting)
                os.write(other, packet)


def explain_absence() -> str | None:
    """Say why this machine cannot have two hosts; None where it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "two hosts need root and the command ip"
    if not Path("/dev/net/tun").exists():
        return "two hosts need /dev/net/tun"
    name = f"litebert-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


@contextmanager
def open_hosts() -> Iterator[Hosts]:
    """Open two hosts; the block's end removes them."""
    names = [f"litebert-{os.getpid()}-{host}" for host in range(2)]
    hosts = Hosts(names, [_open_host(*pair) for pair in zip(names, Hosts.addresses, strict=True)])
    try:
        yield hosts
    finally:
        hosts.close()


def _open_host(name: str, address: str) -> int:
    """Make a network namespace with a TUN device; return the file descriptor of the device."""

    def run(*words: str) -> None:
        subprocess.run(["ip", "-n", name, *words], check=True)

    subprocess.run(["ip", "netns", "add", name], check=True)
    run("tuntap", "add", "dev", "wire", "mode", "tun")
    run("addr", "add", f"{address}/24", "dev", "wire")
    run("link", "set", "wire", "up")
    run("link", "set", "lo", "up")
    opened: list[int] = []
    # A namespace belongs to a thread, so a thread of its own enters it.
    thread = threading.Thread(target=lambda: opened.append(_open_device(name)))
    thread.start()
    thread.join()
    return opened[0]


def _open_device(name: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{name}", "rb") as namespace:
        if libc.setns(namespace.fileno(), _NAMESPACE):
            raise OSError(ctypes.get_errno(), f"cannot enter {name}")
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"wire", _TUN_WITHOUT_HEADER))
    return device
