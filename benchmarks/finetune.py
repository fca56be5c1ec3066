"""Fine-tuning beside the Trainer of `transformers`: the same weights, rows and hyper-parameters, in
turns.

    python benchmarks/finetune.py [GLUE] [--model FOLDER] [--tasks sst2 cola] [--rows 8000]
    [--repeats 3]
                                  [--precision float32] [--json FILE]

GLUE is the folder with SST-2/ and CoLA/; without it, sentences of the built-in corpus in the form
of SST-2 are taken, and --tasks must be sst2. Without --model the encoder is an untrained one of H
128 and 4 layers with a WordPiece tokenizer trained on the task's own sentences: for the time it
makes no difference, and both start from the same weights. Both run in one precision, first on a few
rows to be warm. Prints the median wall time of each, their ratio, and the scores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
from results import write as write_results

from litebert.config import Config, EncoderConfig, SequenceConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.run import finetune
from litebert.interop import LoadedModel, save_hf
from litebert.judge.seeds import compute_noise
from litebert.model.pretrainer import Pretrainer
from litebert.recipes.finetuning import finetune_preset
from litebert.tasks.glue import Glue, GlueFiles
from litebert.text.records import Notes
from litebert.text.sources import read_documents
from litebert.tokenizer.training import train_tokenizer

EPOCHS, BATCH, LENGTH = 2, 32, 128
Precision = Literal["float32", "bfloat16"]


class Cut(GlueFiles):
    """The files of a GLUE task with so many training rows at most."""

    def __init__(self, name: str, source: str, rows: int) -> None:
        super().__init__(Glue.of(name), source)
        self._rows = rows
        self.task = replace(self.task, tests=())

    @property
    def metric(self) -> str:
        return self.task.metric

    def read(self, split: str, notes: Notes | None = None) -> Any:
        examples = super().read(split, notes)
        return examples[: self._rows] if split == "train" else examples


def made_up(folder: Path) -> Path:
    """A folder of GLUE whose SST-2 asks whether a sentence of the built-in corpus speaks of a
    return.
    """
    place = folder / "SST-2"
    place.mkdir(parents=True)
    texts = (
        " ".join(line.split())
        for document in read_documents(["python-docs"])
        for line in document.text.split(". ")
    )
    rows = [f"{text}\t{int('return' in text.lower())}\n" for text in texts if 20 < len(text) < 250]
    for name, part in (("dev", rows[:400]), ("train", rows[400:])):
        (place / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(part), encoding="utf-8")
    return folder


def build_untrained(folder: Path, task: Cut) -> Path:
    """A small BERT as a Hugging Face folder."""
    texts = [example.text for example in task.read("train")]
    words = train_tokenizer(texts, kind="wordpiece", vocab_size=3000)
    encoder = EncoderConfig(
        vocab_size=words.vocab_size,
        embedding_size=128,
        hidden_size=128,
        layers=4,
        heads=4,
        intermediate_size=512,
        max_positions=128,
        sharing="none",
        activation="gelu",
    )
    config = Config(
        name="small", encoder=encoder, sequences=SequenceConfig(length=128), objectives=("mlm",)
    )
    save_hf(LoadedModel(Pretrainer(config), config, words, folder / "hf"), folder / "hf")
    return folder / "hf"


def settings(seed: int, rate: float, precision: Precision) -> FinetuneConfig:
    base = finetune_preset("small", "any")
    optimizer = replace(base.train.optimizer, learning_rate=rate, bias_correction=True)
    train = replace(
        base.train,
        batch=f"{BATCH} sequences",
        precision=precision,
        seed=seed,
        evaluate_every="100%",
        save_every="100000 steps",
        optimizer=optimizer,
    )
    return replace(base, epochs=EPOCHS, length=LENGTH, train=train, restart=False)


def finetune_with_litebert(
    model: Path, task: Cut, folder: Path, seed: int, rate: float, precision: Precision
) -> tuple[float, float]:
    began = time.perf_counter()
    config = replace(settings(seed, rate, precision), baseline=False)
    done = finetune(model, task, folder, config, device="cpu")
    return time.perf_counter() - began, done.scores[task.metric]


def finetune_with_trainer(
    model: Path, task: Cut, folder: Path, seed: int, rate: float, precision: Precision
) -> tuple[float, float]:
    """Their Trainer as its examples set it up: tokenized with `map`-like batches, padded to the
    longest of a batch.
    """
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
    )

    began = time.perf_counter()
    words = AutoTokenizer.from_pretrained(model)
    parts = []
    for part in ("train", "dev"):
        examples = task.read(part)
        encoded = words([example.text for example in examples], truncation=True, max_length=LENGTH)
        parts.append(
            [
                {"input_ids": ids, "labels": example.label}
                for ids, example in zip(encoded["input_ids"], examples, strict=True)
            ]
        )
    torch.manual_seed(seed)
    network = AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=len(task.task.output.labels)
    )
    trainer = Trainer(
        model=network,
        args=trainer_arguments(folder, seed, rate, precision),
        train_dataset=parts[0],
        eval_dataset=parts[1],
        data_collator=DataCollatorWithPadding(words),
    )
    trainer.train()
    logits = trainer.predict(parts[1]).predictions  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    answers = task.task.answers(task.read("dev"), [], list(np.asarray(logits)))
    return seconds, task.task.score(task.read("dev"), answers)[task.metric]


def trainer_arguments(folder: Path, seed: int, rate: float, precision: Precision) -> Any:
    """The `TrainingArguments` that say of their Trainer what `settings` says of ours."""
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        learning_rate=rate,
        weight_decay=0.01,
        warmup_steps=0.1,
        adam_epsilon=1e-6,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        seed=seed,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        bf16=precision == "bfloat16",
    )


def parse_arguments() -> argparse.Namespace:
    """The options, which are refused where a folder is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("glue", nargs="?", help="the folder with SST-2/ and CoLA/")
    parser.add_argument("--model", type=Path, help="a Hugging Face folder to start from")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "cola"])
    parser.add_argument("--rows", type=int, default=8000, help="training rows at most")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of both"
    )
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    arguments = parser.parse_args()
    if arguments.glue is None and arguments.tasks != ["sst2"]:
        parser.error("give the folder of GLUE, with SST-2/ and CoLA/, or --tasks sst2 alone")
    if arguments.glue is not None and not Path(arguments.glue).is_dir():
        sys.stderr.write(f"{arguments.glue} is no folder; give the one with SST-2/ and CoLA/\n")
        sys.exit(2)
    return arguments


