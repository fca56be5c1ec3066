"""Are the golden runs bit for bit those of an earlier commit?

    python tests/golden/compare.py [--base HEAD~1]

runs the `runner.py` of the working tree and of the base commit, each on its own package, on this
very machine. It compares every number that both wrote exactly: a refactoring must change none.
A field, a file or a run that only one of them wrote is noted and is no difference. The exit status
is 0 when all shared numbers are equal or the base has no golden runs, and 1 when some differ. Each
difference is named with its first step, and then the changelog must say why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).resolve().with_name("runner.py")


def golden_runs(tree: Path) -> dict[str, Any]:
    """Run a tree's own golden runs on its own package, in a process of its own."""
    source, runner = tree / "src", tree / RUNNER.relative_to(ROOT)
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }

    def run(*options: str) -> str:
        command = [sys.executable, str(runner), *options]
        return subprocess.run(
            command, env=environment, check=True, cwd=source, stdout=subprocess.PIPE, text=True
        ).stdout

    with tempfile.TemporaryDirectory() as folder:
        package = run("--package").strip()
        if not Path(package).resolve().is_relative_to(source.resolve()):
            raise SystemExit(f"the runner imports {package} and not the package in {source}")
        results = Path(folder, "results.json")
        run("--out", str(results))
        runs: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))["runs"]
        return runs


def compare(base: dict[str, Any], current: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Compare the results of two trees: the differences, and notes on what only one tree wrote."""
    notes = [f"{name}: only in the base" for name in base if name not in current]
    notes += [f"{name}: new here" for name in current if name not in base]
    differences: list[str] = []
    for name in (name for name in current if name in base):
        before, after = base[name], current[name]
        missing, changed = _compare_rows(before["rows"], after["rows"])
        kinds = {"file": "files", "score": "scores"}
        for kind, key in kinds.items():
            absent, unequal = _compare_fields(before.get(key, {}), after.get(key, {}))
            missing += [f"{kind} {field}" for field in absent]
            changed += [f"{kind} {field} differs" for field in unequal]
        if before.get("answers") != after.get("answers"):
            changed.append("answers differ")
        differences += [f"{name}: {line}" for line in changed]
        if missing:
            notes.append(f"{name}: written by only one of the two: {', '.join(sorted(missing))}")
    return differences, notes


def _compare_rows(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> tuple[list[str], list[str]]:
    """Compare metrics row by row: the fields that only one has, and the first step that differs."""
    missing: set[str] = set()
    for was, now in zip(before, after, strict=False):
        absent, unequal = _compare_fields(was, now)
        missing |= {f"field {field}" for field in absent}
        if unequal:
            key = unequal[0]
            line = f"{key} differs at step {now['step']}: {was[key]!r} there and {now[key]!r} here"
            return sorted(missing), [line]
    if len(before) != len(after):
        return sorted(missing), [f"{len(before)} rows of metrics there and {len(after)} here"]
    return sorted(missing), []


def _compare_fields(before: dict[str, Any], after: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Compare two records: the keys that only one has, and the shared keys with other values."""
    missing = sorted(before.keys() ^ after.keys())
    return missing, [key for key in before if key in after and before[key] != after[key]]


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare the golden runs with those of another commit, bit for bit."
    )
    parser.add_argument(
        "--base", default="HEAD~1", help="the commit to compare with (default: HEAD~1)"
    )
    base = parser.parse_args().base
    try:
        commit = git("rev-parse", "--verify", f"{base}^{{commit}}")
    except subprocess.CalledProcessError:
        sys.stderr.write(f"there is no commit {base} in {ROOT}\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "base")
        git("worktree", "add", "--detach", str(tree), commit)
        try:
            if not (tree / RUNNER.relative_to(ROOT)).exists():
                sys.stdout.write(
                    f"{base} ({commit[:9]}) has no golden runs, so there is nothing to "
                    "compare with\n"
                )
                return 0
            base_runs = golden_runs(tree)
        finally:
            git("worktree", "remove", "--force", str(tree))
    current_runs = golden_runs(ROOT)
    differences, notes = compare(base_runs, current_runs)
    for line in [*notes, *differences]:
        sys.stdout.write(f"{line}\n")
    if differences:
        return 1
    shared = len(current_runs.keys() & base_runs.keys())
    sys.stdout.write(f"{shared} golden runs are bit for bit those of {base} ({commit[:9]})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
