"""A step of full fine-tuning beside a step of LoRA: the processor time and the peak of memory.

    python benchmarks/lora.py [--steps 4] [--sequences 16] [--length 128] [--layers 12]
                              [--json FILE]

All sides train BERT in the shape of its base model on two classes, with AdamW, in float32 and on
one thread, from random weights. Sides: litebert's full fine-tuning, that of `transformers`, and
LoRA by `peft` with r 8 on the maps to queries and values. Each side is a process of its own, whose
first step is not counted. The time is that of the processor, so that other work on the machine
matters little. The peak is that of the whole process, libraries included. LoRA is skipped where
`peft` is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from results import write as write_results
from torch import Tensor, nn
from torch.nn import functional as F

SIDES = ("litebert, full", "transformers, full", "peft, LoRA")
RANK, RATE, CLASSES = 8, 2e-5, 2
Step = Callable[[Tensor, Tensor], None]


def build_litebert(layers: int) -> tuple[nn.Module, Step]:
    """A classifier of litebert, and its step."""
    from litebert import recipe, replace
    from litebert.base.machine import keep_freed_memory
    from litebert.model.task_model import TaskModel
    from litebert.train.optim import Optimizers

    keep_freed_memory()  # as the command line does
    config = recipe("bert-base")
    model = TaskModel(replace(config.encoder, layers=layers), True, CLASSES).train()
    optimizers = Optimizers(model, replace(config.train.optimizer, name="adamw"))

    def step(ids: Tensor, labels: Tensor) -> None:
        mask = torch.ones_like(ids, dtype=torch.bool)
        loss: Any = F.cross_entropy(model(ids, torch.zeros_like(ids), mask), labels)
        loss.backward()
        optimizers.step(RATE)
        optimizers.zero_grad()

    return model, step


def build_transformers(layers: int, adapts: bool) -> tuple[nn.Module, Step]:
    """A classifier of `transformers`, with LoRA if `adapts`, and its step."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(num_hidden_layers=layers)
    config.num_labels = CLASSES
    model: Any = BertForSequenceClassification(config)
    if adapts:
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(task_type="SEQ_CLS", r=RANK, target_modules=["query", "value"])
        model = get_peft_model(model, lora)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, fused=True)

    def step(ids: Tensor, labels: Tensor) -> None:
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def measure(side: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure a side in this very process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if side == SIDES[0]:
        model, step = build_litebert(options.layers)
    else:
        model, step = build_transformers(options.layers, side == SIDES[2])
    seconds = []
    for _ in range(1 + options.steps):
        ids = torch.randint(1000, 30_000, (options.sequences, options.length))
        start = time.process_time()
        step(ids, ids[:, 0] % CLASSES)
        seconds.append(time.process_time() - start)
    parameters = list(model.parameters())
    return {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "seconds": statistics.median(seconds[1:]),
        "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def main() -> int:
    """Measure all sides, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument("--one", choices=SIDES, help="measure one side in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    results = {}
    for side in SIDES:
        if side == SIDES[2] and find_spec("peft") is None:
            print("peft, LoRA: skipped, peft is not installed")
            continue
        words = [sys.executable, __file__, *sys.argv[1:], "--one", side]
        answer = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[side] = figures = json.loads(answer.splitlines()[-1])
        print(
            f"{side:<20} {figures['trained']:>11,} of {figures['parameters']:,} parameters, "
            f"{figures['seconds']:6.2f} s a step, peak {figures['peak'] / 2**30:5.2f} GiB",
            flush=True,
        )
    write_results(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
