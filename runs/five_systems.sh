#!/bin/sh
# Five systems, one space: each small recipe on the same text, with the same tokenizer and the same time.
#
#     runs/five_systems.sh [OUT [TEXT ...]]
#
# TEXT is what `litebert prepare` takes, python-docs by default. The table goes to OUT/table.md. The same command again
# continues. Sequences are shorter here than in the recipes, so that all five learn something in three minutes.
set -eu

out=${1:-five-systems}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- python-docs

litebert=${LITEBERT:-litebert}
budget=${BUDGET:-180s}
pieces=${PIECES:-8192}
systems="albert-mini bert-mini roberta-mini electra-mini spanbert-mini"

[ -d "$out/tokenizer" ] || "$litebert" tokenizer train "$@" --vocab-size "$pieces" --out "$out/tokenizer"
"$litebert" prepare "$@" --tokenizer "$out/tokenizer" --heldout 0.05 --out "$out/data"

set --
for system in $systems; do
    echo "== $system, $budget"
    "$litebert" pretrain "$system" --data "$out/data" --out "$out/$system" --budget "$budget" \
        --sequences.length 64 --train.batch "64 sequences" \
        --train.evaluate-every 50% --train.evaluate-sequences 1024
    set -- "$@" "$out/$system"
done

"$litebert" compare "$@" --markdown >"$out/table.md"
cat "$out/table.md"
