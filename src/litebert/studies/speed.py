"""A program that measures the speed of a config: a JSON object in, another one out.

It has the fields of a `Rate`, and the share of the time in which other programs left the core to
the measurement.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.registry import load_extensions
from litebert.train import device as devices
from litebert.train.measure import measure


def _main() -> None:
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # an extension that prints must not spoil the output
    request = json.load(sys.stdin)
    load_extensions()
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    config = from_dict(Config, request["config"])
    machine = devices.choose(config.train.precision, request["device"])
    start, start_of_process = time.perf_counter(), time.process_time()
    rate = measure(config, machine, request["seconds"])
    share = 1.0
    if request["threads"] == 1:  # more threads also wait for one another
        share = (time.process_time() - start_of_process) / (time.perf_counter() - start)
    with output:
        json.dump({"rate": vars(rate), "share": min(1.0, share)}, output)


if __name__ == "__main__":
    _main()
