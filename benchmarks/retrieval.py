"""Search in the passages of SQuAD 1.1: counted words, a published encoder, a student of it, and a
reranker.

    python benchmarks/retrieval.py ENCODER SQUAD NOVELS OUT

ENCODER is a model of sentence vectors, SQUAD is dev-v1.1.json, and NOVELS is a folder of .txt.gz
files. The corpus has every passage of SQUAD. The questions of every second article are searched
for; the questions of the other articles train the reranker and, without their passages' names, the
student. OUT/beir gets the layout of BEIR. The same command again continues: what has ended, a score
too, is not repeated.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from vector_teacher import STUDENT, read_novels, run

from litebert.base.storage import write_json
from litebert.text.sentences import split_sentences

SCORES = ("ndcg_at_10", "recall_at_10", "recall_at_100", "mrr_at_10")


def write_collection(squad: Path, folder: Path, searches: int, lessons: int) -> None:
    """Write the corpus, the queries and the judgments of both halves of the articles."""
    articles = json.loads(squad.read_text(encoding="utf-8"))["data"]
    halves: dict[str, list[tuple[str, str]]] = {"test": [], "train": []}
    corpus: list[dict[str, str]] = []
    queries: dict[str, str] = {}
    for number, article in enumerate(articles):
        half = halves["train" if number % 2 else "test"]
        for passage in article["paragraphs"]:
            name = f"p{len(corpus)}"
            corpus.append({"_id": name, "text": passage["context"]})
            for row in passage["qas"]:
                queries[row["id"]] = row["question"].strip()
                half.append((row["id"], name))
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for part, most in (("test", searches), ("train", lessons)):
        rows = random.Random(1).sample(halves[part], min(most, len(halves[part])))
        lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{name}\t1" for query, name in rows)]
        (folder / "qrels" / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _write_lines(folder / "queries.jsonl", [{"_id": k, "text": v} for k, v in queries.items()])
    _write_lines(folder / "corpus.jsonl", corpus)


def _write_lines(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_texts(folder: Path, novels: Path, sentences: int, file: Path) -> None:
    """Write the texts of the student: the passages, their sentences, the questions of the training
    part, and sentences of novels.
    """
    corpus = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
    rows = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    lines = (folder / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    train = {line.split("\t")[0] for line in lines}
    texts = [*corpus, *(sentence for text in corpus for sentence in split_sentences(text))]
    texts += [row["text"] for row in rows if row["_id"] in train]
    texts += read_novels(novels, sentences)
    unique = dict.fromkeys(" ".join(text.split()) for text in texts)
    file.write_text("\n".join(unique) + "\n", encoding="utf-8")


def make_models(encoder: str, out: Path, length: int, epochs: float) -> dict[str, list[str]]:
    """Make the models; return the words of `litebert evaluate` of each, by name."""
    collection, student = out / "beir", out / "student.toml"
    words = out / "tokenizer"
    if not words.is_dir():
        size = ("--kind", "wordpiece", "--vocab-size", 16384)
        run("tokenizer", "train", out / "texts.txt", "--split", "line", *size, "--out", words)
    student.write_text(STUDENT, encoding="utf-8")
    pairs = ("--task", "pairs", "--data", out / "texts.txt", "--teacher", encoder)
    settings = ("--length", length, "--epochs", epochs)
    run(*("finetune", student, "--tokenizer", words, *pairs, *settings, "--out", out / "student"))
    rerank = ("--task", "rerank", "--data", collection, "--length", 256, "--epochs", 1)
    run("finetune", encoder, *rerank, "--out", out / "reranker")
    top = [str(out / "reranker"), "--top", "10"]
    return {
        "encoder": [encoder],
        "student": [str(out / "student")],
        "reranker after BM25": top,
        "reranker after the encoder": [*top, "--retriever", encoder],
    }


def score(words: list[str], collection: Path, file: Path) -> dict[str, Any]:
    """Score a model in a process of its own, once."""
    if not file.is_file():
        command = [sys.executable, "-m", "litebert", "evaluate", *words]
        command += ["--retrieval", str(collection), "--qrels", "test", "--json"]
        print("$", *command, flush=True)
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        write_json(file, json.loads(answer))
    return dict(json.loads(file.read_text(encoding="utf-8")))


def main() -> None:
    """Make the models, score them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("encoder")
    for name in ("squad", "novels", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--sentences", type=int, default=60_000, help="sentences of the novels")
    parser.add_argument("--searches", type=int, default=1_000, help="questions that are searched")
    parser.add_argument("--lessons", type=int, default=2_000, help="questions of the reranker")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text of the student")
    parser.add_argument("--epochs", type=float, default=2, help="of the student")
    options = parser.parse_args()
    collection, texts = options.out / "beir", options.out / "texts.txt"
    if not (collection / "corpus.jsonl").is_file():
        write_collection(options.squad, collection, options.searches, options.lessons)
    if not texts.is_file():
        write_texts(collection, options.novels, options.sentences, texts)
    models = make_models(options.encoder, options.out, options.length, options.epochs)
    for name, words in models.items():
        print(name, score(words, collection, options.out / f"{name}.json"), flush=True)


if __name__ == "__main__":
    main()
