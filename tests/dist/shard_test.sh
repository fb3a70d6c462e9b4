#!/bin/sh
# bench shard: what its record holds by level, eager and compiled, what it prints, and what it refuses.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }
# Few words and many layers: what a backward pass need not gather again is little. Units of more than 1 MiB, so that
# memory is taken as in large models.
small="--layers 4 --d-model 192 --d-ff 512 --heads 4 --vocab 96 --ctx 32 --batch 2 --warmup 1 --steps 4"

"$SINTER" bench shard --ranks 2 $small --mode eager,compiled --json "$work/r.json" --plot "$work/p.svg" \
    --trace "$work/traces" > "$work/out" 2> "$work/err" || fail "$(cat "$work/err")"
python3 - "$work/r.json" "$work/traces" << 'EOF2' || fail "the record or the traces are not as they should be"
import json, pathlib, sys
rows = json.load(open(sys.argv[1]))["results"]
levels = ["none", "broadcast", "optimizer", "gradients", "parameters"]
assert [(x["mode"], x["level"]) for x in rows] == [(m, l) for m in ("eager", "compiled") for l in levels], rows
of = {(x["mode"], x["level"]): x for x in rows}
assert len({x["loss"] for x in rows}) == 1, [x["loss"] for x in rows]  # whatever the level and the mode
state = ("parameter", "16-bit copy", "gradient", "optimizer state")
for x in rows:
    what = (x["mode"], x["level"])
    assert x["ranks"] == 2 and x["status"] == "ok" and len(x["samples_ms"]) == 4 and x["tokens_per_s"] > 0, x
    for i, ms in enumerate(x["samples_ms"]):
        assert ms == max(t["samples_ms"][i] for t in x["by_rank"])
    assert [t["rank"] for t in x["by_rank"]] == [0, 1]
    for t in x["by_rank"]:
        assert t["peak_bytes"] == t["predicted_peak_bytes"], (what, t["peak_bytes"], t["predicted_peak_bytes"])
    assert x["peak_bytes"] == x["predicted_peak_bytes"] == max(t["peak_bytes"] for t in x["by_rank"])
    assert x["communication_ms"] > 0 and 0 <= x["exposed_ms"] <= x["communication_ms"] * 1.0001
    assert ("bucket_mb" in x) == (x["level"] == "none")
    assert ("before_step_bytes" in x) == (x["mode"] == "eager"), what
    for moment in ("after_init", "before_step", "after_step", "peak"):
        if moment + "_bytes" in x:
            assert sum(x[moment + "_by"].values()) == x[moment + "_bytes"] <= x["peak_bytes"], (what, moment)
    # Of N ranks each sends (N - 1)/N of what is reduced or gathered; here half.
    times = {"none": 2, "broadcast": 3, "optimizer": 2, "gradients": 2, "parameters": 3}[x["level"]]
    theory = times * 4 * x["parameters"] / 2
    assert abs(x["bytes_moved"] / theory - 1) < 0.03, (what, x["bytes_moved"], theory)
    # Bytes a parameter after a step; in fp32 4 of parameters, 4 of gradients, 8 of moments.
    held = sum(x["after_step_by"].get(c, 0) for c in state) / x["parameters"]
    if x["mode"] == "eager":
        expected = {"none": 16, "broadcast": 12, "optimizer": 12, "gradients": 10, "parameters": 8}
    else:  # gradients that the same step uses up need no memory of their own
        expected = {"none": 16, "broadcast": 12, "optimizer": 12, "gradients": 8, "parameters": 6}
    assert abs(held / expected[x["level"]] - 1) < 0.03, (what, held)
assert of["eager", "parameters"]["after_init_bytes"] < 0.6 * of["eager", "none"]["after_init_bytes"]
assert of["eager", "none"]["collectives"] == 2, of["eager", "none"]  # a bucket, and the loss
folders = sorted(p.name for p in pathlib.Path(sys.argv[2]).iterdir())
run = "custom_batch_2_ctx_32_fp32_flash_attention_"
assert folders == sorted(f"{run}{m}step_2_ranks_{l}" for l in levels for m in ("", "compiled_")), folders
for folder in pathlib.Path(sys.argv[2]).iterdir():
    assert [f.name for f in sorted(folder.iterdir())] == ["rank_0.json", "rank_1.json"]
