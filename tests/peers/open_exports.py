"""Opens exports with optimum's and sentence-transformers' ONNX classes, beside the same models with
transformers.

Run by tests/test_peers.py in an environment that has these libraries. Its argument is a folder that
has `onnx/HEAD` and `hf/HEAD` for each head, and may have `vectors/onnx`, `vectors/hf` and
`vectors.npy`, what litebert gives for TEXTS. Prints a JSON object: for each head, the largest
difference of the outputs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from optimum import onnxruntime as optimum

CLASSES = {
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
    "mlm": "ForMaskedLM",
    "backbone": "ForFeatureExtraction",
}
TEXTS = ["red and green", "a blue text that is somewhat longer than the others", "yes"]


def compare_outputs(head: str, onnx: Path, hf: Path) -> float:
    tokenizer = transformers.AutoTokenizer.from_pretrained(onnx)
    ort_model = getattr(optimum, f"ORTModel{CLASSES[head]}").from_pretrained(onnx)
    name = "AutoModel" if head == "backbone" else f"AutoModel{CLASSES[head]}"
    torch_model = getattr(transformers, name).from_pretrained(hf).eval()
    batch = dict(tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt"))
    if head == "choice":
        batch = {name: rows[None] for name, rows in batch.items()}
    with torch.no_grad():
        wanted, actual = torch_model(**batch), ort_model(**batch)
    real = batch["attention_mask"].bool()
    by_token = head in ("tokens", "span", "mlm", "backbone")
    worst = 0.0
    for output in ("logits", "start_logits", "end_logits", "last_hidden_state"):
        if output in actual:
            first, other = (
                torch.as_tensor(both[output])[real if by_token else ...]
                for both in (wanted, actual)
            )
            assert first.shape == other.shape
            worst = max(worst, float((first - other).abs().max()))
    if head in ("sequence", "tokens"):
        assert ort_model.config.id2label == torch_model.config.id2label
    return worst


def sentences(onnx: Path, hf: Path, wanted: Any = None) -> float:
    """The largest difference of vectors from those of `hf`, and of these from `wanted`, where it is
    given.
    """
    from sentence_transformers import SentenceTransformer

    onnx_model: Any = SentenceTransformer(
        str(onnx), backend="onnx", device="cpu", model_kwargs={"file_name": "model.onnx"}
    )
    torch_model: Any = SentenceTransformer(str(hf), device="cpu")
    expected = torch_model.encode(TEXTS)
    gap = 0.0 if wanted is None else float(np.abs(expected - wanted).max())
    return max(gap, float(np.abs(onnx_model.encode(TEXTS) - expected).max()))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    heads = sorted(path.name for path in (folder / "onnx").iterdir())
    gaps = {
        head: compare_outputs(head, folder / "onnx" / head, folder / "hf" / head) for head in heads
    }
    if "backbone" in gaps:
        gaps["sentences"] = sentences(folder / "onnx" / "backbone", folder / "hf" / "backbone")
    if (folder / "vectors.npy").exists():
        gaps["vectors"] = sentences(
            folder / "vectors" / "onnx", folder / "vectors" / "hf", np.load(folder / "vectors.npy")
        )
    sys.stdout.write(json.dumps(gaps) + "\n")
