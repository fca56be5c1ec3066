"""Training steps on a GPU beside `transformers`: the same networks, weights, batches and optimizer,
in turns.

    python benchmarks/gpu.py [--out gpu.json] [--minutes 22] [--shapes albert-base:128 ...]
        [--device cuda] [--dry]

ALBERT-base, BERT-base and ALBERT-xxlarge at 128 and 512 tokens, some 32 thousand tokens a step, in
bfloat16, with AdamW. `transformers` has its best ordinary settings: bfloat16 autocast, fused
attention and AdamW, with and without torch.compile. Each side has the micro-batch that it is
fastest with, found by search without compiling. Before that, both must compute the same loss. Then
whole runs of a small model, whose batches a thread or several processes make; and vectors of many
texts by a network of MiniLM's shape, beside sentence-transformers.

Prints medians, what part of the speed of matrix products they are, and the memory at the peak.
Shapes for which the minutes do not suffice are left out. --dry takes two tiny shapes on any device,
and compiles nothing, to see that all else works.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer

from litebert import load, prepare, pretrain, recipe, replace, train_tokenizer
from litebert.config import Config, cost
from litebert.data.batches import Batch
from litebert.interop import LoadedModel, save_hf
from litebert.kernels.packing import Dtype
from litebert.text.sources import read_documents
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.measure import make_batch, measure_matmul_speed
from litebert.train.pretrain import TrainablePretrainer, build_pretrainer
from litebert.train.ranks import Ranks
from litebert.train.schedule import Plan
from litebert.train.supply import count_processes

SHAPES = [
    (name, length)
    for length in (128, 512)
    for name in ("albert-base", "bert-base", "albert-xxlarge")
]
STEP_TOKENS = 1 << 15
ROUNDS = 7
STEPS = 4
"""Steps that are timed at once: a run does not wait for the GPU between two of them."""
TEXTS = 20_000
TOLERANCE = {"bfloat16": 2e-2, "float32": 1e-4}
"""The largest relative difference of the losses of both sides."""

Step = Callable[[list[Batch]], None]


@dataclass
class Measured:
    """A step of one system on one shape."""

    system: str
    micro_batch: int
    seconds: float
    tokens_per_second: float
    share_of_products: float
    peak_bytes: int
    """Bytes of activations and gradients at most; 0 on a CPU."""


def main() -> int:
    """Run the campaign; the exit status says whether all losses agreed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--minutes", type=float, default=22)
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=[f"{name}:{length}" for name, length in SHAPES],
        default=[f"{name}:{length}" for name, length in SHAPES],
        help="recipes and tokens of a sequence",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    if not arguments.dry and not torch.cuda.is_available():
        sys.exit(
            "gpu.py measures a GPU, and torch finds none here; --dry tries the campaign on "
            "any device"
        )
    with torch._dynamo.config.patch(disable=arguments.dry):
        return campaign(arguments)


def campaign(arguments: argparse.Namespace) -> int:
    """All shapes and runs, written to the file after each."""
    until = time.monotonic() + 60 * arguments.minutes
    machine = devices.choose("auto", arguments.device)
    report: dict[str, Any] = {
        "machine": machine.describe(),
        "date": date.today().isoformat(),
        "transformers": transformers.__version__,
        "dry": arguments.dry,
        "products_per_second": measure_matmul_speed(machine),
        "shapes": [],
        "runs": [],
    }
    print(
        f"{report['machine']}; matrix products {report['products_per_second'] / 1e12:,.2f} "
        "TFLOP/s\n"
    )
    longest = 0.0
    for shape in ("albert-base:128", "bert-base:512") if arguments.dry else arguments.shapes:
        name, length = shape.split(":")[0], int(shape.split(":")[1])
        began = time.monotonic()
        if began + longest > until:
            print(f"{name} at {length}: left out, for the time is up")
            continue
        point = config_of(name, length, arguments.dry)
        report["shapes"].append(compare(point, machine, rounds=2 if arguments.dry else ROUNDS))
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        longest = max(longest, time.monotonic() - began)
    with tempfile.TemporaryDirectory() as folder:
        documents = texts(Path(folder), arguments.dry)
        report["vectors"] = vectors(Path(folder), documents, machine, arguments.dry)
        report["runs"] = runs(Path(folder), machine, arguments.device, arguments.dry)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"\nwritten to {arguments.out}")
    return int(not all(shape["same_loss"] for shape in report["shapes"]))


