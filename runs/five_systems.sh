#!/bin/sh
# Five systems, one space: each small recipe on the same text, with the same tokenizer and the same time. They have the
# same depth and width; ALBERT shares its layers, so it has fewer parameters.
#
#     runs/five_systems.sh [OUT [TEXT ...]]
#
# TEXT is what `litebert prepare` takes, python-docs by default. The table goes to OUT/table.md. The same command again
# continues. Networks are shallower here than in the recipes, sequences shorter and pieces fewer, so that all five learn
# something in three minutes.
set -eu

out=${1:-five-systems}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- python-docs

litebert=${LITEBERT:-litebert}
budget=${BUDGET:-165s}
pieces=${PIECES:-1024}
systems="albert-mini bert-mini roberta-mini electra-mini spanbert-mini"

[ -f "$out/tokenizer/tokenizer_config.json" ] || "$litebert" tokenizer train "$@" --vocab-size "$pieces" --out "$out/tokenizer"
"$litebert" prepare "$@" --tokenizer "$out/tokenizer" --heldout 0.05 --out "$out/data"

set --
for system in $systems; do
    echo "== $system, $budget"
    "$litebert" pretrain "$system" --shards "$out/data" --out "$out/$system" --budget "$budget" \
        --encoder.layers 2 --train.depth-schedule --max-length 64 --batch-size 64 \
        --train.evaluate-every 50% --train.evaluate-sequences 1024
    set -- "$@" "$out/$system"
done

"$litebert" compare "$@" --markdown >"$out/table.md"
cat "$out/table.md"
