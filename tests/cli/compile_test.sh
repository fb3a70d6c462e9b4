#!/bin/sh
# compile model: its table, its record, its dumps, what it refuses; and compiled beside eager: the same loss, the
# predicted memory.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
export COLUMNS=400  # so wide that no column is left out; tables that fit a terminal: terminal_test.sh
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2"; }
shape="--d-model 32 --d-ff 64 --layers 2 --heads 4 --vocab 97 --ctx 16 --batch 2"
python=
if python3 -c 'import json' 2> /dev/null; then python=python3; fi

# The table, the reasons, and the same again from the record. Nothing is run, so a GPU need not be there.
for device in cpu cuda; do
  "$SINTER" compile model $shape --device $device --dtype bf16 --explain --json "$work/r.json" --table "$work/t.md" > \
      "$work/out.txt" \
    2> "$work/progress.txt" || fail "compile model --device $device: $(cat "$work/progress.txt")"
  for text in "Compiled for $device" 'calls before' 'bytes moved before' 'dce' 'cse' 'plan' 'arena' 'in use at once' \
      'Nothing was run' \
              'step/backward/layers.*/ffn/w2/again/swiglu is step/forward/layers.*/ffn/swiglu'; do
    has "$work/out.txt" "$text"
  done
  for field in '"schema": "sinter.record.v1"' '"command": "compile model"' '"compiled"' '"arena_bytes"' \
      '"calls_before"' '"bytes_after"' \
               "\"device\": \"$device\""; do
    has "$work/r.json" "$field"
  done
  "$SINTER" show "$work/r.json" --table "$work/again.md" > "$work/again.txt"
  cmp "$work/out.txt" "$work/again.txt" || fail "show prints another table"
  cmp "$work/t.md" "$work/again.md" || fail "show writes another table"
done
has "$work/out.txt" 'calls in the side lane'
has "$work/out.txt" 'add+rms_norm in step/forward/layers.*/norm2/rms_norm: '
has "$work/out.txt" 'rms_norm_backward+cast in step/backward/layers.*/cast: '
# With ranks collectives have a lane, and keep gradients from being folded.
"$SINTER" compile model $shape --device cpu --ranks 8 --bucket-mb 0.01 --explain > "$work/ranks.txt" 2> /dev/null
has "$work/ranks.txt" 'collectives in the communication lane'
has "$work/ranks.txt" 'not: all_reduce stands between it and its update'
"$SINTER" compile model $shape --device cpu --json - > "$work/pure.json" 2> /dev/null
[ "$(head -c 1 "$work/pure.json")" = "{" ] || fail "--json - mixes text into the record"
"$SINTER" compile model $shape --device cuda --pass forward,step --passes none,all > "$work/several.txt" 2> /dev/null
[ "$(grep -c '^Compiled for cuda' "$work/several.txt")" -eq 4 ] || fail \
    "two passes by two sets of compiler passes are not four tables"

# A step of several micro-batches is what is compiled of each.
"$SINTER" compile model $shape --device cuda --accumulate 3 > "$work/accumulate.txt" 2> /dev/null
for part in 'first micro-batch' 'later micro-batches' 'last micro-batch'; do has "$work/accumulate.txt" "$part"; done
[ "$(grep -c '^Compiled for cuda' "$work/accumulate.txt")" -eq 3 ] || fail \
    "a step of three micro-batches is not three tables"

# Naive attention stays naive when it is named; where it is long and causal, it is cut into strips.
long="--d-model 32 --d-ff 64 --layers 1 --heads 2 --vocab 97 --ctx 512 --batch 1"
long="$long --device cuda --attention naive --explain"
"$SINTER" compile model $long > "$work/naive.txt" 2> /dev/null
has "$work/naive.txt" 'attn/softmax/softmax: 2 strips, 75 % of the scores'
has "$work/naive.txt" 'calls of independent chains'
if grep -q '^flash ' "$work/naive.txt"; then fail "naive attention was asked for, and the pass flash ran"; fi

# Dumps, by suffix.
for device in cpu cuda; do
  for suffix in txt dot html json; do
    "$SINTER" compile model $shape --device $device --dtype bf16 --dump "$work/$device.$suffix" > /dev/null 2>&1
    [ -s "$work/$device.$suffix" ] || fail "--dump wrote no .$suffix for $device"
  done
  for text in 'buffers' 'calls' 'returned' 'adamw_product' 'in step/forward/layers.1/attn/qkv/linear' '(in place)'; do
    has "$work/$device.txt" "$text"
  done
  [ "$(head -n 1 "$work/$device.dot")" = "digraph step {" ] || fail "the .dot does not begin with digraph"
  [ "$(tail -n 1 "$work/$device.dot")" = "}" ] || fail "the .dot does not end"
  for text in '<!doctype html>' '<svg' '<rect' '</html>'; do has "$work/$device.html" "$text"; done
  if grep -qE '(src|href)="?https?:' "$work/$device.html"; then fail "the page asks the network"; fi
  has "$work/$device.json" '"schema": "sinter.graph.v1"'
  [ -n "$python" ] || continue
  "$SINTER" compile model $shape --device $device --dtype bf16 --clip 1 --dump "$work/$device-clipped.json" > \
      /dev/null 2>&1
  "$python" - "$work/$device.json" "$work/$device-clipped.json" <<'END' || fail \
      "the graph for $device is not as it should be"
