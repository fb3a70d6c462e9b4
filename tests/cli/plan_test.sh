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
