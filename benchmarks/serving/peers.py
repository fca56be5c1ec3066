"""Other libraries behind FastAPI, as their users write it: one request, one call of the library.

    python peers.py KIND FOLDER PORT THREADS [classes]

The routes are plain `def`, so FastAPI runs them in its threads. A queue that forms batches is not
among what people write around these libraries, and is not added here; `infinity_emb`, which has
one, is started by its own command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

Embed = Callable[[str], list[float]]


def sentence_transformers(folder: str, threads: int) -> Embed:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(folder, device="cpu")

    def embed(text: str) -> list[float]:
        vector: list[float] = model.encode(text, show_progress_bar=False).tolist()
        return vector

    return embed


def transformers(folder: str, threads: int) -> Embed:
    """The pipeline of features: states of all tokens, whose mean is taken here."""
    import torch
    from transformers import pipeline

    torch.set_num_threads(threads)
    states: Any = pipeline("feature-extraction", folder, device="cpu", return_tensors=True)

    def embed(text: str) -> list[float]:
        mean = states(text, truncation=True, max_length=128)[0].mean(0)
        vector: list[float] = (mean / mean.norm()).tolist()
        return vector

    return embed


def load_fastembed(folder: str, threads: int) -> Embed:
    import json

    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    width = json.loads((Path(folder) / "config.json").read_text())["hidden_size"]
    TextEmbedding.add_custom_model(
        "own",
        PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(url="none"),
        dim=width,
        model_file="model.onnx",
    )
    model = TextEmbedding("own", threads=threads, specific_model_path=folder)

    def embed(text: str) -> list[float]:
        vector: list[float] = next(iter(model.embed([text]))).tolist()
        return vector

    return embed


def load_onnxruntime(folder: str, threads: int) -> Embed:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    graph = str(Path(folder) / "model.onnx")
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]

    def compute(inputs: dict[str, Any]) -> Any:
        return session.run(None, {name: inputs[name] for name in names})[0]

    return _embed_with(folder, compute)


def load_openvino(folder: str, threads: int) -> Embed:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    graph = str(Path(folder) / "model.onnx")
    compiled = openvino.Core().compile_model(graph, "CPU", settings)
    names = [node.any_name for node in compiled.inputs]

    def compute(inputs: dict[str, Any]) -> Any:
        request = compiled.create_infer_request()  # one for each thread of FastAPI
        return request.infer({name: inputs[name] for name in names})[0]

    return _embed_with(folder, compute)


def _embed_with(folder: str, compute: Callable[[dict[str, Any]], Any]) -> Embed:
    """A tokenizer, a graph, and the normalized mean of its states, or the probabilities of its
    logits."""
    import numpy as np
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    words.enable_truncation(128)

    def embed(text: str) -> list[float]:
        ids = np.array([words.encode(text).ids], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        output = compute({**inputs, "token_type_ids": np.zeros_like(ids)})[0]
        if output.ndim == 1:
            powers = np.exp(output - output.max())
            return list((powers / powers.sum()).tolist())
        mean = output.mean(0)
        vector: list[float] = (mean / np.linalg.norm(mean)).tolist()
        return vector

    return embed


def classify(folder: str, threads: int) -> Embed:
    """The pipeline of text classification."""
    import torch
    from transformers import pipeline

    torch.set_num_threads(threads)
    classes: Any = pipeline("text-classification", folder, device="cpu", top_k=None)

    def answer(text: str) -> list[float]:
        scores = {row["label"]: row["score"] for row in classes([text], truncation=True)[0]}
        return [scores[label] for label in sorted(scores)]

    return answer


KINDS = {
    "sentence-transformers": sentence_transformers,
    "transformers": transformers,
    "fastembed": load_fastembed,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
}


class Body(BaseModel):
    inputs: str


def main() -> None:
    kind, folder, port, threads, *task = sys.argv[1:]
    load = classify if (kind, *task) == ("transformers", "classes") else KINDS[kind]
    compute, app = load(folder, int(threads)), FastAPI()

    @app.post("/embed")
    def embed(body: Body) -> list[list[float]]:
        return [compute(body.inputs)]

    @app.post("/predict")
    def predict(body: Body) -> dict[str, list[float]]:
        return {"probabilities": compute(body.inputs)}

    uvicorn.run(app, host="127.0.0.1", port=int(port), access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
