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

# 1,024 devices of 8,100 hours fail every 7.9 hours.
"$SINTER" plan failures --devices 1024 --mtbf 8100 --every-s 3600 --step-ms 1000 --json "$work/r.json" \
  > "$work/out"
for text in '7.91 h' 'best' '3,600' 'goodput %'; do has "$work/out" "$text"; done
"$SINTER" show "$work/r.json" > "$work/shown"
cmp "$work/out" "$work/shown" || fail "show prints another table"

# Every way that is listed is what plan simulate says of it, and none that fits is left out for being fast.
model="--dtype bf16 --d-model 2048 --d-ff 5632 --layers 16 --heads 16 --ctx 4096"
# shellcheck disable=SC2086
"$SINTER" plan best $model --devices 32 --global-batch 64 --memory 16GB --top 1000000 --json "$work/r.json" \
  > "$work/out"
has "$work/out" 'ways to divide it fit'
"$SINTER" show "$work/r.json" > "$work/shown"
cmp "$work/out" "$work/shown" || fail "show prints another table"
python3 - "$work/r.json" "$SINTER" $model << 'END' || fail "plan best and plan simulate differ"
import json, subprocess, sys
record = json.load(open(sys.argv[1]))
rows = record["results"]
assert len(rows) == record["fit"] > 50, record["fit"]
assert all(r["memory_bytes"] <= 0.9 * 16e9 for r in rows)
fastest = min(r["step_ms"] for r in rows)
assert rows[0]["step_ms"] <= 1.03 * fastest
assert {r["tensor"] for r in rows} > {1, 2} and {r["pipeline"] for r in rows} > {1, 2}
assert {r["context"] for r in rows} == {1, 2, 4}
for r in rows[:: len(rows) // 5]:
    flags = ["--devices", "32", "--from", "shapes", "--json", "-", "--machine", "h100", "--batch", str(r["batch"]),
             "--shard", r["shard"], "--recompute", str(r["recompute"])]
    for name, flag in (("tensor", "--tensor"), ("pipeline", "--pipeline"), ("interleave", "--interleave"),
                       ("context", "--context"), ("accumulate", "--accumulate")):
        flags += [flag, str(r[name])] if r[name] > 1 else []
    flags += ["--sequence-parallel"] if r["tensor"] > 1 else []
    command = [sys.argv[2], "plan", "simulate", *sys.argv[3:], *flags]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["results"][0]
    assert abs(said["step_ms"] / r["step_ms"] - 1) < 1e-6 and said["data"] == r["data"], (r, said)
END
code=0
"$SINTER" plan best --size 2.7B --dtype bf16 --devices 1 --memory 8GB > "$work/out" || code=$?
[ "$code" -eq 3 ] || fail "what does not fit ends with $code"
has "$work/out" 'Nothing fits; what needs least takes'

# A record is a configuration: its model is what --config takes.
"$SINTER" plan cost --d-model 64 --d-ff 128 --layers 2 --heads 4 --dtype bf16 --json "$work/r.json" > "$work/out"
"$SINTER" plan cost --config "$work/r.json" > "$work/again"
cmp "$work/out" "$work/again" || fail "--config of a record asks something else"

# What does not fit on one, fits on several that divide it; and nothing fits where nothing can.
"$SINTER" plan fit --size xl --gpus 8 --memory 80GB --global-batch 16 --json "$work/r.json" > "$work/out"
for text in 'fastest first' 'parameters' 'optimizer' '16 sequences a step on 8 × h100'; do has "$work/out" "$text"; done
"$SINTER" show "$work/r.json" > "$work/shown"
cmp "$work/out" "$work/shown" || fail "show prints another table"
code=0
"$SINTER" plan fit --size 2.7B --ctx 1024 --gpus 1 --memory 40GB --dtype bf16 > "$work/out" || code=$?
[ "$code" -eq 3 ] || fail "what does not fit ends with $code"
has "$work/out" 'Nothing fits. 2 devices'

# Any number of devices, with a timeline for Perfetto.
"$SINTER" plan simulate --size small --dtype bf16 --devices 1,8,10000 --shard none,parameters --plot "$work/p.svg" \
  --json "$work/r.json" > "$work/out"
for text in '10000' 'shard parameters' 'datasheet'; do has "$work/out" "$text"; done
has "$work/p.svg" 'Efficiency by number of devices'
"$SINTER" plan simulate --size small --dtype bf16 --devices 16 --tensor 4 --pipeline 2 --accumulate 4 \
  --trace "$work/t.json" > "$work/out"
has "$work/t.json" 'all-reduce of the stream'
has "$work/out" 'bubble'

# A record of bench allreduce is a network.
"$SINTER" plan simulate --size small --devices 2,4 \
  --network "$SINTER_SOURCE_DIR/docs/results/ranks/allreduce.json" > "$work/out"
has "$work/out" 'network shm as measured'

# Rates from measured steps, and how far they are off for others.
"$SINTER" bench model --device cpu --d-model 32,64 --d-ff 64 --layers 1 --heads 2 --vocab 64 --ctx 16 --batch 1 \
  --mode eager,compiled --warmup 1 --steps 2 --json "$work/steps.json" > /dev/null 2>&1
"$SINTER" plan calibrate --record "$work/steps.json" --out "$work/m.json" > "$work/out" 2>/dev/null
has "$work/out" 'from 4 steps'
"$SINTER" plan validate --record "$work/steps.json" --machine "$work/m.json" > "$work/out" 2>/dev/null
has "$work/out" 'of 4 runs'
"$SINTER" plan validate --random 1 --seed 3 --machine "$work/m.json" --json "$work/r.json" > "$work/out" 2>/dev/null
has "$work/out" 'of 1 runs'
has "$work/out" 'hash'

# Steps of ranks, with the network that a record of bench allreduce is; rates from those that do not communicate.
"$SINTER" bench ddp --device cpu --ranks 2 --d-model 32 --d-ff 64 --layers 1 --heads 2 --vocab 64 --ctx 16 --batch 1 \
  --mode eager,compiled --strategy none,bucketed --warmup 1 --steps 2 --turns 1 --json "$work/ddp.json" > /dev/null 2>&1
"$SINTER" bench shard --device cpu --ranks 2 --d-model 32 --d-ff 64 --layers 1 --heads 2 --vocab 64 --ctx 16 --batch 1 \
  --shard parameters --warmup 1 --steps 2 --turns 1 --json "$work/shard.json" > /dev/null 2>&1
"$SINTER" plan calibrate --record "$work/ddp.json" --out "$work/m.json" > "$work/out" 2>/dev/null
has "$work/out" 'from 2 steps'
network=$SINTER_SOURCE_DIR/docs/results/ranks/allreduce.json
"$SINTER" plan validate --record "$work/ddp.json,$work/shard.json" --machine "$work/m.json" --network "$network" \
  --wide > "$work/out" 2>/dev/null
for text in 'of 5 runs' '2 × none: ' '2 × bucketed 25 MiB: ' '2 × shard parameters: '; do
  has "$work/out" "$text"
done
code=0
"$SINTER" plan validate --record "$work/ddp.json" --machine "$work/m.json" > "$work/out" 2>&1 || code=$?
[ "$code" -eq 2 ] || fail "ranks without a network end with $code: $(cat "$work/out")"
has "$work/out" 'say how fast with --network'
