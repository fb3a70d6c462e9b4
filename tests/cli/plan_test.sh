#!/bin/sh
# plan cost: the worked example's answers with their equations, and the same again from the record.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }

"$SINTER" plan cost --preset xxl --json "$work/r.json" > "$work/out"
for text in 'P_ffn = L·2·d·f = 126·2·16,384·53,248' '219,848,638,464' '3.518 TB' '3,276 GiB' \
    '44  N_H100 =' '17,547,264 B' '38  N =' '20,445 tokens  B_over = X·i·e·r = 16·1277.78·2·0.5' '25,302 tokens'; do
  has "$work/out" "$text"
done
"$SINTER" show "$work/r.json" > "$work/shown"
cmp "$work/out" "$work/shown" || fail "show prints another table"

# A record is a configuration: its model is what --config takes.
"$SINTER" plan cost --d-model 64 --d-ff 128 --layers 2 --heads 4 --dtype bf16 --json "$work/r.json" > "$work/out"
"$SINTER" plan cost --config "$work/r.json" > "$work/again"
cmp "$work/out" "$work/again" || fail "--config of a record asks something else"
