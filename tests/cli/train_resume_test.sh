#!/bin/sh
# Going on from a checkpoint: the same bits as a run that was never stopped, other numbers of ranks, the log, being
# asked to stop, and what is refused.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }
python3 "$SINTER_SOURCE_DIR/tools/make_corpus.py" "$work/corpus.txt" --bytes 30000
small="--device cpu --text $work/corpus.txt --layers 1 --d-model 32 --d-ff 64 --heads 2 --ctx 16 --global-batch 8"
train() { "$SINTER" train "$@" > "$work/out" 2> "$work/err" || fail "$*: $(cat "$work/err")"; }
files() { (cd "$1/step_$2" && cksum ./*.safetensors); }
losses() {  # of a run's log, from a step on
  python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1] + "/log.jsonl")):
    if line["step"] >= int(sys.argv[2]):
        print(line["step"], line["loss"], line["lr"], line.get("validation_loss"))' "$@"
}

# 2k steps are k, and k more: eager and compiled, fp32 and bf16, one rank and two, sharded and not.
number=0
while read -r flags; do
  number=$((number + 1))
  whole=$work/whole$number parts=$work/parts$number
  train $small $flags --steps 12 --out "$whole" --evaluate-every 4
  train $small $flags --steps 6 --schedule-steps 12 --out "$parts" --evaluate-every 4
  ranks=$(echo "$flags" | sed -n 's/.*--ranks \([0-9]*\).*/--ranks \1/p')
  train --resume "$parts" --steps 12 $ranks
  [ "$(files "$whole" 00000012)" = "$(files "$parts" 00000012)" ] || fail "$flags: other parameters"
  [ "$(losses "$whole" 7)" = "$(losses "$parts" 7)" ] || fail "$flags: $(losses "$parts" 7) is not $(losses "$whole" 7)"
  [ "$(wc -l < "$parts/log.jsonl")" -eq 12 ] || fail "$flags: $(cat "$parts/log.jsonl")"
done << 'RUNS'
--clip 1
--mode compiled
--mode compiled --dtype bf16 --batch 2
--ranks 2 --mode compiled --dtype bf16 --threads 1
--ranks 2 --shard parameters --threads 1
RUNS

# Another number of ranks takes the same batches.
cp -r "$work/parts5" "$work/alone"
rm -rf "$work/alone/step_00000012"; sed -n 1,6p "$work/parts5/log.jsonl" > "$work/alone/log.jsonl"
rm "$work/alone/latest"
train --resume "$work/alone" --steps 12
python3 - "$work" << 'EOF2' || fail "another number of ranks: $(cat "$work/alone/log.jsonl")"
import json, sys
def losses(name): return [l["loss"] for l in map(json.loads, open(f"{sys.argv[1]}/{name}/log.jsonl"))]
a, b = losses("whole5"), losses("alone")
assert len(a) == len(b) == 12 and all(abs(x / y - 1) < 1e-5 for x, y in zip(a, b)), (a, b)
EOF2

# Asked to stop, it saves; lines beyond the checkpoint are superseded.
for ranks in 1 2; do
  dir=$work/stopped$ranks
  "$SINTER" train $small --ranks $ranks --steps 100000 --out "$dir" --checkpoint-every 1000 \
    > "$work/out" 2> "$work/err" &
  i=0
  until [ "$(cat "$dir/log.jsonl" 2> /dev/null | wc -l)" -gt 5 ] || [ $i -gt 300 ]; do sleep 0.1; i=$((i + 1)); done
  kill -INT $! 2> /dev/null || kill -TERM $!
  code=0; wait $! || code=$?
  # A shell starts what runs beside it with Ctrl-C ignored; catch_interrupts() takes it all the same.
  [ "$code" -eq 0 ] || fail "stopping $ranks ranks ends with $code: $(cat "$work/err")"
  has "$work/out" 'go on with sinter train --resume'
  step=$(tail -n 1 "$dir/log.jsonl" | python3 -c 'import json, sys; print(json.load(sys.stdin)["step"])')
  has "$dir/latest" "$(printf 'step_%08d' "$step")"
  printf '{"step": 99999, "loss": 1}\n{"step": 100000, "lo' >> "$dir/log.jsonl"  # by a run that was killed later
  train --resume "$dir" --steps $((step + 3)) --ranks $ranks --json "$work/r.json"
  python3 - "$dir/log.jsonl" "$work/r.json" "$step" << 'EOF2' || fail "$ranks ranks: the log after going on"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
step = int(sys.argv[3])
assert [l["step"] for l in lines] == list(range(1, step + 4)), lines
assert all(a["elapsed_s"] < b["elapsed_s"] for a, b in zip(lines, lines[1:]))
[x] = json.load(open(sys.argv[2]))["results"]
assert x["resumed_from"] == step and x["steps_done"] == step + 3 and x["saves"][-1]["step"] == step + 3
EOF2
done

# For scripts that are started again and again.
again="$small --out $work/again --resume-if-possible"
train $again --steps 4
train $again --steps 4
has "$work/err" 'all 4 steps are there already'
train $again --steps 6
has "$work/again/latest" 'step_00000006'

refused() {  # refused CODE WORDS ARGUMENTS…
  expected=$1 words=$2
  shift 2
  code=0
  timeout 60 "$SINTER" train "$@" > "$work/out" 2> "$work/err" || code=$?
  [ "$code" -eq "$expected" ] || fail "$*: exit code $code, not $expected: $(cat "$work/err")"
  has "$work/err" "$words"
}
again=$work/again
refused 2 'there is no checkpoint; begin with --out' --resume "$work/nowhere"
refused 2 'leave --out out' --resume "$again" --out "$work/other"
refused 2 'say where checkpoints are' $small --resume-if-possible
refused 2 'say where checkpoints go' $small --checkpoint-every 5
refused 2 'give a larger --steps' --resume "$again" --steps 6
refused 2 '--d-model 48: the run of' --resume "$again" --steps 9 --d-model 48
refused 2 '--seed 7: the run of' --resume "$again" --steps 9 --seed 7
refused 2 '--ctx 8: the run of' --resume "$again" --steps 9 --ctx 8
refused 2 '--global-batch 16: the run of' --resume "$again" --steps 9 --global-batch 16
refused 2 'cannot be divided among 3 ranks' --resume "$again" --steps 9 --ranks 3
refused 2 'there is a log already' $small --steps 4 --out "$again"
rm "$again/log.jsonl"
refused 2 "$again" $small --steps 4 --out "$again"
echo 'More text.' >> "$work/corpus.txt"
refused 2 'bring the old file back' --resume "$again" --steps 9
# An update that makes numbers that are not finite is seen before it is saved.
refused 4 'its update has made numbers that are not finite' $small --steps 1 --lr 1e38 --warmup-steps 0 \
  --weight-decay 100 --out "$work/nan"
[ ! -e "$work/nan/latest" ] || fail "what is not finite was saved"
echo ok
