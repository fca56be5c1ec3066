"""A baseline of the speedrun: what a person who knows `transformers` starts, in its Trainer.

    python benchmarks/speedrun/baseline.py albert|modernbert --shards SHARDS --out FOLDER
    --minutes 30 [--rate 1e-3]
                                           [--shape tiny|mini]

The shape is that of albert-mini, 8 layers of H 256 (ALBERT: E 128) on rows of 128 tokens, or of
albert-tiny, 6 layers of H 128 (E 64) on rows of 64. Scaled dot product attention, fused AdamW,
bfloat16 where the machine computes it, warm-up and linear decay over just as many steps as the time
allows, which is measured first and not counted. Batches come ready from the shards, so that no
collator is waited for. At each point of the curve the weights are saved, to be scored when the run
is over.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from protocol import SHAPES, Shape
from transformers import Trainer, TrainerCallback, TrainingArguments

from litebert import Shards
from litebert.config import MaskingConfig, SequenceConfig
from litebert.data.batches import Batches
from litebert.train import device as devices

MEASURED = 8
"""Steps that tell how many the time allows, after two that warm up."""


def network(kind: str, vocab_size: int, pad_id: int, size: Shape) -> Any:
    """The untrained model of `transformers`."""
    shape: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "pad_token_id": pad_id,
        "max_position_embeddings": 512,
    }
    family: Any
    if kind == "albert":
        settings: Any = transformers.AlbertConfig(
            **shape,
            embedding_size=size.embedding,
            intermediate_size=4 * size.hidden,
            classifier_dropout_prob=0.0,
        )
        family = transformers.AlbertForPreTraining
    else:
        settings = transformers.ModernBertConfig(
            **shape, intermediate_size=2 * size.hidden, local_attention=128
        )
        family = transformers.ModernBertForMaskedLM
    return family._from_config(settings, attn_implementation="sdpa")


def batches(kind: str, shards: Shards, seed: int, size: Shape) -> Iterator[dict[str, Any]]:
    """Rows as each system's paper has them: ALBERT's pairs with n-gram masks, ModernBERT's full
    rows with 30%.
    """
    pairs = kind == "albert"
    layout = SequenceConfig(
        format="segment-pair" if pairs else "full-sentences",
        length=size.length,
        short_probability=0.0,
    )
    masking = MaskingConfig() if pairs else MaskingConfig(rate=0.3, unit="token", span="single")
    make = Batches(
        shards.train, shards.tokenizer, layout, masking, "sop" if pairs else None, size.batch, seed
    )
    step = 0
    while True:
        batch = make(step, slice(0, size.batch))
        labels = torch.full(batch.input_ids.shape, -100)
        labels.view(-1)[batch.masked_positions] = batch.masked_labels
        row = {"input_ids": batch.input_ids, "labels": labels}
        if batch.attention_mask is not None:
            row["attention_mask"] = batch.attention_mask.long()
        if pairs:
            row |= {
                "token_type_ids": batch.token_type_ids,
                "sentence_order_label": batch.sentence_labels,
            }
        yield row
        step += 1


class Ready(Trainer):
    """A Trainer whose batches are ready."""

    def __init__(self, rows: Iterator[dict[str, Any]], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rows = rows

    def get_train_dataloader(self) -> Any:
        return self.rows


class Clock(TrainerCallback):
    """Saves the weights at the points of the curve, which the clock does not count, and stops when
    the time is up.
    """

    def __init__(self, folder: Path, began: float, seconds: float, points: int) -> None:
        self.folder, self.began, self.seconds, self.points = folder, began, seconds, points
        self.times: list[tuple[int, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **inputs: Any) -> None:
        passed = time.monotonic() - self.began
        if (
            passed >= self.seconds * (len(self.times) + 1) / self.points
            or state.global_step == state.max_steps
        ):
            begun = time.monotonic()
            inputs["model"].save_pretrained(self.folder / f"point-{len(self.times)}")
            self.times.append((state.global_step, passed))
            self.began += time.monotonic() - begun
        control.should_training_stop = control.should_training_stop or passed >= self.seconds


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("albert", "modernbert"))
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument(
        "--began", type=float, default=time.monotonic(), help="when the clock started"
    )
    parser.add_argument(
        "--steps", type=int, help="as many as the time allows, where that was measured before"
    )
    parser.add_argument("--shape", default="mini", choices=SHAPES)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    shards, machine, size = (
        Shards.open(options.shards),
        devices.choose("auto"),
        SHAPES[options.shape],
    )
    torch.manual_seed(options.seed)
    model = network(options.kind, shards.tokenizer.vocab_size, shards.tokenizer.pad_id, size)

    def trainer(steps: int, **more: Any) -> Trainer:
        arguments = TrainingArguments(
            output_dir=str(options.out / "trainer"),
            max_steps=steps,
            per_device_train_batch_size=size.batch,
            learning_rate=options.rate,
            warmup_steps=max(1, round(0.05 * steps)),
            weight_decay=0.01,
            optim="adamw_torch_fused",
            bf16=machine.autocast is not None,
            seed=options.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=machine.device.type == "cpu",
        )
        return Ready(
            batches(options.kind, shards, options.seed, size), model=model, args=arguments, **more
        )

    if options.steps is None:
        trainer(2).train()
        began = time.monotonic()
        trainer(MEASURED).train()
        options.out.mkdir(parents=True, exist_ok=True)
        each = (time.monotonic() - began) / MEASURED
        steps = {"steps": int(60 * options.minutes / each), "seconds_per_step": each}
        (options.out / "steps.json").write_text(json.dumps(steps), encoding="utf-8")
        return
    clock = Clock(options.out, options.began, 60 * options.minutes, options.points)
    trainer(options.steps, callbacks=[clock]).train()
    facts = {
        "times": clock.times,
        "steps": clock.times[-1][0],
        "tokens": clock.times[-1][0] * size.batch * size.length,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    for number in range(len(clock.times)):
        shards.tokenizer.save(options.out / f"point-{number}")
    (options.out / "run.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
