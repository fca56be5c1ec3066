#!/bin/sh
# The wheel in an empty environment of some Python, and there the first commands of the README.
#
#     runs/try_wheel.sh PYTHON OUT [WHEEL]
#
# PYTHON is an interpreter, such as python3.13. Without WHEEL, the wheel of this repository is built. The requirements come from the package index, in the versions of
# constraints.txt. It takes about ten minutes on two cores, most of them for the quickstart; BUDGET makes it shorter.
set -eu

[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: runs/try_wheel.sh PYTHON OUT [WHEEL]" >&2; exit 2; }
python=$1
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

"$python" -m venv "$out/venv"
bin="$out/venv/bin"
export PIP_DISABLE_PIP_VERSION_CHECK=1
[ $# -eq 3 ] || "$bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$out" "$root"
wheel=${3:-$(ls "$out"/*.whl)}
"$bin/python" -m pip install --quiet -c "$root/constraints.txt" "$wheel[train,serve]"
"$bin/python" -m pip check

cd "$out"  # so that nothing of the repository is imported
unset PYTHONPATH
"$bin/python" --version
"$bin/litebert" doctor
"$bin/litebert" demo "A lovely film."
"$bin/litebert" quickstart --budget "${BUDGET:-4m}"
"$bin/litebert" predict quickstart/classifier --input quickstart/packages/dev.csv --out answers.csv --keep all
head -n 2 answers.csv

"$bin/litebert" serve quickstart/classifier --port "${PORT:-8123}" &
service=$!
trap 'kill $service' EXIT
"$bin/python" - "http://127.0.0.1:${PORT:-8123}" <<'EOF'
import sys
import time
from urllib.request import urlopen

for _ in range(60):
    try:
        print(urlopen(sys.argv[1] + "/health").status)
        break
    except OSError:
        time.sleep(1)
else:
    sys.exit("the service does not answer")
EOF
echo "$python: all commands succeeded"
