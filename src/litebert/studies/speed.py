"""A program that measures the speed of one config: a JSON object in, the fields of a `Rate` out."""

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
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an extension prints goes elsewhere
    question = json.load(sys.stdin)
    load_extensions()
    if question["threads"]:
        torch.set_num_threads(question["threads"])
    config = from_dict(Config, question["config"])
    rate = measure(
        config, devices.choose(config.train.precision, question["device"]), question["seconds"]
    )
    with answer:
        json.dump(vars(rate), answer)


if __name__ == "__main__":
    _main()
