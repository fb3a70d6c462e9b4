#!/bin/sh
# On a terminal of 80 or 100 columns every command's output fits, and --wide shows what was left out. A file that a
# command reads is not written over.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2"; }
shape="--device cpu --d-model 32 --d-ff 64 --layers 2 --heads 4 --vocab 61 --ctx 16 --batch 2"
run="--warmup 1 --steps 2"

# In characters, not bytes; sed because awk and wc of different systems disagree about them.
fits() {  # fits ARGUMENTS…
  "$SINTER" "$@" > "$work/out.txt" 2> /dev/null || [ $? -eq 3 ] || fail "sinter $*: exit code $?"
  [ -s "$work/out.txt" ] || fail "sinter $* printed nothing"
  LC_ALL=C sed 's/[\x80-\xbf]//g' "$work/out.txt" | awk -v most="$COLUMNS" 'length($0) > most { print; bad = 1 }
    END { exit bad }' > "$work/long.txt" || fail "sinter $*: wider than $COLUMNS: $(head -n 1 "$work/long.txt")"
}

for COLUMNS in 80 100; do
  export COLUMNS
  fits
  fits --help
  fits bench model --help
  fits bench attention --help
  fits bench model $shape $run
  fits bench model $shape $run --dtype fp32,bf16 --mode eager,compiled --attention naive,flash --pass forward,step
  fits bench model $shape --dry-run --dtype fp32,bf16 --mode eager,compiled
  fits bench model --device cpu --size tiny --attention naive --ctx 8,1048576 --batch 1 --pass forward --warmup 0 \
      --steps 1
  fits bench attention --device cpu --batch 1 --ctx 32,64 --head-dim 16,32 $run --attention naive,flash \
    --mode eager,compiled --dtype fp32,bf16
  fits profile model $shape $run
  fits profile model $shape $run --dtype fp32,bf16 --mode eager,compiled
  fits memory model $shape
  fits memory model $shape --dtype fp32,bf16 --pass forward,step
  fits memory model --predict --size xl,2.7B --dtype bf16
  fits compile model ${shape#--device cpu} --device cuda --dtype bf16 --explain
  fits plan cost --preset xxl
  fits plan cost --size 2.7B --dtype bf16 --data 4 --tensor 2 --shard optimizer
  fits plan cost --size xl --data 8 --shard parameters --attention naive
  fits precision --device cpu
  fits doctor
done
export COLUMNS=80
for record in $(find "$SINTER_SOURCE_DIR/docs/results" -name '*.json'); do
  if grep -q 'sinter.record.v1' "$record"; then fits show "$record"; fi
done
fits bench model $shape $run --ablate
for text in 'compiled: none' '+ constants' '+ plan'; do has "$work/out.txt" "$text"; done

# What is left out is named, and --wide has it.
COLUMNS=80 "$SINTER" bench model $shape $run --mode eager,compiled --json "$work/r.json" > "$work/narrow.txt" 2> \
    /dev/null
has "$work/narrow.txt" 'Left out to fit 80 columns'
has "$work/narrow.txt" '(--wide shows all)'
COLUMNS=80 "$SINTER" show "$work/r.json" --wide > "$work/wide.txt"
for text in 'floor ms' 'mean ms' '% of measured peak' 'batch'; do has "$work/wide.txt" "$text"; done
if grep -q 'Left out' "$work/wide.txt"; then fail "--wide leaves something out"; fi

# The user's own files.
echo '{"hidden_size":64,"intermediate_size":96,"num_hidden_layers":1,"num_attention_heads":4,"vocab_size":97}' \
  > "$work/mine.json"
cp "$work/mine.json" "$work/copy.json"
for command in 'bench model --dry-run' 'profile model' 'memory model' 'compile model'; do
  code=0
  "$SINTER" $command --device cpu --config "$work/mine.json" --json "$work/./mine.json" > /dev/null 2> "$work/err.txt" \
    || code=$?
  [ "$code" -eq 2 ] || fail "$command --config F --json F: exit code $code"
  has "$work/err.txt" '--config reads that file'
  cmp "$work/mine.json" "$work/copy.json" || fail "$command wrote over its configuration"
done
echo "output fits terminals"