def report_outcomes(
    name: str, metric: str, outcomes: dict[str, list[tuple[float, float]]]
) -> dict[str, Any]:
    """Print the seconds and the scores of a task, and return them."""
    seconds = {who: statistics.median(time for time, _ in pairs) for who, pairs in outcomes.items()}
    scores = {who: [score for _, score in pairs] for who, pairs in outcomes.items()}
    ratio = seconds["Trainer"] / seconds["litebert"]
    print(
        f"{name}: litebert {seconds['litebert']:.1f} s, Trainer {seconds['Trainer']:.1f} s, "
        f"ratio {ratio:.2f}"
    )
    for who, values in scores.items():
        print(f"  {who:<9} {metric} {', '.join(f'{value:.3f}' for value in values)}")
    if len(scores["litebert"]) > 1:
        means = [statistics.fmean(values) for values in scores.values()]
        noise = compute_noise(scores["litebert"], scores["Trainer"]) or 0.0
        print(f"  means differ by {abs(means[0] - means[1]):.3f}, where seeds explain {noise:.3f}")
    return {"seconds": seconds, "ratio": ratio, metric: scores}


def main() -> int:
    arguments = parse_arguments()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        arguments.glue = arguments.glue or str(made_up(Path(temporary, "glue")))
        for name in arguments.tasks:
            task = Cut(name, arguments.glue, arguments.rows)
            folder = Path(temporary, name)
            model = arguments.model or build_untrained(
                folder, Cut(name, arguments.glue, sys.maxsize)
            )
            outcomes: dict[str, list[tuple[float, float]]] = {"litebert": [], "Trainer": []}
            run: dict[str, Callable[..., tuple[float, float]]] = {
                "litebert": finetune_with_litebert,
                "Trainer": finetune_with_trainer,
            }
            for who in run:  # imports, allocations
                run[who](
                    model,
                    Cut(name, arguments.glue, 64),
                    folder / f"{who}-warm",
                    0,
                    arguments.rate,
                    arguments.precision,
                )
            for seed in range(arguments.repeats):
                for who in ("litebert", "Trainer") if seed % 2 == 0 else ("Trainer", "litebert"):
                    outcomes[who].append(
                        run[who](
                            model,
                            task,
                            folder / f"{who}-{seed}",
                            seed,
                            arguments.rate,
                            arguments.precision,
                        )
                    )
            result[name] = report_outcomes(name, task.metric, outcomes)
    write_results(arguments.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
