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


def compared(head: str, onnx: Path, hf: Path) -> float:
    tokenizer = transformers.AutoTokenizer.from_pretrained(onnx)
    ours = getattr(optimum, f"ORTModel{CLASSES[head]}").from_pretrained(onnx)
    name = "AutoModel" if head == "backbone" else f"AutoModel{CLASSES[head]}"
    theirs = getattr(transformers, name).from_pretrained(hf).eval()
    given = dict(tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt"))
    if head == "choice":
        given = {name: rows[None] for name, rows in given.items()}
    with torch.no_grad():
        wanted, found = theirs(**given), ours(**given)
    real = given["attention_mask"].bool()
    by_token = head in ("tokens", "span", "mlm", "backbone")
    worst = 0.0
    for output in ("logits", "start_logits", "end_logits", "last_hidden_state"):
        if output in found:
            one, other = (
                torch.as_tensor(both[output])[real if by_token else ...] for both in (wanted, found)
            )
            assert one.shape == other.shape
            worst = max(worst, float((one - other).abs().max()))
    if head in ("sequence", "tokens"):
        assert ours.config.id2label == theirs.config.id2label
    return worst


def sentences(onnx: Path, hf: Path, wanted: Any = None) -> float:
    """The largest difference of vectors from those of `hf`, and of these from `wanted`, where it is
    given.
    """
    from sentence_transformers import SentenceTransformer

    ours: Any = SentenceTransformer(
        str(onnx), backend="onnx", device="cpu", model_kwargs={"file_name": "model.onnx"}
    )
    theirs: Any = SentenceTransformer(str(hf), device="cpu")
    expected = theirs.encode(TEXTS)
    gap = 0.0 if wanted is None else float(np.abs(expected - wanted).max())
    return max(gap, float(np.abs(ours.encode(TEXTS) - expected).max()))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    heads = sorted(path.name for path in (folder / "onnx").iterdir())
    gaps = {head: compared(head, folder / "onnx" / head, folder / "hf" / head) for head in heads}
    if "backbone" in gaps:
        gaps["sentences"] = sentences(folder / "onnx" / "backbone", folder / "hf" / "backbone")
    if (folder / "vectors.npy").exists():
        gaps["vectors"] = sentences(
            folder / "vectors" / "onnx", folder / "vectors" / "hf", np.load(folder / "vectors.npy")
        )
    sys.stdout.write(json.dumps(gaps) + "\n")