def config_of(name: str, length: int, dry: bool) -> Config:
    """A recipe at a length, with AdamW; or its like in tiny."""
    point = recipe(name)
    train = replace(
        point.train,
        optimizer=replace(point.train.optimizer, name="adamw", bias_correction=True),
        batch=f"{STEP_TOKENS // length} sequences",
        precision="auto",
    )
    encoder = point.encoder
    if dry:
        length //= 8
        train = replace(train, batch="4 sequences")
        narrow = 32 if encoder.embedding_size < encoder.hidden_size else 64
        encoder = replace(
            encoder,
            hidden_size=64,
            embedding_size=narrow,
            heads=2,
            intermediate_size=128,
            layers=2,
            vocab_size=1000,
        )
    sequences = replace(point.sequences, length=length, short_probability=0.0)
    return replace(point, encoder=encoder, sequences=sequences, train=train)


# ------------------------------------------------------------------------------------------- a step


def compare(point: Config, machine: devices.Device, rounds: int) -> dict[str, Any]:
    """All systems on one shape, in turns."""
    length, tokens = point.sequences.length, point.batch_sequences * point.sequences.length
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "hf"
        model = build_pretrainer(point, machine).cpu()
        save_hf(LoadedModel(model, point, None, weights), weights, "pretraining")
        our_loss, peer_loss = losses(point, model, weights, machine)
        same = abs(our_loss - peer_loss) <= TOLERANCE[machine.precision] * abs(peer_loss)
        print(
            f"{point.name} at {length}: loss {our_loss:.4f}, of transformers "
            f"{peer_loss:.4f}{'' if same else ': THEY DIFFER'}"
        )
        compiled = replace(point, train=replace(point.train, compile=True))
        makers: dict[str, Callable[[], Step]] = {
            "transformers": lambda: peer_step(point, weights, machine, False),
            "transformers, compiled": lambda: peer_step(point, weights, machine, True),
            "litebert": lambda: our_step(point, machine, Path(folder) / "run"),
            "litebert, compiled": lambda: our_step(compiled, machine, Path(folder) / "compiled"),
        }
        steps = {name: make() for name, make in makers.items()}
        micro = {
            name: best_micro_batch(steps[name], point, machine)
            for name in ("transformers", "litebert")
        }
        batches = {name: micro_batches(point, micro[name.partition(",")[0]]) for name in steps}
        for name, step in steps.items():  # compile, and find the memory
            for _ in range(2):
                time_step(step, batches[name], machine)
        peaks = {name: peak(step, batches[name], machine) for name, step in steps.items()}
        taken: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds):
            for name, step in steps.items():
                taken[name].append(time_step(step, batches[name], machine, STEPS))
        del steps
    free(machine)
    products, flops = measure_matmul_speed(machine), 3 * cost.forward_flops(point) * tokens
    results = []
    for name, times in taken.items():
        seconds = statistics.median(times)
        of_products = flops / seconds / products
        results.append(
            Measured(
                name,
                len(batches[name][0].input_ids),
                seconds,
                tokens / seconds,
                of_products,
                peaks[name],
            )
        )
    print_table(results)
    return {
        "name": point.name,
        "length": length,
        "sequences": point.batch_sequences,
        "same_loss": same,
        "losses": {"litebert": our_loss, "transformers": peer_loss},
        "systems": [asdict(result) for result in results],
    }


def print_table(results: list[Measured]) -> None:
    """Print a line for each system, with how many times as fast as the best peer it is."""
    best_peer = min(
        result.seconds for result in results if result.system.startswith("transformers")
    )
    print(
        f"  {'':24}{'micro-batch':>12}{'ms':>10}{'tokens/s':>12}"
        f"{'of products':>13}{'peak GiB':>10}{'times':>8}"
    )
    for result in results:
        print(
            f"  {result.system:24}{result.micro_batch:>12}{1000 * result.seconds:>10,.1f}"
            f"{result.tokens_per_second:>12,.0f}{result.share_of_products:>13.1%}"
            f"{result.peak_bytes / 2**30:>10.1f}{best_peer / result.seconds:>8.2f}"
        )
    print()


class MadeUp(TrainablePretrainer):
    """A model for the loop, to be stepped by hand on batches that are given."""

    def __init__(self, point: Config, machine: devices.Device) -> None:
        self.config, self.module, self.device = point, build_pretrainer(point, machine), machine
        self.network, self.ranks = self.module, Ranks()
        self.layers, self.diagnostic_state = point.encoder.layers, {}


