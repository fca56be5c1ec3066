"""Peak memory of a training step beside `transformers`: the same ALBERT, weights, batch and
optimizer, in float32.

    python benchmarks/memory.py [--shapes base-128 base-512 xlarge-512] [--memory 16] [--json FILE]
    python benchmarks/memory.py --shapes xlarge-512 --limit 8 [--sequences 2 3] [--json FILE]

Each measurement is a process of its own: it loads its libraries and the weights, takes one small
step, so that the optimizer has its moments, and then one step of the whole batch, whose peak of
resident memory counts (Linux). What the process held before it had a model is subtracted, so
libraries do not count. The rate is 0, so that the weights stay those that both were given, and the
losses must agree to 1e-4.

`transformers` runs AlbertForMaskedLM with attention through `scaled_dot_product_attention`, the
fused AdamW, and gradient checkpointing where it offers that, which it does not for ALBERT. From the
peak, and the 16 bytes of each parameter that do not depend on the batch, follows the largest batch
that fits in --memory GiB.

With --limit nothing is extrapolated. Each step runs in a process that may hold so many GiB of its
own memory (RLIMIT_DATA: the libraries' own count too), with each number of --sequences. It ends, or
it dies. Its seconds and loss are printed, or the last line of its error.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
from results import write as write_results
from torch import Tensor

SHAPES = {
    "base-128": ("albert-base", 16, 128),
    "base-512": ("albert-base", 4, 512),
    "xlarge-512": ("albert-xlarge", 1, 512),
}
"""Recipe, sequences of a batch, and their length, by the name of a shape."""
VARIANTS = ("litebert", "litebert recompute", "transformers", "transformers checkpointing")
Step = Callable[[int, int], float]
"""A training step on so many sequences of a length; its loss."""


def config_of(shape: str) -> Any:
    """The recipe with masked language modeling alone, without dropout."""
    from litebert import recipe, replace

    name, _, length = SHAPES[shape]
    whole = recipe(name)
    encoder = replace(whole.encoder, pooler=False, hidden_dropout=0.0, attention_dropout=0.0)
    optimizer = replace(whole.train.optimizer, name="adamw")
    train = replace(whole.train, precision="float32", depth_schedule=(), optimizer=optimizer)
    sequences = replace(whole.sequences, length=length)
    return replace(whole, encoder=encoder, objectives=("mlm",), sequences=sequences, train=train)


def batch_of(vocabulary: int, sequences: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids (B, S), and the flat places and labels of the 15% that are predicted."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocabulary, (sequences, length), generator=generator)
    places = (
        torch.randperm(ids.numel(), generator=generator)[: round(0.15 * ids.numel())].sort().values
    )
    return ids, places, torch.randint(5, vocabulary, (len(places),), generator=generator)


def build_litebert(shape: str, folder: Path, recompute: bool) -> Step:
    from litebert import replace
    from litebert.base.machine import keep_freed_memory
    from litebert.data.batches import Batch
    from litebert.interop.files import read_tensors
    from litebert.model.pretrainer import Pretrainer
    from litebert.train.optim import Optimizers

    keep_freed_memory()  # as the command line does
    config = config_of(shape)
    model = Pretrainer(replace(config, train=replace(config.train, recompute=recompute)))
    model.load_state_dict(read_tensors(folder / "ours.safetensors"))
    optimizers = Optimizers(model.train(), config.train.optimizer)

    def step(sequences: int, length: int) -> float:
        ids, places, labels = batch_of(config.encoder.vocab_size, sequences, length)
        nowhere = torch.full((sequences,), -100)
        batch = Batch(
            ids,
            torch.zeros_like(ids),
            None,
            places,
            labels,
            nowhere,
            torch.zeros(len(places), 2, dtype=torch.long),
        )
        loss = model(batch)["mlm"].total / len(labels)
        loss.backward()
        optimizers.step(0.0)
        optimizers.zero_grad()
        return float(loss.item())

    return step


def build_peer(shape: str, folder: Path, checkpointing: bool) -> Step | None:
    """None where it offers no checkpointing."""
    from transformers import AlbertForMaskedLM

    model: Any = AlbertForMaskedLM.from_pretrained(
        folder / "hf", attn_implementation="sdpa"
    ).train()
    if checkpointing:
        if not model.supports_gradient_checkpointing:
            return None
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, eps=1e-6, fused=True)

    def step(sequences: int, length: int) -> float:
        ids, places, targets = batch_of(model.config.vocab_size, sequences, length)
        labels = torch.full_like(ids, -100).flatten()
        labels[places] = targets
        loss = model(input_ids=ids, labels=labels.view_as(ids)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.item())

    return step


def measure(shape: str, variant: str, folder: Path, sequences: int = 0) -> dict[str, float] | None:
    """Measure in this very process: bytes, loss and seconds of a step.

    Args:
        sequences: of the batch; those of the shape if 0.
    """
    from litebert.train import memory

    who, *option = variant.split()
    if who == "transformers":
        # A library too, whose memory is not to be counted.
        import transformers.models.albert.modeling_albert  # noqa: F401
    memory._forget_peak()
    before = memory._read_peak()
    step = (build_litebert if who == "litebert" else build_peer)(shape, folder, bool(option))
    if step is None:
        return None
    step(1, 16)
    memory._forget_peak()
    start = time.perf_counter()
    _, count, length = SHAPES[shape]
    loss = step(sequences or count, length)
    return {
        "peak": memory._read_peak() - before,
        "loss": loss,
        "seconds": time.perf_counter() - start,
    }


@contextmanager
def weights(shape: str) -> Iterator[Path]:
    """A folder with the same random weights for both."""
    from litebert.interop import LoadedModel, save_hf
    from litebert.interop.files import write_tensors
    from litebert.model.pretrainer import Pretrainer

    config = config_of(shape)
    torch.manual_seed(0)
    model = Pretrainer(config)
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder, "ours.safetensors"), model.state_dict())
        save_hf(LoadedModel(model.eval(), config, None, Path(folder)), Path(folder, "hf"))
        yield Path(folder)


def compare(shape: str, memory_bytes: float) -> dict[str, Any]:
    """All variants of a shape, each measured by a process of its own."""
    from litebert.config import cost

    fixed = 16 * sum(cost.model_parameters(config_of(shape)).values())
    name, sequences, length = SHAPES[shape]
    results: dict[str, Any] = {}
    with weights(shape) as folder:
        for variant in VARIANTS:
            words = [sys.executable, __file__, "--one", shape, variant, str(folder), "0"]
            answer = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
            result = json.loads(answer.splitlines()[-1])
            if result is not None:
                each = (result["peak"] - fixed) / sequences
                result |= {
                    "bytes_per_sequence": each,
                    "largest_batch": max(0, int((memory_bytes - fixed) // each)),
                }
            results[variant] = result
    losses = [result["loss"] for result in results.values() if result]
    if max(losses) - min(losses) > 1e-4 * max(losses):
        raise SystemExit(f"{shape}: the losses differ, so the memory cannot be compared: {losses}")
    peer = min(
        result["peak"]
        for variant, result in results.items()
        if result and variant.startswith("transformers")
    )
    ratios = {variant: results[variant]["peak"] / peer for variant in VARIANTS[:2]}
    return {
        "recipe": name,
        "sequences": sequences,
        "length": length,
        "found": results,
        "ratio": ratios,
    }


def limit(shape: str, gigabytes: float, counts: list[int]) -> dict[str, dict[str, Any]]:
    """Whether a step of each variant ends within so many GiB, for each number of sequences."""
    most = int(gigabytes * 2**30)
    results: dict[str, dict[str, Any]] = {}
    with weights(shape) as folder:
        for count in counts:
            for variant in VARIANTS:
                words = [sys.executable, __file__, "--one", shape, variant, str(folder), str(count)]
                done = subprocess.run(
                    words,
                    capture_output=True,
                    text=True,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)),
                )
                lines = (done.stderr.strip() or f"status {done.returncode}").splitlines()
                result = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else None
                name = f"{variant}, {count} sequences"
                results[name] = {"ends": not done.returncode, "step": result}
                says = f"dies: {lines[-1]}"
                if result is not None:
                    says = f"ends, {result['seconds']:.1f} s, loss {result['loss']:.5f}"
                elif not done.returncode:
                    says = "not offered for this model"
                print(f"{shape} in {gigabytes:g} GiB, {name}: {says}", flush=True)
    return results


def show(shape: str, result: dict[str, Any], gigabytes: float) -> None:
    print(f"{shape}: {result['sequences']} x {result['length']} tokens of {result['recipe']}")
    for variant, figures in result["found"].items():
        if figures is None:
            print(f"  {variant:<28} not offered for this model")
            continue
        ratio = (
            f", {result['ratio'][variant]:.2f} of transformers"
            if variant in result["ratio"]
            else ""
        )
        print(
            f"  {variant:<28} {figures['peak'] / 2**20:8,.0f} MiB, "
            f"{figures['bytes_per_sequence'] / 2**20:7,.1f} MiB a "
            f"sequence, {figures['seconds']:6.1f} s, loss {figures['loss']:.5f}; at most "
            f"{figures['largest_batch']:,} sequences "
            f"in {gigabytes:g} GiB{ratio}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--memory", type=float, default=16.0, help="GiB for the largest batch")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument(
        "--one",
        nargs=4,
        metavar=("SHAPE", "VARIANT", "FOLDER", "SEQUENCES"),
        help=argparse.SUPPRESS,
    )
    parser.add_argument("--limit", type=float, help="GiB that each process may hold")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1], help="with --limit")
    arguments = parser.parse_args()
    if arguments.one:
        shape, variant, folder, sequences = arguments.one
        print(json.dumps(measure(shape, variant, Path(folder), int(sequences))))
        return 0
    if not sys.platform.startswith("linux"):
        print("skipped: the peak of a step is read from Linux's /proc")
        write_results(arguments.json, {"skipped": "the peak of a step is read from Linux's /proc"})
        return 0
    results: dict[str, Any] = {}
    for shape in arguments.shapes:
        if arguments.limit:
            results[shape] = limit(shape, arguments.limit, arguments.sequences)
            continue
        results[shape] = compare(shape, arguments.memory * 2**30)
        show(shape, results[shape], arguments.memory)
    write_results(arguments.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
