"""Time and memory of one sequence by its length, beside `transformers`' ModernBERT and Longformer
of the same size.

    python benchmarks/lengths.py [--lengths 512 1024 2048 4096 8192] [--hidden 256] [--layers 6]
    [--rounds 3]
                                 [--json FILE]

One sequence is trained on (a forward and a backward pass of masked language modeling, 15% of the
tokens predicted) and answered (the last hidden states), in float32. litebert runs ModernBERT's
point with every third layer global, with none, and with none but a global first token;
`transformers` runs ModernBERT with the same weights as the first, and a Longformer whose window is
as wide and whose first token is global. Every measurement is a process of its own: a small step
first, then --rounds of each kind, of which the median counts. Memory is the peak resident memory
above what the process held before it had a model (Linux). The loss of litebert and of ModernBERT
must agree to 1e-4 at every length. `--clock processor` counts processor time, of which other
programs that run beside take less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from results import write as write_results
from torch.nn import functional as F

SYSTEMS = (
    "litebert, every third layer global",
    "litebert, all layers windowed",
    "litebert, all layers windowed, [CLS] global",
    "ModernBERT",
    "Longformer",
)
PIECES, WINDOW = 8192, 128
Passes = tuple[
    Callable[[torch.Tensor, torch.Tensor], torch.Tensor], Callable[[torch.Tensor], object]
]
"""The loss of ids (1, S) at predicted places (K,), and the states of ids."""


def config_of(hidden: int, layers: int, system: str, longest: int) -> Any:
    """ModernBERT's point at this size, without dropout."""
    from litebert import recipe, replace

    whole = recipe("modernbert-base")
    encoder = replace(
        whole.encoder,
        vocab_size=PIECES,
        embedding_size=hidden,
        hidden_size=hidden,
        layers=layers,
        heads=hidden // 64,
        intermediate_size=2 * hidden,
        max_positions=longest,
        window=WINDOW,
        global_every=0 if system in SYSTEMS[1:3] else 3,
        global_tokens=int(system == SYSTEMS[2]),
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    return replace(whole, encoder=encoder, sequences=replace(whole.sequences, length=longest))


def build_litebert(config: Any) -> Passes:
    from litebert.model.pretrainer import Pretrainer

    torch.manual_seed(0)
    model = Pretrainer(config)
    mlm: Any = model.objectives["mlm"]
    head = mlm["head"]

    def loss(ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        states = model.encoder(ids).last[0, places]
        return F.cross_entropy(head(states, model.encoder.embedding.word.weight), ids[0, places])

    return loss, model.encoder


def modern(config: Any) -> Passes:
    import transformers

    from litebert.interop import LoadedModel, save_hf
    from litebert.model.pretrainer import Pretrainer

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        save_hf(
            LoadedModel(Pretrainer(config).eval(), config, None, Path(folder)), Path(folder) / "hf"
        )
        model = transformers.ModernBertForMaskedLM.from_pretrained(
            Path(folder) / "hf", attn_implementation="sdpa"
        )

    def loss(ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        states = model.head(model.model(input_ids=ids).last_hidden_state[0, places])
        return F.cross_entropy(model.decoder(states), ids[0, places])

    return loss, lambda ids: model.model(input_ids=ids)


def longformer(config: Any) -> Passes:
    import transformers

    shape = config.encoder
    settings = transformers.LongformerConfig(
        vocab_size=PIECES,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=3 * shape.hidden_size,
        attention_window=WINDOW,
        max_position_embeddings=shape.max_positions + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.LongformerForMaskedLM(settings)
    first = torch.zeros(1, shape.max_positions, dtype=torch.long)
    first[0, 0] = 1

    def states(ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = model.longformer(
            ids, global_attention_mask=first[:, : ids.shape[1]]
        ).last_hidden_state
        return hidden

    return lambda ids, places: F.cross_entropy(
        model.lm_head(states(ids)[0, places]), ids[0, places]
    ), states


def measure(
    system: str, length: int, hidden: int, layers: int, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Measure in this process: seconds of both kinds, peak bytes of each, the loss."""
    config = config_of(hidden, layers, system, length)
    if system in SYSTEMS[3:]:
        import transformers  # noqa: F401 (which counts as a library)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loss, states = {SYSTEMS[3]: modern, SYSTEMS[4]: longformer}.get(system, build_litebert)(config)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, PIECES, (1, length), generator=generator)
    places = torch.randperm(length, generator=generator)[: length * 15 // 100]

    def answer() -> float:
        with torch.inference_mode():
            states(ids)
        return 0.0

    def train() -> float:
        value = loss(ids, places)
        value.backward()  # type: ignore[no-untyped-call]
        return value.item()

    figures: dict[str, float] = {}
    for name, run_pass in (("answering", answer), ("training", train)):
        value, times = run_pass(), []
        for _ in range(rounds):
            start = clock()
            run_pass()
            times.append(clock() - start)
        figures[name], figures["loss"] = statistics.median(times), value
        figures[f"{name}_bytes"] = 1024 * (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        )
    return figures


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Print a table for each kind of work, or JSON."""
    arguments = parse_arguments()
    names = ("hidden", "layers", "rounds", "clock")
    shape = [word for name in names for word in (f"--{name}", str(getattr(arguments, name)))]
    if arguments.one:
        system, length = arguments.one
        clock = time.perf_counter if arguments.clock == "wall" else time.process_time
        print(
            json.dumps(
                measure(
                    system, int(length), arguments.hidden, arguments.layers, arguments.rounds, clock
                )
            )
        )
        return 0
    results: dict[str, dict[int, dict[str, float]]] = {system: {} for system in arguments.systems}
    for length in arguments.lengths:
        for system in arguments.systems:
            words = [sys.executable, __file__, "--one", system, str(length), *shape]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            results[system][length] = json.loads(done.stdout)
        losses = [
            results[system][length]["loss"]
            for system in (SYSTEMS[0], SYSTEMS[3])
            if system in results
        ]
        assert max(losses, default=0) - min(losses, default=0) < 1e-4, (length, losses)
    write_results(arguments.json, results)
    first = arguments.lengths[0]
    print(
        f"hidden size {arguments.hidden}, {arguments.layers} layers, window {WINDOW}, "
        f"{arguments.clock} time, "
        f"{torch.get_num_threads()} threads, medians of {arguments.rounds}"
    )
    for kind in ("training", "answering"):
        header = "".join(f" {length:,} |" for length in arguments.lengths)
        print(
            f"\n| {kind}, ms (times {first:,}; MiB) "
            f"|{header}\n|---|{'---|' * len(arguments.lengths)}"
        )
        for system, by_length in results.items():
            row = f"| {system} |"
            for figures in by_length.values():
                times, mib = (
                    figures[kind] / by_length[first][kind],
                    figures[f"{kind}_bytes"] / 2**20,
                )
                row += f" {1000 * figures[kind]:,.0f} ({times:.1f}; {mib:,.0f}) |"
            print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
