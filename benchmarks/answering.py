"""Answering beside `transformers`, ONNX Runtime and OpenVINO: from texts to probabilities or
sentence vectors, in turns, equal answers.

    python benchmarks/answering.py [--data FILE] [--tokenizer FILE] [--networks minilm albert]
    [--rounds 5]
                                   [--threads N] [--clock wall|processor] [--json FILE]
    python benchmarks/answering.py --model MODEL --data FILE
    python benchmarks/answering.py --networks modernbert --tokens 2048 --rows 2

The networks have random weights: a BERT of MiniLM's shape (6 layers, H 384), albert-base and, where
it is named, modernbert-base (windows of 128). With --tokens each text has so many. Or MODEL is one
that litebert trained, or holds (`sentiment`, `vectors`), which is converted for the peers; of
vectors, sentence-transformers is the peer that `transformers` names. If it has early exits,
litebert takes part with them too; if FILE has a column `label`, the share of right answers is
printed. FILE is a TSV with a column `sentence`, such as SST-2's dev.tsv, or has one text on each
line; without it, sentences of the built-in corpus are taken. --tokenizer is a vocabulary such as
BERT's vocab.txt; without it one is trained on the built-in corpus. The peers read texts as their
users do: the tokenizer of `transformers`, sorted by length, 32 at a time, padded to the longest.
Their graph is what `torch.onnx.export` makes of the network of `transformers`; int8 is
`quantize_dynamic` of that.

Where the processor multiplies bfloat16 or bytes natively, litebert takes part with these types too,
and where bfloat16, `transformers` under autocast and OpenVINO with this hint.

Prints rows per second (medians of rounds in which all take turns) and the ratio to the best peer of
the same precision, the 50th and 99th percentile of the time that one text takes, and the largest
difference of a probability. Below are the texts a second that
linear layers alone would allow if each instruction of the cores were a multiply-add of float32.
It ends with status 1 where a float32 answer differs by more than 1e-4.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import itertools
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
import numpy as np
import torch
from numpy.typing import NDArray
from peak import measure_peak
from results import machine
from results import write as write_results

import litebert
from litebert.base.errors import ConfigError
from litebert.kernels.network import list_dtypes
from litebert.kernels.packing import Dtype
from litebert.text.sources import read_documents
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from litebert.train import device as devices

Answers = Callable[[Sequence[str]], NDArray[np.float64]]
BATCH = 32
ROWS = {"minilm": 872, "albert": 200, "modernbert": 8}
BFLOAT16, INT8, EXITS = "bfloat16", "int8", "exits"
"""Marks in the names of systems that are not in float32."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--model", help="a trained model, instead of networks with random weights")
    parser.add_argument("--networks", nargs="+", choices=ROWS, default=list(ROWS)[:2])
    parser.add_argument("--tokens", type=int, help="tokens of each text, which are random words")
    parser.add_argument("--rows", type=int, help="texts, at most; by default 872 and 200")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--latency", type=int, default=100, help="texts that are answered one at a time"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall", help="processor: of all threads"
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        help="those to run, by the beginnings of their names; by default all",
    )
    parser.add_argument(
        "--without", nargs="+", default=[], help="systems to leave out, by parts of their names"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    texts, labels = read(arguments.data)
    report: dict[str, Any] = {
        "machine": machine(),
        "threads": arguments.threads,
        "clock": arguments.clock,
    }
    status, peak = 0, measure_peak()
    with tempfile.TemporaryDirectory() as folder:
        for name in [Path(arguments.model).name] if arguments.model else arguments.networks:
            sample = texts[: arguments.rows or ROWS.get(name)]
            place = Path(folder, name)
            if arguments.model:
                litebert.convert(arguments.model, place, to="hf")
            else:
                build(
                    name,
                    Tokenizer.load(arguments.tokenizer)
                    if arguments.tokenizer
                    else train_wordpiece(),
                    place,
                )
            if arguments.tokens:
                sample = make_texts(place, arguments.tokens, arguments.rows or ROWS[name])
            systems = all_systems(place, arguments.threads, choose(arguments), arguments.model)
            classifies = not has_vectors(place)
            has_right = arguments.model and labels and classifies
            right = numbers(place, labels[: len(sample)]) if has_right else None
            measurements = measure(
                systems, sample, right, classifies, arguments.rounds, arguments.latency, clock
            )
            report[name] = {"rows": len(sample), "systems": measurements}
            exact = [
                measurement
                for system, measurement in measurements.items()
                if precision(system) == "float32" and EXITS not in system
            ]
            status |= any(measurement["apart"] > 1e-4 for measurement in exact)
            print(table(name, len(sample), measurements, arguments.clock), flush=True)
            if not arguments.model:
                bound = arguments.threads * peak / count_linear_operations(place, sample)
                report[name]["bound_rows_per_second"] = bound
                print(f"The float32 peak of {arguments.threads} cores: {bound:.1f} rows/s\n")
    print(report["machine"], f"{arguments.threads} threads", sep=", ")
    write_results(arguments.json, report)
    return status


def choose(arguments: argparse.Namespace) -> Callable[[str], bool]:
    """True of the name of a system that --systems and --without allow."""
    beginnings = tuple(arguments.systems or [""])
    return lambda name: (
        name.startswith(beginnings) and not any(part in name for part in arguments.without)
    )


def read(path: Path | None) -> tuple[list[str], list[str]]:
    """Texts, and their labels where there are any."""
    if path is None:
        sentences = (
            line.strip()
            for document in read_documents(["python-docs"])
            for line in document.text.split(". ")
        )
        return list(
            itertools.islice(
                (sentence for sentence in sentences if 20 < len(sentence) < 250), max(ROWS.values())
            )
        ), []
    with open(path, encoding="utf-8", newline="") as file:
        if path.suffix != ".tsv":
            return file.read().splitlines(), []
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        return [row["sentence"] for row in rows], [row["label"] for row in rows if "label" in row]


def numbers(folder: Path, labels: Sequence[str]) -> list[int]:
    """Numbers of labels, which are names of the model's classes or numbers themselves."""
    (answer,) = litebert.load(folder).predict(["."])
    names = list(answer["probabilities"])
    return [names.index(label) if label in names else int(label) for label in labels]


def make_texts(folder: Path, tokens: int, count: int) -> list[str]:
    """Texts of so many tokens each: words that are tokens themselves."""
    vocabulary = (folder / "vocab.txt").read_text("utf-8").split()
    words = np.array([word for word in vocabulary if word.isascii() and word.isalpha()])
    chosen = np.random.default_rng(0).choice(words, (count, tokens - 2))
    return [" ".join(row) for row in chosen]


def train_wordpiece() -> Tokenizer:
    return train_tokenizer(
        (document.text for document in read_documents(["python-docs"])),
        kind="wordpiece",
        vocab_size=8192,
    )


def build(name: str, words: Tokenizer, folder: Path) -> None:
    """A folder of `transformers` with random weights, spread widely enough that answers differ."""
    import transformers

    torch.manual_seed(0)
    if name == "minilm":
        config: Any = transformers.BertConfig(
            vocab_size=30522,
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=12,
            intermediate_size=1536,
            initializer_range=0.05,
            pad_token_id=words.pad_id,
        )
        network: Any = transformers.BertForSequenceClassification(config)
    elif name == "modernbert":
        config = transformers.ModernBertConfig(
            vocab_size=30522,
            max_position_embeddings=8192,
            initializer_range=0.03,
            attention_dropout=0.0,
            pad_token_id=words.pad_id,
            cls_token_id=words.cls_id,
            sep_token_id=words.sep_id,
            bos_token_id=words.cls_id,
            eos_token_id=words.sep_id,
        )
        network = transformers.ModernBertForSequenceClassification(config)
    else:
        config = transformers.AlbertConfig(
            vocab_size=30522,
            embedding_size=128,
            hidden_size=768,
            num_attention_heads=12,
            intermediate_size=3072,
            initializer_range=0.04,
            pad_token_id=words.pad_id,
        )
        network = transformers.AlbertForSequenceClassification(config)
    network.save_pretrained(folder)
    words.save(folder)


# -------------------------------------------------------------------------------------- the systems


def all_systems(
    folder: Path, threads: int, is_wanted: Callable[[str], bool], run: str | None = None
) -> dict[str, Answers]:
    """Those wanted of a folder of `transformers`, and with the early exits of the run that it was
    converted from.
    """
    systems: dict[str, Answers] = {}
    for name, make in list_systems(folder, threads, run).items():
        if not is_wanted(name):
            continue
        try:
            systems[name] = make()
            systems[name](["a"])
        except (ConfigError, ImportError) as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            systems.pop(name, None)
    return systems


def list_systems(folder: Path, threads: int, run: str | None) -> dict[str, Callable[[], Answers]]:
    """What makes each system, by its name."""

    def ours(place: str | Path, engine: str, dtype: Dtype | None = None) -> Callable[[], Answers]:
        return lambda: answer_with_model(
            replace(
                litebert.load(place, engine=engine, dtype=dtype, device="cpu"), threads=threads
            ),
            has_vectors(folder),
        )

    def peer(attention: str, autocast: torch.dtype | None = None) -> Callable[[], Answers]:
        return lambda: answer_with_peer(folder, network(folder, attention, autocast))

    def small() -> Answers:
        litebert.export(folder, folder / "exported", dtype="int8", format="onnx")
        return ours(folder / "exported", "onnx")()

    def exported() -> Path:
        graph = folder / "export.onnx"
        if not graph.exists():
            export(folder, graph)
        return graph

    def stock() -> Answers:
        quantize(exported(), folder / "int8.onnx")
        return answer_with_peer(folder, runtime(folder / "int8.onnx", threads))

    systems = {}
    for dtype in list_dtypes():
        name = "litebert compiled" if dtype == "float32" else f"litebert compiled {dtype}"
        systems[name] = ours(folder, "compiled", dtype)
        if run is not None and Path(run, "exits.json").exists():
            systems[f"{name}, {EXITS}"] = ours(run, "compiled", dtype)
    systems |= {
        "litebert onnx": ours(folder, "onnx"),
        "litebert onnx int8": small,
        "transformers eager": peer("eager"),
        "transformers sdpa": peer("sdpa"),
        "ONNX Runtime": lambda: answer_with_peer(folder, runtime(exported(), threads)),
        "stock int8": stock,
        "OpenVINO": lambda: answer_with_peer(folder, openvino(exported(), threads)),
    }
    if devices.choose("auto", "cpu").autocast is torch.bfloat16:
        systems["transformers bfloat16"] = peer("sdpa", torch.bfloat16)
        systems["OpenVINO bfloat16"] = lambda: answer_with_peer(
            folder, openvino(exported(), threads, "bf16")
        )
    return systems


def answer_with_model(model: litebert.Model, has_vectors: bool) -> Answers:
    if has_vectors:
        return lambda texts: model.encode(texts).astype(np.float64)

    def answers(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.array(
            [list(prediction["probabilities"].values()) for prediction in model.predict(texts)]
        )

    return answers


Batch = dict[str, NDArray[np.int64]]


def answer_with_peer(folder: Path, logits: Callable[[Batch], NDArray[np.float32]]) -> Answers:
    """Sorted batches, as their users write them."""
    from transformers import AutoConfig, AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)
    longest = AutoConfig.from_pretrained(folder).max_position_embeddings

    def answers(texts: Sequence[str]) -> NDArray[np.float64]:
        ids = words(list(texts), truncation=True, max_length=longest)["input_ids"]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        rows: dict[int, NDArray[np.float64]] = {}
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            batch = words.pad({"input_ids": [ids[i] for i in chosen]}, return_tensors="np")
            if "token_type_ids" in words.model_input_names:
                batch["token_type_ids"] = np.zeros_like(batch["input_ids"])
            values = logits(dict(batch)).astype(np.float64)
            if not has_vectors(folder):
                values = np.exp(values)
                values /= values.sum(-1, keepdims=True)
            rows.update(zip(chosen, values, strict=True))
        return np.array([rows[i] for i in range(len(ids))])

    return answers


def has_vectors(folder: Path) -> bool:
    return (folder / "modules.json").exists()


class Vectors(torch.nn.Module):
    """The vectors of sentence-transformers, by the arguments of a network of `transformers`."""

    def __init__(self, folder: Path, attention: str):
        from sentence_transformers import SentenceTransformer

        super().__init__()
        self.model = SentenceTransformer(
            str(folder), device="cpu", model_kwargs={"attn_implementation": attention}
        )

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            batch["token_type_ids"] = token_type_ids
        vectors: torch.Tensor = self.model(batch)["sentence_embedding"]
        return vectors


def open_network(folder: Path, attention: str) -> Any:
    from transformers import AutoModelForSequenceClassification

    if has_vectors(folder):
        return Vectors(folder, attention).eval()
    return AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation=attention
    ).eval()