def our_step(point: Config, machine: devices.Device, folder: Path) -> Step:
    """A step of the training loop itself, clipping and sums for the metrics included."""
    loop: Loop[Batch] = Loop(
        MadeUp(point, machine),
        point.train,
        Plan((1 << 30,)),
        point.batch_sequences,
        machine,
        folder,
    )
    loop.trainable.module.train()

    def step(batches: list[Batch]) -> None:
        loop.rows = [slice(i, i + 1) for i in range(len(batches))]  # from which only seeds follow
        loop.train_step(batches)

    return step


def peer_step(point: Config, weights: Path, machine: devices.Device, compiled: bool) -> Step:
    """The same step as it is ordinarily written with `transformers`."""
    model = peer(weights, machine).train()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-5, weight_decay=point.train.optimizer.weight_decay, fused=True
    )

    def step(batches: list[Batch]) -> None:
        for batch in batches:
            with machine.autocast_context():
                loss = forward(**inputs_of(batch.to(machine.device), point)).loss / len(batches)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), point.train.clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def peer(weights: Path, machine: devices.Device) -> Any:
    return transformers.AutoModelForPreTraining.from_pretrained(
        weights, attn_implementation="sdpa"
    ).to(machine.device)


def inputs_of(batch: Batch, point: Config) -> dict[str, torch.Tensor]:
    """A batch as the pretraining classes of `transformers` take it."""
    labels = torch.full_like(batch.input_ids, -100).flatten()
    labels[batch.masked_positions] = batch.masked_labels
    sentence = "sentence_order_label" if "sop" in point.objectives else "next_sentence_label"
    return {
        "input_ids": batch.input_ids,
        "token_type_ids": batch.token_type_ids,
        "labels": labels.view_as(batch.input_ids),
        sentence: batch.sentence_labels,
    }


@torch.no_grad()
def losses(
    point: Config, model: Any, weights: Path, machine: devices.Device
) -> tuple[float, float]:
    """The losses that both sides compute of one batch, without dropout."""
    batch = make_batch(point, 4).to(machine.device)
    peer_model, our_model = peer(weights, machine).eval(), model.to(machine.device).eval()
    with machine.autocast_context():
        our_loss = sum(float(loss.total / loss.count) for loss in our_model(batch).values())
        peer_loss = float(peer_model(**inputs_of(batch, point)).loss)
    return our_loss, peer_loss


# ---------------------------------------------------------------------------------- time and memory


