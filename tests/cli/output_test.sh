#!/bin/sh
# The one output rule: record, tables, plots and `show` agree; a sweep survives what does not fit; a record reproduces.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
export COLUMNS=400  # so wide that no column is left out; tables that fit a terminal: terminal_test.sh
shape="--device cpu --d-model 32 --d-ff 64 --layers 2 --heads 4 --vocab 97 --ctx 16 --batch 2 --warmup 1 --steps 3"
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2"; }

"$SINTER" bench model $shape --dtype fp32,bf16 --pass forward,step --json "$work/r.json" --table "$work/t.md" \
  --plot "$work/p.svg" > "$work/out.txt" 2> "$work/progress.txt"
for field in '"schema": "sinter.record.v1"' '"command"' '"machine"' '"config"' '"results"' '"samples_ms"' \
    '"trajectory_ms"' \
             '"phases"' '"forward"' '"optimizer"' '"parameters"' '"flops"' '"flops_executed"' '"mfu"' \
                 '"tokens_per_s"' '"peak_bytes"'; do
  has "$work/r.json" "$field"
done
has "$work/out.txt" bf16
grep -q '^<svg' "$work/p.svg" || grep -q '<svg' "$work/p.svg" || fail "the plot is no SVG"
grep -q "$(printf '\033')" "$work/out.txt" "$work/progress.txt" && fail "colour where there is no terminal"

# The same tables again, from the record alone.
"$SINTER" show "$work/r.json" --table "$work/again.md" > "$work/again.txt"
cmp "$work/out.txt" "$work/again.txt" || fail "show prints another table"
cmp "$work/t.md" "$work/again.md" || fail "show writes another table"
"$SINTER" show "$work/r.json" --table "$work/t.csv" --plot "$work/p.html" > /dev/null
"$SINTER" show "$work/r.json" --table "$work/t.tex" > /dev/null
has "$work/t.csv" bf16
has "$work/t.tex" tabular
grep -qE 'https?://[^w]' "$work/p.html" && fail "the page asks the network"

# Which attention ran stands in the record and in the text; variants are compared, and a record reproduces.
"$SINTER" bench model $shape --json "$work/auto.json" > "$work/auto.txt" 2> /dev/null
has "$work/auto.json" '"attention": "flash"'
has "$work/auto.json" '"attention_why": "auto: cpu has a kernel'
has "$work/auto.txt" 'attention flash (auto: cpu has a kernel'
"$SINTER" bench model $shape --attention naive,flash --kv-heads 2 --deterministic --json "$work/a.json" > \
    "$work/a.txt" 2> /dev/null
for text in '"attention": "naive"' '"attention": "flash"' '"kv_heads": 2' '"deterministic": true'; do
  has "$work/a.json" "$text"
done
for text in 'speed-up' '4/2 heads' 'deterministic'; do has "$work/a.txt" "$text"; done
"$SINTER" bench model --config "$work/a.json" --dry-run --json "$work/again.json" > "$work/dry.txt" 2> /dev/null
for text in '"deterministic": true' '"kv_heads": 2' 'naive'; do has "$work/again.json" "$text"; done
"$SINTER" memory model --predict ${shape% --warmup*} --attention flash > "$work/flash.txt" 2> /dev/null
has "$work/flash.txt" 'attention flash'

echo '{"hidden_size":64,"intermediate_size":96,"num_hidden_layers":1,"num_attention_heads":4,
  "num_key_value_heads":2,"vocab_size":97}' \
  > "$work/gqa.json"
"$SINTER" bench model --device cpu --config "$work/gqa.json" --dry-run --json - 2> /dev/null > "$work/dry.json"
has "$work/dry.json" '"kv_heads": 2'

# The profile and the memory of a model: the same from the record, and files that others read.
"$SINTER" profile model $shape --attention naive --range attn --trace "$work/trace.json" --json "$work/p.json" --plot \
    "$work/p2.svg" \
  > "$work/profile.txt" 2> /dev/null
for text in 'Time (%)' 'step/backward/layers.*/attn/softmax' 'linear_weight_grad' '% of roofline' \
    'what profiling cost' \
            'Kernels of ranges that match "attn"' 'attributed to ranges'; do
  has "$work/profile.txt" "$text"
done
has "$work/trace.json" 'ProfilerStep#0'
"$SINTER" show "$work/p.json" > "$work/again.txt"
cmp "$work/profile.txt" "$work/again.txt" || fail "show prints another profile"
"$SINTER" profile model $shape --dtype fp32,bf16 > "$work/rows.txt" 2> /dev/null
has "$work/rows.txt" 'GEMM % forward'

"$SINTER" memory model ${shape% --warmup*} --json "$work/m.json" --plot "$work/m.html" --snapshot "$work/m.pickle" > \
    "$work/memory.txt" 2> /dev/null
for text in 'optimizer state' 'prediction: equal to the byte' 'residual-stream' \
    'step/forward/layers.*/ffn/gate_up/linear' \
            'src/nn/layers.cpp:'; do
  has "$work/memory.txt" "$text"
