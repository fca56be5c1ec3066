#!/bin/sh
# The models in the package: sentiment and masked words, taught by a published encoder, and `vectors`.
#
#     runs/demo.sh OUT ENCODER NOVELS VECTORS
#
# ENCODER is all-MiniLM-L6-v2 (Apache-2.0), a folder or hf:sentence-transformers/all-MiniLM-L6-v2. NOVELS is what
# `litebert prepare` takes; ours are sixty English novels of 1840 to 1920 (ELTeC, public domain). VECTORS is
# the folder that runs/encoder/make.sh makes. The reviews come with the source distribution of vaderSentiment (MIT), which pip fetches unless ARCHIVE
# names it. It takes about an hour on two cores; the same command again continues. OUT/models.zip is what stands in
# src/litebert/demo.
set -eu

[ $# -eq 4 ] || { echo "usage: runs/demo.sh OUT ENCODER NOVELS VECTORS" >&2; exit 2; }
out=$1 encoder=$2 novels=$3 vectors=$4
here=$(dirname "$0")

litebert=${LITEBERT:-litebert}
python=${PYTHON:-python3}
budget=${BUDGET:-1500 steps}
review_budget=${BUDGET:-300 steps}
pieces=${PIECES:-6000}
review_pieces=${PIECES:-8000}
epochs=${EPOCHS:-3}

mkdir -p "$out"
archive=${ARCHIVE:-$out/vaderSentiment-3.3.2.tar.gz}
[ -f "$archive" ] || "$python" -m pip download --no-deps --no-binary :all: --dest "$out" vaderSentiment==3.3.2
[ -f "$out/reviews/test.csv" ] || "$python" "$here/demo_snippets.py" "$archive" "$out/reviews"

# Sentiment is taught by the encoder, fine-tuned on the ratings.
reviews="--task table --data $out/reviews/train.csv --dev $out/reviews/dev.csv --test $out/reviews/test.csv"
# shellcheck disable=SC2086
"$litebert" finetune "$encoder" $reviews --epochs 2 --out "$out/teacher"

text="$out/reviews/sentences.txt"
[ -f "$text" ] || "$python" "$here/demo_sentences.py" "$out/reviews/train.csv" "$text" 60000 "$novels"
[ -d "$out/tokenizer" ] || "$litebert" tokenizer train "$text" --split line --vocab-size "$pieces" --out "$out/tokenizer"
[ -d "$out/data" ] || "$litebert" prepare "$text" "$novels" --tokenizer "$out/tokenizer" --out "$out/data"
student="$here/demo.toml"
"$litebert" pretrain "$student" --shards "$out/data" --table-from "$encoder" --budget "$budget" --out "$out/pretrained"

# The words of reviews are others than those of novels, so sentiment has a tokenizer and a start of its own.
start="$out/reviews-only"
mkdir -p "$start"
[ -f "$start/text.txt" ] || "$python" "$here/demo_sentences.py" "$out/reviews/train.csv" "$start/text.txt" 0
split="--split line"
# shellcheck disable=SC2086
[ -d "$start/tokenizer" ] || "$litebert" tokenizer train "$start/text.txt" $split --kind wordpiece \
    --vocab-size "$review_pieces" --shrink --out "$start/tokenizer"
# shellcheck disable=SC2086
[ -d "$start/data" ] || "$litebert" prepare "$start/text.txt" $split --tokenizer "$start/tokenizer" --out "$start/data"
"$litebert" pretrain "$student" --shards "$start/data" --table-from "$encoder" --budget "$review_budget" --out "$start/pretrained"
[ -f "$start/phrases.txt" ] || "$python" "$here/demo_phrases.py" "$out/reviews/train.csv" "$start/phrases.txt"
# shellcheck disable=SC2086
"$litebert" finetune "$start/pretrained" $reviews --teacher "$out/teacher" --unlabeled "$start/phrases.txt" \
    --epochs "$epochs" --lr 1e-3 --out "$out/tuned-sentiment"

for model in pretrained tuned-sentiment; do
    [ -d "$out/packed/$model" ] || "$litebert" convert "$out/$model" --to litebert --out "$out/packed/$model"
done
cp "$here/demo_cards/sentiment.md" "$out/packed/tuned-sentiment/README.md"
cp "$here/demo_cards/words.md" "$out/packed/pretrained/README.md"
"$python" - "$out" "$vectors" <<'END'
import sys
from pathlib import Path
from litebert.demo import pack

out = Path(sys.argv[1])
packed = out / "packed"
models = {"sentiment": packed / "tuned-sentiment", "words": packed / "pretrained", "vectors": Path(sys.argv[2])}
size = pack(models, out / "models.zip")
print(f"{out / 'models.zip'}: {size:,} bytes")
END
