"""A step of pretraining beside `transformers`: the same ALBERT with the same weights, batch, loss
and AdamW, in turns.

    python benchmarks/pretraining.py [--shapes h128 h256 base base-512] [--precision float32]
    [--peer-compiled]
                                     [--source FOLDER] [--quick] [--clock wall|processor]
                                     [--json FILE]
    python benchmarks/pretraining.py --whole 300 [--shapes h128]
    python benchmarks/pretraining.py --profile [--shapes base next-mini] [--precision bfloat16]

Theirs is `AlbertForPreTraining` with scaled dot product attention and fused AdamW, eager, and with
--peer-compiled also under `torch.compile`. Before anything is timed the losses of all must agree.
The last column is the share of the speed of matrix products on this machine, measured in the same
run, that our step reaches by the FLOPs of its products. --source has the `src` folder of another
version of litebert, whose step is timed too, in a process of its own.

With --whole, both train so many steps from the command to the end: `litebert pretrain`, and a
`Trainer` with `DataCollatorForLanguageModeling`, on the same token ids of python-docs, with masked
pieces as the only objective.

With --profile it prints where the time of litebert's step goes, by PyTorch's profiler, on one
thread: the share of each kind of operation, of three steps. In bfloat16 it also counts how often a
step casts a weight, with autocast's cache of casts and without it. `next-mini` is the recipe
albert-next-mini, which `transformers` does not have.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from results import write as write_results

from litebert import recipe, replace
from litebert.base.machine import keep_freed_memory
from litebert.config import Config, cost
from litebert.data.batches import Batch
from litebert.model.pretrainer import Pretrainer
from litebert.train import device as devices
from litebert.train.measure import make_batch
from litebert.train.optim import Optimizers

SHAPES = {
    "h128": (128, 6, 64, 64),
    "h256": (256, 8, 32, 128),
    "base": (768, 12, 8, 128),
    "base-512": (768, 12, 2, 512),
}
"""Hidden size, layers, sequences and their length."""
NEXT = {"next-mini": ("albert-next-mini", "32 sequences")}
"""Recipes that are profiled too, and their batch."""
KINDS = {
    "matrix multiplications of linear layers": ("aten::mm", "aten::addmm", "aten::linear"),
    "attention": ("aten::bmm", "aten::baddbmm", "_Weights", "_SplitHeads", "attention"),
    "norms, biases and residuals": ("_AddNorm", "layer_norm"),
    "activations": ("_Activation",),
    "loss": ("_CrossEntropy",),
    "embeddings": ("embedding", "index"),
    "copies for another layout": ("copy_", "clone", "fill_", "zero_", "cat", "pad"),
    "sums of gradients": ("aten::add", "aten::sum", "AccumulateGrad"),
}
"""Kinds of operations, by parts of the names that the profiler gives."""
Step = Callable[[], float]


def point(shape: str) -> Config:
    """An ALBERT of a shape, with AdamW."""
    if shape in NEXT:
        name, sequences_of_batch = NEXT[shape]
        whole = recipe(name)
        return replace(whole, train=replace(whole.train, batch=sequences_of_batch))
    hidden, layers, sequences, length = SHAPES[shape]
    base = recipe("albert-base")
    small: dict[str, Any] = {} if hidden == 768 else {"vocab_size": 8192, "heads": hidden // 32}
    encoder = replace(
        base.encoder, hidden_size=hidden, intermediate_size=4 * hidden, layers=layers, **small
    )
    optimizer = replace(
        base.train.optimizer, name="adamw", bias_correction=True, learning_rate=1e-4
    )
    train = replace(base.train, batch=f"{sequences} sequences", optimizer=optimizer)
    return replace(
        base, encoder=encoder, sequences=replace(base.sequences, length=length), train=train
    )


def build_litebert(
    config: Config, machine: devices.Device, batch: Batch
) -> tuple[Pretrainer, Step]:
    torch.manual_seed(0)
    model = Pretrainer(config).train()
    optimizers = Optimizers(model, config.train.optimizer)

    def step() -> float:
        with machine.autocast_context():
            losses = model(batch)
        loss = torch.stack([loss.total / max(1, int(loss.count)) for loss in losses.values()]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step(1.0)
        optimizers.zero_grad()
        return loss.item()

    return model, step


def build_peer(
    model: Pretrainer,
    config: Config,
    machine: devices.Device,
    batch: Batch,
    wrap: Callable[[Any], Any] = lambda it: it,
) -> Step:
    """The same weights as `AlbertForPreTraining`, in what `wrap` makes of it."""
    from transformers import AlbertForPreTraining

    from litebert.interop import LoadedModel, save_hf

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "hf")
        save_hf(LoadedModel(model, config, None, target), target)
        network = (
            AlbertForPreTraining.from_pretrained(
                target, attn_implementation="sdpa", classifier_dropout_prob=0.0
            )
            .train()
            .to(machine.device)
        )
    batch = batch.to(machine.device)
    labels = torch.full_like(batch.input_ids, -100)
    labels.view(-1)[batch.masked_positions] = batch.masked_labels
    inputs = {
        "input_ids": batch.input_ids,
        "token_type_ids": batch.token_type_ids,
        "labels": labels,
        "sentence_order_label": batch.sentence_labels,
    }
    settings = config.train.optimizer
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=settings.peak,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    forward = wrap(network)

    def step() -> float:
        with machine.autocast_context():
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.item())

    return step


def product_speed(dtype: torch.dtype, clock: Callable[[], float] = time.perf_counter) -> float:
    """FLOP/s of a large matrix product, the best of several."""
    a, b = (torch.randn(2048, 2048, dtype=dtype) for _ in range(2))
    return 2 * 2048**3 / min(time_call(lambda: a @ b, clock)[0] for _ in range(8))


def time_call(
    call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    began = clock()
    result = call()
    return clock() - began, result


def other_version(source: Path, shape: str, precision: str) -> tuple[subprocess.Popen[str], Step]:
    """The step of another version in a process of its own, which takes one whenever it is asked."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--shapes", shape, "--precision", precision],
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def step() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    return process, step