def micro_batches(point: Config, size: int) -> list[Batch]:
    """A step's batch in parts of a size, as the loop is handed them: in page-locked memory."""
    batch = make_batch(point, size)
    return [batch.pin() if torch.cuda.is_available() else batch] * (point.batch_sequences // size)


def best_micro_batch(step: Step, point: Config, machine: devices.Device) -> int:
    """The largest that fits, or a smaller one that is faster."""
    best, fastest, size = 0, float("inf"), point.batch_sequences
    while size >= 1:
        try:
            batches = micro_batches(point, size)
            time_step(step, batches, machine)
            seconds = min(time_step(step, batches, machine) for _ in range(2))
        except torch.OutOfMemoryError:
            seconds = float("inf")
            free(machine)
        if seconds < fastest:
            best, fastest = size, seconds
        elif best:
            break
        size //= 2
    if not best:
        raise SystemExit(
            f"{point.name} does not fit in the memory of {machine.name}, not even one sequence"
        )
    return best


def time_step(step: Step, batches: list[Batch], machine: devices.Device, steps: int = 1) -> float:
    """Seconds of a step, of several in a row."""
    wait(machine)
    start = time.perf_counter()
    for _ in range(steps):
        step(batches)
    wait(machine)
    return (time.perf_counter() - start) / steps


def peak(step: Step, batches: list[Batch], machine: devices.Device) -> int:
    """Bytes that a step takes at its peak beside weights and moments, which all systems hold
    meanwhile.
    """
    if machine.device.type != "cuda":
        return 0
    held = torch.cuda.memory_allocated(machine.device)
    torch.cuda.reset_peak_memory_stats(machine.device)
    step(batches)
    return torch.cuda.max_memory_allocated(machine.device) - held


def wait(machine: devices.Device) -> None:
    if machine.device.type == "cuda":
        torch.cuda.synchronize(machine.device)


def free(machine: devices.Device) -> None:
    gc.collect()
    torch.compiler.reset()
    if machine.device.type == "cuda":
        torch.cuda.empty_cache()


# --------------------------------------------------------------------------------------- whole runs


def texts(folder: Path, dry: bool) -> list[str]:
    """Documents, with a tokenizer and shards of them in the folder."""
    documents = [
        document.text for document in islice(read_documents(["python-docs"]), 200 if dry else None)
    ]
    (folder / "text.jsonl").write_text(
        "\n".join(json.dumps({"text": text}) for text in documents), encoding="utf-8"
    )
    train_tokenizer(documents, kind="unigram", vocab_size=1000 if dry else 8192).save(
        folder / "tokenizer"
    )
    prepare([str(folder / "text.jsonl")], folder / "data", tokenizer=folder / "tokenizer")
    return documents


def vectors(
    folder: Path, documents: list[str], machine: devices.Device, dry: bool
) -> list[dict[str, Any]]:
    """Vectors a second of `TEXTS` lines of the documents, each side in the type of its products, as
    a person calls it: a list of texts in, an array out. The peer has its best batch.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
    shape = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.BertModel(shape).save_pretrained(folder / "minilm")
    tokenizer.save_pretrained(folder / "minilm")
    lines = [line for text in documents for line in text.splitlines() if len(line) > 30]
    many = list(islice(cycle(lines), 20 if dry else TEXTS))
    dtype: Dtype = "float32" if machine.autocast is None else "bfloat16"
    path, device = str(folder / "minilm"), str(machine.device)
    peer_model = SentenceTransformer(
        path, device=device, model_kwargs={"dtype": getattr(torch, dtype)}
    )
    encoder = load(path, engine="torch", dtype=dtype, device=device).sentence_encoder
    ways: dict[str, Callable[[], Any]] = {"litebert": lambda: encoder.encode(many)} | {
        f"sentence-transformers, batches of {size}": partial(
            peer_model.encode, many, batch_size=size
        )
        for size in (32, 512)
    }
    found = {name: np.asarray(way()) for name, way in ways.items()}
    ours, theirs = list(found.values())[:2]
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    print(f"vectors of {len(many):,} lines in {dtype}: the least cosine is {cosines.min():.4f}")
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 if dry else 3):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - start)
    rates = {name: len(many) / statistics.median(times) for name, times in taken.items()}
    for name, rate in rates.items():
        print(f"  {name:42}{rate:>10,.0f} texts/s")
    return [{"system": name, "texts_per_second": rate} for name, rate in rates.items()]


def runs(folder: Path, machine: devices.Device, device: str, dry: bool) -> list[dict[str, Any]]:
    """Tokens a second of whole runs, batches and all, by how many processes make the batches."""
    steps, results = 6 if dry else 120, []
    point = recipe("albert-mini")
    train = replace(
        point.train,
        budget=f"{steps} steps",
        batch="4 sequences" if dry else "512 sequences",
        depth_schedule=(),
        save_every="1000000 steps",
        evaluate_every="100%",
        evaluate_sequences=32,
    )
    point = replace(point, train=train)
    if dry:  # AdamW, for Muon multiplies in bfloat16, which most CPUs are slow at
        train = replace(train, optimizer=replace(train.optimizer, name="adamw"))
        encoder = replace(
            point.encoder, hidden_size=64, heads=2, intermediate_size=128, layers=1, vocab_size=1000
        )
        point = replace(
            point, encoder=encoder, train=train, sequences=replace(point.sequences, length=32)
        )
    for count in sorted({0, 1, count_processes(point, machine)}):
        times: list[float] = []
        variant = replace(point, train=replace(point.train, batch_processes=count))
        watched = partial(Loop, on_step=stamp(times, machine, steps))
        with patch("litebert.train.pretrain.Loop", watched):
            pretrain(variant, folder / "data", folder / f"run-{count}", device=device)
        half = steps // 2  # the first half finds memory and kernels
        seconds = times[-1] - times[half - 1]
        rate = (steps - half) * point.batch_sequences * point.sequences.length / seconds
        share = 3 * cost.forward_flops(point) * rate / measure_matmul_speed(machine)
        print(
            f"{point.name}, whole run, {count} processes make batches: {rate:,.0f} "
            f"tokens/s, {share:.1%} of products"
        )
        results.append(
            {
                "name": point.name,
                "batch_processes": count,
                "tokens_per_second": rate,
                "share_of_products": share,
            }
        )
    return results


def stamp(times: list[float], machine: devices.Device, steps: int) -> Callable[[Loop[Batch]], None]:
    """Note the time after each step; only in the middle and at the end is the device waited for."""

    def note(loop: Loop[Batch]) -> None:
        if loop.step in (steps // 2, steps):
            wait(machine)
        times.append(time.perf_counter())

    return note


if __name__ == "__main__":
    sys.exit(main())