def network(
    folder: Path, attention: str, autocast: torch.dtype | None = None
) -> Callable[[Batch], NDArray[np.float32]]:
    model = open_network(folder, attention)

    @torch.inference_mode()
    def logits(batch: Batch) -> NDArray[np.float32]:
        with torch.autocast("cpu", autocast, enabled=autocast is not None):
            output = model(**{name: torch.from_numpy(array) for name, array in batch.items()})
        logits = output if isinstance(output, torch.Tensor) else output.logits
        array: NDArray[np.float32] = logits.float().numpy()
        return array

    return logits


def export(folder: Path, graph: Path) -> None:
    from transformers import AutoTokenizer

    model = open_network(folder, "eager")
    taken = AutoTokenizer.from_pretrained(folder).model_input_names
    # The tokenizer may make segments for a network that has none, such as ModernBERT. They would
    # arrive as another argument: the exporter gives inputs by position.
    read = inspect.signature(model.forward).parameters
    names = [
        str(input_name)
        for input_name in ("input_ids", "attention_mask", "token_type_ids")
        if input_name in taken and input_name in read
    ]
    example = tuple(torch.full((2, 16), int(name != "token_type_ids")) for name in names)
    axes = {name: {0: "batch", 1: "length"} for name in names}
    torch.onnx.export(
        model,
        example,
        str(graph),
        input_names=names,
        output_names=["logits"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )


def quantize(graph: Path, small: Path) -> None:
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)
    quantize_dynamic(str(graph), str(small), weight_type=QuantType.QInt8)
    logging.disable(logging.NOTSET)