import json, sys

def check(graph, stores_gradients):
    assert graph["schema"] == "sinter.graph.v1", graph["schema"]
    buffers, calls = graph["buffers"], graph["calls"]
    own = []
    for i, b in enumerate(buffers):
        assert b["kind"] in ("external", "own"), b
        if b["kind"] == "external":
            assert b["offset"] is None and b["over"] is None, (i, b)
        elif b["first"] >= 0:  # -1: no call uses it any more
            assert b["offset"] >= 0, (i, b)
            assert b["over"] is None or buffers[b["over"]]["kind"] == "external", (i, b)
            room = graph["arena_bytes"] if b["over"] is None else buffers[b["over"]]["bytes"]
            assert b["offset"] + b["bytes"] <= room, (i, b)
            own.append(b)
    if stores_gradients:
        assert any(b["over"] is not None for b in own), "nothing lies over gradients"
    for i, a in enumerate(own):  # what is in use at the same time lies apart
        for b in own[i + 1:]:
            meets = a["over"] == b["over"] and a["first"] <= b["last"] and b["first"] <= a["last"]
            apart = a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
            assert apart or not meets, (a, b)
    assert sum(b["returned"] for b in buffers) == 1, "one loss is returned"
    assert calls, "no calls"
    for n, call in enumerate(calls):
        assert all(0 <= a < n for a in call["after"]), (n, call["after"])
        for operand in call["reads"] + call["writes"]:
            b = buffers[operand["buffer"]]
            assert b["first"] <= n <= b["last"], (n, operand)
            assert 0 <= operand["offset"] <= b["bytes"], (n, operand)
            assert len(operand["dims"]) == len(operand["strides"]), (n, operand)
        assert call["op"] and call["range"] and call["writes"], (n, call)


check(json.load(open(sys.argv[1])), False)
check(json.load(open(sys.argv[2])), True)
END
done
calls_with() {
  "$SINTER" compile model $shape --device cpu --passes "$1" --dump "$work/calls.txt" > /dev/null 2>&1
  sed -n 's/^\([0-9]*\) calls;.*/\1/p' "$work/calls.txt"
}
none=$(calls_with none) cse=$(calls_with cse)
[ "$cse" -lt "$none" ] || fail "cse leaves $cse calls of $none"

# refused 'words the message must have, | between them' arguments…: exit code 2, one line on stderr, nothing on stdout,
# no file.
refused() {
  words=$1
  shift
  command="sinter $*"
  code=0
  "$SINTER" "$@" > "$work/refused.txt" 2> "$work/err.txt" || code=$?
  [ "$code" -eq 2 ] || fail "$command: exit code $code, not 2: $(cat "$work/err.txt")"
  [ "$(wc -l < "$work/err.txt")" -eq 1 ] || fail "$command: stderr is not one line: $(cat "$work/err.txt")"
  [ ! -s "$work/refused.txt" ] || fail "$command: stdout is not empty"
  old_ifs=$IFS
  IFS='|'
  for word in $words; do
    grep -qF -- "$word" "$work/err.txt" || fail "$command: the message lacks '$word': $(cat "$work/err.txt")"
  done
  IFS=$old_ifs
  for file in "$work"/no.*; do
    if [ -e "$file" ]; then fail "$command: refused, but wrote $file"; fi
  done
}
compile="compile model $shape --device cpu"
refused 'pass "nosuch"|dce|plan|all or none' $compile --passes nosuch
refused 'pass "nosuch"' $compile --passes dce+nosuch
refused 'pass ""' $compile --passes dce+
refused 'passes' $compile --passes ''
refused 'pass "nosuch"|dce|plan' bench model $shape --device cpu --mode compiled --passes nosuch
refused 'mode lazy|eager|compiled' bench model $shape --device cpu --mode lazy
refused 'dump|.svg|.txt, .dot, .html or .json' $compile --dump "$work/no.svg"
refused 'dump|one configuration|2' $compile --dtype fp32,bf16 --dump "$work/no.txt"
refused 'dump|one configuration|3' $compile --passes none,cse,all --dump "$work/no.json"
refused 'dump|missing' $compile --dump "$work/missing/no.txt"
refused 'json|dump|same file' $compile --dump "$work/no.json" --json "$work/./no.json"
refused 'size|huge' compile model --size huge
refused 'device|tpu' compile model --device tpu

