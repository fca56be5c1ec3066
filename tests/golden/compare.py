"""Are the golden runs bit for bit those of an earlier commit?

    python tests/golden/compare.py [--base HEAD~1]

runs this tree's `runner.py` on the working tree and on the base commit, on this very machine, and compares every
number exactly: a refactoring must change none. Exit status 0 when all are equal or the base has no golden runs, 1
when some differ, each named with its first step that does; then the changelog must say why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).resolve().with_name("runner.py")


def golden_runs(source: Path) -> dict[str, Any]:
    """The results of the runner on the package in `source`, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}

    def run(*options: str) -> None:
        subprocess.run([sys.executable, str(RUNNER), *options], env=environment, check=True, cwd=source)

    with tempfile.TemporaryDirectory() as folder:
        which = subprocess.run(
            [sys.executable, str(RUNNER), "--package"], env=environment, check=True, cwd=source,
            capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        if not Path(which).resolve().is_relative_to(source.resolve()):
            raise SystemExit(f"the runner imports {which} and not the package in {source}")
        results = Path(folder, "results.json")
        run("--out", str(results))
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        return found["runs"]  # type: ignore[no-any-return]


def differences(base: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """What differs between two results, a line for each run: the first row of its metrics, else files, else answers."""
    lines = [f"{name}: only in the base" for name in base if name not in here]
    lines += [f"{name}: new here, so there is nothing to compare" for name in here if name not in base]
    for name in (name for name in here if name in base):
        was, now = base[name], here[name]
        pairs = zip_longest(was["rows"], now["rows"], fillvalue={})
        rows = next(((a, b) for a, b in pairs if a != b), None)
        if rows is not None:
            there, key = rows[0], _differing(*rows)[0]
            step = {**rows[1], **there}["step"]
            lines.append(
                f"{name}: {key} differs at step {step}: {there.get(key)!r} there and {rows[1].get(key)!r} here"
            )
        elif was["files"] != now["files"]:
            lines.append(f"{name}: only the files differ: {', '.join(_differing(was['files'], now['files']))}")
        elif was != now:
            lines.append(f"{name}: only {', '.join(_differing(was, now))} differ")
    return lines


def _differing(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """The keys whose values are not the same."""
    return [key for key in {**there, **here} if (key in there, there.get(key)) != (key in here, here.get(key))]


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the golden runs with those of another commit, bit for bit.")
    parser.add_argument("--base", default="HEAD~1", help="the commit to compare with (default: HEAD~1)")
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
                sys.stdout.write(f"{base} ({commit[:9]}) has no golden runs, so there is nothing to compare with\n")
                return 0
            there = golden_runs(tree / "src")
        finally:
            git("worktree", "remove", "--force", str(tree))
    here = golden_runs(ROOT / "src")
    found = differences(there, here)
    for line in found:
        sys.stdout.write(f"{line}\n")
    if any("new here" not in line for line in found):
        return 1
    sys.stdout.write(f"{len(here)} golden runs are bit for bit those of {base} ({commit[:9]})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