def runtime(graph: Path, threads: int) -> Callable[[Batch], NDArray[np.float32]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]

    def logits(batch: Batch) -> NDArray[np.float32]:
        array: NDArray[np.float32] = session.run(None, {name: batch[name] for name in names})[0]
        return array

    return logits


def openvino(
    graph: Path, threads: int, precision: str = "f32"
) -> Callable[[Batch], NDArray[np.float32]]:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    compiled = openvino.Core().compile_model(str(graph), "CPU", settings)
    names = [node.any_name for node in compiled.inputs]

    def logits(batch: Batch) -> NDArray[np.float32]:
        array: NDArray[np.float32] = compiled({name: batch[name] for name in names})[0].copy()
        return array

    return logits


# ---------------------------------------------------------------------------------------- measuring


def measure(
    systems: dict[str, Answers],
    texts: Sequence[str],
    right: Sequence[int] | None,
    classifies: bool,
    rounds: int,
    latency: int,
    clock: Callable[[], float],
) -> dict[str, dict[str, Any]]:
    """Throughput and latency of each, in turns, and the share that is `right`."""
    names = list(systems)
    reference = systems[names[0]](texts)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    alone: dict[str, list[float]] = {name: [] for name in names}
    apart = dict[str, float]()
    same, score = dict[str, float | None](), dict[str, float | None]()
    for name in names:
        probabilities = systems[name](texts)
        apart[name] = float(np.abs(probabilities - reference).max())
        alike = (probabilities.argmax(1) == reference.argmax(1)).mean()
        same[name] = float(alike) if classifies else None
        score[name] = None if right is None else float((probabilities.argmax(1) == right).mean())
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = clock()
            systems[name](texts)
            seconds[name].append(clock() - start)
    for first in range(0, latency, 10):
        for name in names:
            for text in texts[first : first + 10]:
                start = clock()
                systems[name]([text])
                alone[name].append(clock() - start)
    return {
        name: {
            "rows_per_second": len(texts) / statistics.median(seconds[name]),
            "p50_ms": float(1000 * np.percentile(alone[name], 50)),
            "p99_ms": float(1000 * np.percentile(alone[name], 99)),
            "apart": apart[name],
            "same_labels": same[name],
            "accuracy": score[name],
        }
        for name in names
    }