# Weight gradients go into their updates where that pays: not with many tokens and few parameters.
"$SINTER" compile model --size small --device cuda --dtype bf16 --explain > "$work/folded.txt" 2> /dev/null
has "$work/folded.txt" "attn/o/linear_weight_grad into its weight's update"
"$SINTER" compile model --size small --device cuda --dtype bf16 --batch 32 --ctx 1024 --explain > "$work/apart.txt" \
    2> /dev/null
if grep -q "into its weight's update" "$work/apart.txt"; then fail "many tokens, few tiles: folded all the same"; fi

# Compiled beside eager: both rows, the same loss, and the memory that was predicted.
run="$shape --device cpu --dtype bf16 --warmup 1 --steps 3"
"$SINTER" bench model $run --mode eager,compiled --json "$work/b.json" > "$work/bench.txt" 2> /dev/null
for text in 'eager ' 'compiled ' 'speed-up' 'floor ms' '× floor' 'Before the first timed pass' 'first run ms' \
    'compile time ms'; do has "$work/bench.txt" "$text"; done
for field in '"mode": "eager"' '"mode": "compiled"' '"passes": "all"' '"trace_ms"' '"arena_bytes"'; do
  has "$work/b.json" "$field"
done
[ "$(grep -c '"loss":' "$work/b.json")" -eq 2 ] || fail "bench model: not two losses"
[ "$(grep '"loss":' "$work/b.json" | sort -u | wc -l)" -eq 1 ] || fail \
    "compiled has another loss: $(grep '"loss":' "$work/b.json")"
if [ -n "$python" ]; then
  "$python" - "$work/b.json" <<'END' || fail "the results of eager and compiled are not as they should be"
import json, sys

eager, compiled = json.load(open(sys.argv[1]))["results"]
assert (eager["mode"], compiled["mode"]) == ("eager", "compiled")
assert eager["passes"] is None and "compiled" not in eager
assert compiled["passes"] == "all" and compiled["compiled"]["calls"] > 0
assert eager["loss"] == compiled["loss"], (eager["loss"], compiled["loss"])
for r in (eager, compiled):
    assert r["status"] == "ok", r["mode"]
    assert r["peak_bytes"] == r["predicted_peak_bytes"], (r["mode"], r["peak_bytes"], r["predicted_peak_bytes"])
    floor = r["flops"] / r["measured_peak_tflops"] / 1e9 + 28 * r["parameters"] / r["measured_copy_gbs"] / 1e6
    assert abs(r["floor_ms"] / floor - 1) < 1e-9 and abs(r["floor_multiple"] * floor / r["median_ms"] - 1) < 1e-9, r
assert compiled["compiled"]["first_run_ms"] >= 0
END
fi
"$SINTER" show "$work/b.json" > "$work/again.txt"
cmp "$work/bench.txt" "$work/again.txt" || fail "show prints another benchmark"
"$SINTER" bench model $run --mode eager,compiled --accumulate 3 --json "$work/a.json" > "$work/accumulate.txt" 2> \
    /dev/null
has "$work/accumulate.txt" '3 × 2'
[ "$(grep '"loss":' "$work/a.json" | sort -u | wc -l)" -eq 1 ] || fail \
    "compiled accumulates another loss: $(grep '"loss":' "$work/a.json")"
if [ -n "$python" ]; then
  "$python" - "$work/a.json" "$work/b.json" <<'END' || fail \
      "the results of three micro-batches are not as they should be"
import json, sys

several, one = (json.load(open(f))["results"] for f in sys.argv[1:])
for r, single in zip(several, one):
    assert r["accumulate"] == 3 and r["flops"] == 3 * single["flops"] and r["phases"] == {}, r["mode"]
    assert r["peak_bytes"] == r["predicted_peak_bytes"], (r["mode"], r["peak_bytes"], r["predicted_peak_bytes"])
    tokens = 3 * r["batch"] * r["ctx"] / r["median_ms"] * 1e3
    assert abs(r["tokens_per_s"] / tokens - 1) < 1e-9, (r["tokens_per_s"], tokens)
END
fi
"$SINTER" bench model $run --ablate > "$work/ablate.txt" 2> /dev/null
for text in 'eager ' 'compiled: none ' '+ constants ' '+ graph '; do has "$work/ablate.txt" "$text"; done

# A replayed call keeps the range it was traced in.
"$SINTER" profile model $run --mode compiled > "$work/profile.txt" 2> /dev/null
for text in 'step/backward/layers.*/ffn/gate_up' 'adamw_product' 'attributed to ranges' \
    'Where the time goes: compiled step' \
            'its floor of' 'products' 'norms, pointwise, the rest' 'idle' 'recorded pass'; do has "$work/profile.txt" \
                "$text"; done
echo "compile model is as it should be"