done
grep -qE '(src|href)="?https?:' "$work/m.html" && fail "the timeline asks the network"
"$SINTER" show "$work/m.json" --plot "$work/m.svg" > "$work/again.txt"
cmp "$work/memory.txt" "$work/again.txt" || fail "show prints another memory"
code=0
"$SINTER" memory model --predict --size 2.7B --dtype bf16 --card 4090-24 > "$work/predict.txt" 2> /dev/null || code=$?
[ "$code" -eq 3 ] || fail "it does not fit on the card, but the exit code is $code, not 3"
code=0
"$SINTER" memory model --device cpu --size tiny --attention naive --ctx 1048576 --batch 1 > "$work/big.txt" 2> \
    /dev/null || code=$?
[ "$code" -eq 3 ] || fail "memory: nothing fits, but the exit code is $code, not 3"
has "$work/big.txt" 'OOM: needs'
has "$work/big.txt" 'attn/softmax'
"$SINTER" memory model --device cpu --size tiny --attention naive --ctx 1048576 --batch 1 --plot "$work/big.svg" \
  > /dev/null 2>&1 || true
[ -s "$work/big.svg" ] || fail "memory that does not fit is not drawn"
# A stdout that cannot be written costs no file.
code=0
"$SINTER" memory model ${shape% --warmup*} --json "$work/full.json" --table "$work/full.md" --plot "$work/full.svg" \
  --snapshot "$work/full.pickle" > /dev/full 2> /dev/null || code=$?
[ "$code" -eq 1 ] || fail "a full stdout ends with $code, not 1"
for file in full.json full.md full.svg full.pickle; do [ -s "$work/$file" ] || fail "a full stdout costs $file"; done
code=0
timeout --foreground --preserve-status -s INT 3 "$SINTER" memory model --device cpu --size small --batch 8 --ctx 512 \
    > "$work/cut.txt" \
  2> "$work/err.txt" || code=$?
[ "$code" -eq 130 ] || fail "Ctrl-C ends memory with $code, not 130: $(cat "$work/err.txt")"
has "$work/err.txt" 'interrupted: 0 of 1'
for text in 'Predicted memory' 'H200-141' 'To fit on 4090-24: --size large'; do has "$work/predict.txt" "$text"; done

# A damaged record is refused, not drawn.
sed 's/"begin": \[/"begin": [0.0, /' "$work/m.json" > "$work/damaged.json"
code=0
"$SINTER" show "$work/damaged.json" --plot "$work/d.svg" > /dev/null 2> "$work/err.txt" || code=$?
[ "$code" -eq 2 ] && grep -q 'column' "$work/err.txt" || fail "a damaged timeline: exit $code, $(cat "$work/err.txt")"

# --json - leaves stdout to the record.
"$SINTER" bench model $shape --json - 2> /dev/null > "$work/pure.json"
[ "$(head -c 1 "$work/pure.json")" = "{" ] || fail "--json - mixes text into the record"

# A record is a configuration: the same shape runs again.
"$SINTER" bench model --config "$work/pure.json" --dry-run > "$work/dry.txt" 2> /dev/null
has "$work/dry.txt" 97

# What cannot fit is a row, and the sweep goes on (its scores alone are 32 TiB).
code=0
"$SINTER" bench model --device cpu --size tiny --attention naive --ctx 8,1048576 --batch 1 --pass forward --warmup 0 \
    --steps 1 \
  --json "$work/oom.json" > "$work/oom.txt" 2> /dev/null || code=$?
[ "$code" -eq 0 ] || fail "a sweep with one row that fits ends with $code"
has "$work/oom.txt" OOM
has "$work/oom.json" '"status": "oom"'
has "$work/oom.json" '"status": "ok"'
code=0
"$SINTER" bench model --device cpu --size tiny --attention naive --ctx 1048576 --batch 1 > /dev/null 2>&1 || code=$?
[ "$code" -eq 3 ] || fail "nothing fits, but the exit code is $code, not 3"

# Ctrl-C keeps finished rows.
long=$(echo "$shape" | sed 's/--ctx 16/--ctx 16,8192/; s/--steps 3/--steps 200/')
"$SINTER" bench model $long --pass forward --json "$work/cut.json" > "$work/cut.txt" 2> "$work/err.txt" &
running=$!
while [ ! -s "$work/cut.json" ] && kill -0 $running 2> /dev/null; do sleep 0.1; done  # the first row is on disk
kill -TERM $running  # as Ctrl-C, which a shell has its background jobs ignore
code=0
wait $running || code=$?
[ "$code" -eq 130 ] || fail "Ctrl-C ends with $code, not 130: $(cat "$work/err.txt")"
has "$work/err.txt" 'interrupted: 1 of 2 cases'
has "$work/cut.json" '"ctx": 16'
has "$work/cut.txt" 'ctx 16'

# A run that is interrupted before its first row leaves the user's old record alone.
echo mine > "$work/old.json"
"$SINTER" bench model --device cpu --size small --ctx 512 --json "$work/old.json" > /dev/null 2>&1 &
running=$!
sleep 1
kill -TERM $running
wait $running || true
[ "$(cat "$work/old.json")" = mine ] || fail "an interrupted run wrote over an old record"

"$SINTER" precision --device cpu > "$work/precision.txt"
for figure in 10.0001 9.9531 10.0021 overflow underflow "With fp32 statistics none fail"; do
  has "$work/precision.txt" "$figure"
done
"$SINTER" > "$work/bare.txt"
has "$work/bare.txt" 'sinter bench model'
echo "output is as it should be"