EOF2
for word in 'by what is sharded' 'MB moved' 'before step' 'the same' 'not a scaling'; do has "$work/out" "$word"; done
for word in 'optimizer state' 'compiled, parameters'; do has "$work/p.svg" "$word"; done
COLUMNS=80 "$SINTER" show "$work/r.json" > "$work/shown"
[ "$(LC_ALL=C.UTF-8 wc -L < "$work/shown")" -le 80 ] || fail "wider than 80 columns: $(cat "$work/shown")"

# Parameters that stay after the forward pass are not gathered twice; gradients that add up whole are reduced once.
"$SINTER" bench shard $small --shard parameters --reshard-after-forward no --dtype bf16 --accumulate 2 \
    --accumulate-unsharded --json "$work/keep.json" > "$work/out" 2>&1 || fail "$(cat "$work/out")"
python3 - "$work/keep.json" << 'EOF2' || fail "what is kept is not as it should be: $(cat "$work/out")"
import json, sys
[x] = json.load(open(sys.argv[1]))["results"]
assert not x["reshard_after_forward"] and x["accumulate_unsharded"]
assert x["peak_bytes"] == x["predicted_peak_bytes"], x
theory = (2 * 2 + 4) * x["parameters"] / 2  # two passes gather 16-bit parameters; fp32 gradients are reduced once
assert abs(x["bytes_moved"] / theory - 1) < 0.03, (x["bytes_moved"], theory)
EOF2

# Four devices of 0.14 GiB: what each needs is known from one process; data parallelism is refused, sharing it works.
larger="--layers 6 --d-model 384 --d-ff 1024 --heads 6 --vocab 96 --ctx 32 --batch 2"
"$SINTER" memory model --predict --device cpu $larger --ranks 4 --shard none,parameters --json "$work/need.json" \
    > "$work/out" 2>&1 || fail "$(cat "$work/out")"
"$SINTER" bench shard --ranks 4 --threads 1 $larger --warmup 1 --steps 2 --shard none,parameters --memory-limit 0.14 \
    --json "$work/limit.json" > "$work/out" 2>&1 || fail "$(cat "$work/out")"
python3 - "$work/need.json" "$work/limit.json" << 'EOF2' || fail "what fits is not as it should be: $(cat "$work/out")"
import json, sys
limit = 0.14 * 2**30
need = {x["shard"]: x["peak_bytes"] for x in json.load(open(sys.argv[1]))["results"]}
none, parameters = json.load(open(sys.argv[2]))["results"]
assert none["status"] == "oom" and "needs" in none["reason"] and "are free" in none["reason"], none
assert parameters["status"] == "ok" and parameters["peak_bytes"] == need["parameters"] < limit < need["none"], need
EOF2
has "$work/out" 'OOM'

# One rank has nobody to talk to.
"$SINTER" bench shard --ranks 1 $small --shard none,parameters --json "$work/one.json" > "$work/out" 2>&1 ||
  fail "one rank: $(cat "$work/out")"
has "$work/one.json" '"bytes_moved": 0.0'

refused() {  # refused TEXT FLAGS…
  text=$1; shift
  code=0; "$SINTER" bench shard $small "$@" > "$work/out" 2>&1 || code=$?
  [ $code -eq 2 ] || fail "$*: exit code $code, not 2: $(cat "$work/out")"
  has "$work/out" "$text"
}
refused 'choose none, broadcast, optimizer, gradients, parameters' --shard all
refused '--bucket-mb must be positive' --bucket-mb 0
refused '--reshard-after-forward maybe: unknown; choose yes or no' --reshard-after-forward maybe
refused '--turns must be between' --turns 0
refused '--ranks must be between' --ranks 0
refused '--backend tcp: unknown' --backend tcp
refused '--device' --device cuda
refused '--trace' --trace /proc/nowhere
echo ok
