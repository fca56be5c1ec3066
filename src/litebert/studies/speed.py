"""A program that measures the speed of a config: a JSON object in, the fields of a `Rate` out."""

from __future__ import annotations

import json
import os
import sys

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
    rate = measure(config, machine, request["seconds"])
    with output:
        json.dump(vars(rate), output)


if __name__ == "__main__":
    _main()