def serve(shape: str, precision: Any) -> None:
    config, machine = point(shape), devices.choose(precision, "cpu")
    keep_freed_memory()
    _, step = build_litebert(config, machine, make_batch(config, config.batch_sequences))
    for _ in sys.stdin:
        print(step(), flush=True)


def compare(shape: str, machine: devices.Device, options: argparse.Namespace) -> dict[str, Any]:
    """Median seconds of each side's step, taken in turns."""
    config = point(shape)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    batch = make_batch(config, config.batch_sequences)
    model, litebert_step = build_litebert(config, machine, batch)
    sides: dict[str, Step] = {"transformers": build_peer(model, config, machine, batch)}
    if options.peer_compiled:
        sides["compiled"] = build_peer(model, config, machine, batch, torch.compile)
    process = None
    if options.source:
        process, sides["before"] = other_version(options.source, shape, options.precision)
    sides["litebert"] = litebert_step
    first = {name: step() for name, step in sides.items()}
    near = 1e-4 if machine.autocast is None else 2e-2
    if max(first.values()) - min(first.values()) > near * first["litebert"]:
        raise SystemExit(f"{shape}: the losses differ, so there is nothing to compare: {first}")
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():  # memory of gradients and of the optimizer
        step()
    for _ in range(3 if options.quick else 9):
        for name, step in sides.items():
            seconds[name].append(time_call(step, clock)[0])
    if process is not None:
        process.kill()
        process.wait()
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    flops = 3 * config.batch_sequences * config.sequences.length * cost.forward_flops(config)
    share = flops / medians["litebert"] / product_speed(machine.autocast or torch.float32, clock)
    return {"seconds": medians, "loss": first, "share_of_products": share}


# ---------------------------------------------------------------------------- where the time goes


def profile(shape: str, machine: devices.Device, steps: int = 3) -> dict[str, Any]:
    """Shares of a step of litebert by kind, and how often it casts weights; see the top."""
    config = point(shape)
    batch = make_batch(config, config.batch_sequences)
    model, step = build_litebert(config, machine, batch)
    weights = {tuple(weight.shape) for weight in model.parameters() if weight.ndim == 2}
    report: dict[str, Any] = {}
    for cached in (True, False) if machine.autocast else (True,):
        torch.set_autocast_cache_enabled(cached)
        for _ in range(2):  # memory of gradients and of the optimizer
            step()
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
            for _ in range(steps):
                step()
        seconds, casts = defaultdict[str, float](float), 0
        for event in profiler.events() or ():
            kind = classify(event)
            seconds[kind] += event.self_cpu_time_total / 1e6 / steps
            shapes = event.input_shapes or [[]]
            casts += event.name == "aten::_to_copy" and tuple(shapes[0]) in weights
        total = sum(seconds.values())
        report["cached" if cached else "not cached"] = {
            "seconds": total,
            "shares": {kind: value / total for kind, value in seconds.items()},
            "casts_of_weights": casts / steps,
        }
    torch.set_autocast_cache_enabled(True)
    return report


def classify(event: Any) -> str:
    """The kind of an operation, by its name and those of the operations that it is part of."""
    names, above = [event.name], event.cpu_parent
    while above is not None:
        names.append(above.name)
        above = above.cpu_parent
    if any(name.startswith("Optimizer.") for name in names) or "_foreach_" in event.name:
        return "optimizer and clipping"
    if "aten::_to_copy" in names:
        return "casts"
    for kind, parts in KINDS.items():
        if any(part in event.name for part in parts):
            return kind
    return "calls and the rest"


def show_profile(shape: str, report: dict[str, Any]) -> None:
    """Print the shares, the largest first."""
    for name, entry in report.items():
        print(
            f"{shape}, casts {name}: {entry['seconds'] * 1e3:,.0f} ms, "
            f"{entry['casts_of_weights']:g} casts of weights a step"
        )
        for kind, share in sorted(entry["shares"].items(), key=lambda pair: -pair[1]):
            print(f"  {kind:42}{share:6.1%}")


