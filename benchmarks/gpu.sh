#!/bin/sh
# The whole campaign on one GPU in under 25 minutes: the tests that need one, then benchmarks/gpu.py.
#     benchmarks/gpu.sh [--out gpu.json] [--minutes 22] [--dry]
# PYTHON names the interpreter; without it, that of .venv.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

tests=0
timeout 300 "$PYTHON" -m pytest -q -p no:cacheprovider -m cuda tests/test_cuda.py || tests=$?
"$PYTHON" benchmarks/gpu.py "$@" || exit
exit $tests