def count_linear_operations(folder: Path, texts: Sequence[str]) -> float:
    """Operations of a text in the linear layers of a network, without padding, the mean of texts:
    the least that every program computes."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)
    tokens = sum(len(ids) for ids in words(list(texts))["input_ids"]) / len(texts)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    weights = []  # of each application: a shared layer is one module that is applied several times

    def record(module: torch.nn.Linear, inputs: tuple[torch.Tensor], _: object) -> None:
        if inputs[0].dim() == 3:  # of tokens, and not of a pooled vector
            weights.append(module.weight.numel())

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(record)
    with torch.inference_mode():
        model(torch.full((1, 4), words.cls_token_id))
    return 2 * tokens * sum(weights)


def precision(system: str) -> str:
    return next((mark for mark in (BFLOAT16, INT8) if mark in system), "float32")


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def table(name: str, rows: int, measurements: dict[str, dict[str, Any]], clock: str) -> str:
    peers = [system for system in measurements if not system.startswith("litebert")]

    def best(system: str) -> float:
        same = (peer for peer in peers if precision(peer) == precision(system))
        return max((measurements[peer]["rows_per_second"] for peer in same), default=float("nan"))

    lines = [
        f"{name}, {rows} rows, {clock} time",
        f"{'':27}{'rows/s':>10}{'/ best peer':>13}{'p50':>10}{'p99':>10}"
        f"{'probabilities to':>18}{'same labels':>13}{'accuracy':>10}",
    ]
    lines += [
        f"{system:27}{measurement['rows_per_second']:10.1f}"
        f"{measurement['rows_per_second'] / best(system):13.2f}"
        f"{measurement['p50_ms']:7.2f} ms{measurement['p99_ms']:7.2f} ms"
        f"{measurement['apart']:18.1g}{percent(measurement['same_labels']):>13}"
        f"{percent(measurement['accuracy']):>10}"
        for system, measurement in measurements.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