# ---------------------------------------------------------------------- from the command to the end


def whole(shape: str, steps: int, precision: Any) -> dict[str, float]:
    """Seconds of both programs, started as a person starts them."""
    from litebert import PrepareConfig, prepare, train_tokenizer
    from litebert.config.serialization import to_json
    from litebert.text.sources import read_documents

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = (document.text for document in read_documents(["python-docs"]))
        train_tokenizer(texts, kind="unigram", vocab_size=8192).save(folder / "tokenizer")
        prepare(
            ["python-docs"],
            folder / "data",
            tokenizer=folder / "tokenizer",
            config=PrepareConfig(heldout=0.01),
        )
        base = point(shape)
        train = replace(
            base.train, budget=f"{steps} steps", precision=precision, evaluate_every="100%"
        )
        sequences = replace(base.sequences, format="full-sentences", short_probability=0.0)
        config = replace(base, train=train, sequences=sequences, objectives=("mlm",))
        (folder / "recipe.json").write_text(to_json(config))
        words = [
            str(folder / "recipe.json"),
            "--shards",
            str(folder / "data"),
            "--out",
            str(folder / "run"),
        ]
        commands = {
            "litebert": [sys.executable, "-m", "litebert", "pretrain", *words],
            "Trainer": [
                sys.executable,
                __file__,
                "--trainer",
                str(folder),
                "--whole",
                str(steps),
                "--shapes",
                shape,
                "--precision",
                precision,
            ],
        }
        runs = {
            name: lambda words=words: subprocess.run(words, check=True, capture_output=True)
            for name, words in commands.items()
        }
        return {name: time_call(run)[0] for name, run in runs.items()}


def trainer(folder: Path, shape: str, steps: int, precision: str) -> None:
    """Their program: the same ids, joined and cut into rows, in their Trainer."""
    from transformers import (
        AlbertConfig,
        AlbertForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )

    from litebert import Shards

    config, words = point(shape), AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = list(
        _rows(Shards.open(folder / "data"), config.sequences.length, steps * config.batch_sequences)
    )
    hidden, layers, sequences, _ = SHAPES[shape]
    settings = AlbertConfig(
        vocab_size=len(words),
        embedding_size=128,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=config.encoder.heads,
        intermediate_size=4 * hidden,
    )
    arguments = TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=sequences,
        learning_rate=1e-4,
        optim="adamw_torch_fused",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        bf16=precision == "bfloat16",
    )
    collator = DataCollatorForLanguageModeling(words, mlm_probability=0.15)
    Trainer(
        model=AlbertForMaskedLM(settings),
        args=arguments,
        train_dataset=rows,
        data_collator=collator,
    ).train()


def _rows(shards: Any, length: int, count: int) -> Iterator[dict[str, list[int]]]:
    ids: list[int] = []
    for document in range(shards.train.documents):
        ids.extend(shards.train.read_document(document)[0].tolist())
        while len(ids) >= length and count > 0:
            yield {"input_ids": ids[:length]}
            ids, count = ids[length:], count - 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=[*SHAPES, *NEXT], default=["h128", "h256", "base"]
    )
    parser.add_argument(
        "--precision", choices=("auto", "float32", "bfloat16"), default="auto", help="of all sides"
    )
    parser.add_argument("--peer-compiled", action="store_true", help="time their compiled step too")
    parser.add_argument(
        "--source", type=Path, help="the src folder of another version of litebert, to time it too"
    )
    parser.add_argument("--quick", action="store_true", help="three steps of each instead of nine")
    parser.add_argument(
        "--whole",
        type=int,
        metavar="STEPS",
        help="train so many steps from start to finish instead",
    )
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall", help="processor: of all threads"
    )
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--trainer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    if options.serve:
        serve(options.shapes[0], options.precision)
        return 0
    if options.trainer:
        trainer(options.trainer, options.shapes[0], options.whole, options.precision)
        return 0
    keep_freed_memory()
    machine = devices.choose(options.precision, "cpu")
    options.precision = machine.precision
    results: dict[str, Any] = {"machine": machine.describe()}
    print(results["machine"])
    for shape in options.shapes:
        if options.profile:
            torch.set_num_threads(1)
            results[shape] = profile(shape, machine)
            show_profile(shape, results[shape])
            continue
        if options.whole:
            results[shape] = seconds = whole(shape, options.whole, options.precision)
            ratio = seconds["Trainer"] / seconds["litebert"]
            print(
                f"{shape}: {options.whole} steps: litebert {seconds['litebert']:.1f} s, Trainer "
                f"{seconds['Trainer']:.1f} s, ratio {ratio:.2f}"
            )
            continue
        results[shape] = comparison = compare(shape, machine, options)
        litebert_seconds = comparison["seconds"]["litebert"]
        others = [
            f"{name} {value * 1e3:,.0f} ms ({value / litebert_seconds:.2f})"
            for name, value in comparison["seconds"].items()
        ]
        print(
            f"{shape}: {', '.join(others)}; share of the products' speed "
            f"{comparison['share_of_products']:.2f}"
        )
    write_results(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
