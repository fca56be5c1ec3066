#!/bin/sh
# What pretraining bought: ALBERT and its BERT twin, pretrained on your text and not at all, on seven tasks.
#
#     runs/tasks.sh OUT BENCHMARKS TEXT...
#
# TEXT is what `litebert prepare` takes. BENCHMARKS has the folders glue/ (CoLA, RTE, SST-2, STS-B), squad/
# (dev-v1.1.json, of which a tenth of the articles are held out), race/ and wnut17/. Every fine-tuning runs with three
# seeds. The table goes to OUT/table.md. It takes hours; the same command again continues.
#
# LARGE=1 reads the large tasks (SST-2, SQuAD, RACE) once instead of a quarter of them.
# Twins are the largest of our recipes that read 17 MB of novels more than once in an hour on two cores.
set -eu

[ $# -ge 3 ] || { echo "usage: runs/tasks.sh OUT BENCHMARKS TEXT..." >&2; exit 2; }
out=$1 benchmarks=$2
shift 2

litebert=${LITEBERT:-litebert}
budget=${BUDGET:-1h}
pieces=${PIECES:-8192}
seeds=${SEEDS:-3}
twins=${TWINS:-"albert-mini bert-mini"}
epochs=${EPOCHS:-4}
large=${LARGE:-0.25}
tasks=${TASKS:-"cola rte stsb wnut17 sst2 squad race"}

[ -f "$out/tokenizer/tokenizer_config.json" ] || "$litebert" tokenizer train "$@" --vocab-size "$pieces" --out "$out/tokenizer"
"$litebert" prepare "$@" --tokenizer "$out/tokenizer" --heldout 0.02 --out "$out/data"
for twin in $twins; do
    "$litebert" pretrain "$twin" --shards "$out/data" --out "$out/$twin" --budget "$budget"
done

# The small tasks are read four times. Of the large ones LARGE epochs are, and RACE keeps 128 tokens of a choice.
finetune() {
    name=$1
    shift
    case $name in
        squad) set -- "$@" --task squad --data "$benchmarks/squad/dev-v1.1.json" ;;
        race) set -- "$@" --task race --data "$benchmarks/race" --max-length 128 ;;
        wnut17) set -- "$@" --task tagging --data "$benchmarks/wnut17" ;;
        *) set -- "$@" --task "$name" --data "$benchmarks/glue" ;;
    esac
    case $name in
        squad | race | sst2) set -- "$@" --epochs "$large" --train.evaluate-every 100% ;;
        *) set -- "$@" --epochs "$epochs" ;;
    esac
    "$litebert" finetune "$@" --seeds "$seeds"
}

for task in $tasks; do
    for twin in $twins; do
        echo "== $task, $twin"
        finetune "$task" "$out/$twin" --out "$out/$task/$twin"
        finetune "$task" "$twin" --from-scratch --tokenizer "$out/tokenizer" --out "$out/$task/$twin-untrained"
    done
done

set --
for task in $tasks; do
    for twin in $twins; do
        set -- "$@" "$out/$task/$twin" "$out/$task/$twin-untrained"
    done
done
"$litebert" compare "$@" --markdown >"$out/table.md"
cat "$out/table.md"
