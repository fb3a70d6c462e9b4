#!/bin/sh
# sinter train: a loss that falls on a corpus, its log and record, ranks that agree with one process, what is refused,
# numbers that are not finite, and being asked to stop.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }
python3 "$SINTER_SOURCE_DIR/tools/make_corpus.py" "$work/corpus.txt" --bytes 60000
small="--device cpu --text $work/corpus.txt --layers 2 --d-model 64 --d-ff 128 --heads 2 --ctx 32"
trained() {  # trained ARGUMENTS…
  "$SINTER" train $small "$@" > "$work/out" 2> "$work/err" || fail "$*: $(cat "$work/err")"
}

# The corpus is the same with any python3.
[ "$(cksum < "$work/corpus.txt")" = "513786578 60160" ] || fail "make_corpus.py wrote $(cksum < "$work/corpus.txt")"

trained --global-batch 8 --steps 60 --lr 5e-3 --evaluate-every 25 --clip 1 --log "$work/a.jsonl" \
  --json "$work/a.json" --plot "$work/a.html"
python3 - "$work/a.jsonl" "$work/a.json" << 'EOF2' || fail "the log or the record is not as it should be"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
assert [l["step"] for l in lines] == list(range(1, 61))
assert [l["step"] for l in lines if "validation_loss" in l] == [25, 50, 60]
for l in lines:
    assert set(l) - {"validation_loss"} == {"step", "loss", "lr", "gradient_norm", "tokens_per_s", "elapsed_s"}, l
    assert l["tokens_per_s"] > 0 and l["gradient_norm"] > 0
assert all(a["elapsed_s"] < b["elapsed_s"] for a, b in zip(lines, lines[1:]))
rates = [l["lr"] for l in lines]
assert rates[:6] == [5e-3 * (i + 1) / 6 for i in range(6)] and rates[-1] < 6e-4, rates  # a tenth of them warm up
assert 5.4 < lines[0]["loss"] < 6.5, lines[0]  # ln 256 = 5.55
validation = [l["validation_loss"] for l in lines if "validation_loss" in l]
assert validation[-1] < 2.9 and validation[-1] < validation[0], validation
r = json.load(open(sys.argv[2]))
[x] = r["results"]
assert r["command"] == "train" and r["config"]["text"] == sys.argv[1].replace("a.jsonl", "corpus.txt")
assert x["status"] == "ok" and x["steps_done"] == 60 and x["global_batch"] == 8
assert x["accumulate"] == 2 and x["vocab"] == 256
assert x["tokens"] == 60 * 8 * 32 and x["loss"] == lines[-1]["loss"] and x["first_loss"] == lines[0]["loss"]
assert x["validation_loss"] == validation[-1] and x["curve"]["loss"] == [l["loss"] for l in lines]
assert x["data"]["files"][0]["format"] == "text" and x["peak_bytes"] > 0
n = x["data"]["training_sequences"] + x["data"]["validation_sequences"]
assert n == (x["data"]["files"][0]["tokens"] - 1) // 32 and x["data"]["validation_sequences"] == round(n / 20)
EOF2
has "$work/out" 'validation'
has "$work/err" 'step 60/60'
has "$work/a.html" '<svg'

# The same run from its record; token files of the same bytes; eager and compiled; micro-batches: the same losses.
"$SINTER" train --config "$work/a.json" --log "$work/b.jsonl" > /dev/null 2> "$work/err" || fail "$(cat "$work/err")"
python3 - "$work" << 'EOF2'
import struct, sys
bytes_ = open(sys.argv[1] + "/corpus.txt", "rb").read()
open(sys.argv[1] + "/bare.bin", "wb").write(struct.pack(f"<{len(bytes_)}H", *bytes_))
open(sys.argv[1] + "/gpt2.bin", "wb").write(struct.pack("<256i", 20240520, 1, len(bytes_), *[0] * 253) +
                                            struct.pack(f"<{len(bytes_)}H", *bytes_))
EOF2
common="--global-batch 8 --steps 8 --lr 5e-3"
trained $common --log "$work/eager.jsonl"
trained $common --mode compiled --log "$work/compiled.jsonl"
trained $common --batch 1 --log "$work/micro.jsonl"
trained $common --ranks 2 --log "$work/two.jsonl"
trained $common --ranks 4 --shard parameters --threads 1 --mode compiled --log "$work/four.jsonl"
"$SINTER" launch -n 2 -- train $small $common --strategy naive --log "$work/launched.jsonl" > "$work/out" 2>&1 ||
  fail "$(cat "$work/out")"
model=${small#*corpus.txt}
"$SINTER" train --device cpu --tokens "$work/bare.bin" --vocab 256 $model $common --log "$work/bare.jsonl" \
  > "$work/out" 2>&1 || fail "$(cat "$work/out")"
"$SINTER" train --device cpu --tokens "$work/gpt2.bin" --vocab 256 $model $common --log "$work/gpt2.jsonl" \
  > "$work/out" 2>&1 || fail "$(cat "$work/out")"
python3 - "$work" << 'EOF2' || fail "runs that should agree do not"
import json, sys
def losses(name):
    lines = map(json.loads, open(f"{sys.argv[1]}/{name}.jsonl"))
    return [(l["loss"], l.get("validation_loss")) for l in lines]
assert losses("a") == losses("b")
eager = losses("eager")
for name in ("compiled", "bare", "gpt2"): assert losses(name) == eager, (name, losses(name), eager)
for name in ("micro", "two", "four", "launched"):
    for a, b in zip(losses(name), eager):
        assert abs(a[0] / b[0] - 1) < 1e-5, (name, a, b)
    assert abs(losses(name)[-1][1] / eager[-1][1] - 1) < 1e-5, name
EOF2

# --fit: the largest micro-batch that memory holds, and recomputation where not even one sequence fits. The losses stay.
gib() {  # gib RECORD FACTOR: that part of its predicted peak
  python3 -c "
import json
print(json.load(open('$work/$1.json'))['results'][0]['predicted_peak_bytes'] * $2 / 2**30)"
}
deep() {
  "$SINTER" train --device cpu --text "$work/corpus.txt" --layers 6 --d-model 64 --d-ff 128 --heads 2 --ctx 512 \
    --steps 4 --lr 5e-3 --validation 0 --mode compiled --global-batch "$@" > "$work/out" 2> "$work/err" ||
    fail "$*: $(cat "$work/err")"
}
deep 8 --fit --log "$work/all.jsonl" --json "$work/all.json"
deep 8 --fit --memory-limit "$(gib all 0.7)" --log "$work/some.jsonl" --json "$work/some.json"
deep 1 --batch 1 --log "$work/one.jsonl" --json "$work/one.json"
deep 1 --fit --memory-limit "$(gib one 0.9)" --log "$work/again.jsonl" --json "$work/again.json"
deep 8 --fit --ranks 2 --json "$work/ranks.json"
python3 - "$work" << 'EOF2' || fail "--fit chooses otherwise"
import json, sys
def result(name): return json.load(open(f"{sys.argv[1]}/{name}.json"))["results"][0]
def losses(name): return [json.loads(l)["loss"] for l in open(f"{sys.argv[1]}/{name}.jsonl")]
one, all_, some, again, ranks = map(result, ("one", "all", "some", "again", "ranks"))
assert (all_["batch"], all_["accumulate"]) == (8, 1), all_
assert (ranks["batch"], ranks["accumulate"]) == (4, 1), ranks
assert 1 <= some["batch"] < 8 and some["batch"] * some["accumulate"] == 8, some
assert some["peak_bytes"] <= 0.7 * all_["predicted_peak_bytes"] and not some["memory_budget"], some
assert again["batch"] == 1 and again["memory_budget"] > 0, again
assert again["peak_bytes"] <= 0.9 * one["predicted_peak_bytes"], (again, one)
for name, same in (("some", "all"), ("again", "one")):
    for a, b in zip(losses(name), losses(same)): assert abs(a / b - 1) < 1e-5, (name, a, b)
EOF2

# Logs are shown together.
"$SINTER" show "$work/a.jsonl" "$work/eager.jsonl" --plot "$work/both.svg" > "$work/out" || fail "show"
for word in 'a.jsonl' 'eager.jsonl' '60'; do has "$work/out" "$word"; done
has "$work/both.svg" 'eager.jsonl, training'
has "$work/both.svg" 'a.jsonl, validation'
printf '{"step": 1, "loss": 2.5}\n{"step": 2, "lo' > "$work/cut.jsonl"
"$SINTER" show "$work/cut.jsonl" > "$work/out" || fail "a log that is being written cannot be shown"

refused() {  # refused CODE WORDS ARGUMENTS…
  expected=$1 words=$2
  shift 2
  code=0
  timeout 60 "$SINTER" "$@" > "$work/out" 2> "$work/err" || code=$?
  [ "$code" -eq "$expected" ] || fail "$*: exit code $code, not $expected: $(cat "$work/err")"
  has "$work/err" "$words"
}
# What is not finite ends the run and says where it came from, or is skipped.
refused 4 'first comes the parameter' train $small --steps 30 --lr 1e30 --schedule constant
refused 4 'first comes the output of' train $small --steps 30 --lr 1e30 --schedule constant --clip 1 --mode compiled
refused 4 'on rank 0' train $small --ranks 2 --steps 30 --lr 1e30 --clip 1
"$SINTER" train $small --steps 6 --lr 1e30 --warmup-steps 0 --clip 1 --on-nan skip --json "$work/skip.json" \
  > "$work/out" 2>&1 || fail "skip: $(cat "$work/out")"
python3 -c 'import json, sys
[x] = json.load(open(sys.argv[1]))["results"]
assert 1 <= x["skipped"] < 6, x["skipped"]' \
  "$work/skip.json" || fail "nothing was skipped"

# Being asked to stop: after a step that all ranks know of, with a log of whole lines.
for ranks in 1 2; do
  "$SINTER" train $small --ranks $ranks --steps 100000 --log "$work/long$ranks.jsonl" > "$work/out" 2> "$work/err" &
  i=0
  until [ "$(cat "$work/long$ranks.jsonl" 2> /dev/null | wc -l)" -gt 5 ] || [ $i -gt 300 ]; do
    sleep 0.1; i=$((i + 1))
  done
  kill -TERM $!
  code=0; wait $! || code=$?
  [ "$code" -eq 130 ] || fail "SIGTERM ends $ranks ranks with $code: $(cat "$work/err")"
  has "$work/out" 'interrupted'
  python3 -c 'import json, sys
all = [json.loads(l)["step"] for l in open(sys.argv[1])]
assert all == list(range(1, len(all) + 1))' \
    "$work/long$ranks.jsonl" || fail "the log of an interrupted run"
done

: > "$work/empty"
printf 'abc' > "$work/odd"
refused 2 'there is nothing to train on' train
refused 2 'say with --global-batch' train --text "$work/corpus.txt" --fit
refused 2 'leave them out' train --text "$work/corpus.txt" --fit --global-batch 8 --batch 2
refused 2 'are not of one vocabulary' train --text "$work/corpus.txt" --tokens "$work/bare.bin"
refused 2 'nowhere: cannot be opened' train --text nowhere
refused 2 'is empty; give a file with text' train --text "$work/empty"
refused 2 'an odd number' train --tokens "$work/odd" --vocab 300
refused 2 '--vocab: ' train --tokens "$work/bare.bin"
refused 2 'is not in a vocabulary of 100; use --vocab 122 or more' train $small --vocab 100
refused 2 'too short for one sequence of --ctx 100000' train --device cpu --text "$work/corpus.txt" --ctx 100000
refused 2 'use 8 or 10' train $small --ranks 2 --global-batch 9
refused 2 'use --batch 2' train $small --global-batch 8 --batch 3
refused 2 'not the 3 of --accumulate' train $small --global-batch 8 --batch 2 --accumulate 3
refused 2 'fewer than the 4096 of a global batch' train $small --global-batch 4096
refused 2 '--validation must be at least 0' train $small --validation 1
refused 2 'give one or the other' train $small --validation 0.1 --validation-text "$work/corpus.txt"
refused 2 'leave out --validation 0' train $small --validation 0 --evaluate-every 5
refused 2 '--schedule linear: unknown' train $small --schedule linear
refused 2 '--min-lr must be between' train $small --lr 1e-3 --min-lr 1
refused 2 '--warmup-steps must be between' train $small --steps 5 --warmup-steps 6
refused 2 '--beta2 must be' train $small --beta2 1
refused 2 '--on-nan ignore: unknown' train $small --on-nan ignore
refused 2 'add --clip 1' train $small --on-nan skip
refused 2 'one is trained at a time' train $small --dtype fp32,bf16
refused 2 '--ranks: give one number' train $small --ranks 1,2
refused 2 '--shard: give one level' train $small --ranks 2 --shard none,optimizer
refused 2 'there is a log already' train $small --log "$work/a.jsonl"
refused 2 'reads that file' train $small --log "$work/corpus.txt"
refused 2 '--log /proc/nowhere/x' train $small --log /proc/nowhere/x
refused 2 'is a record, and only logs' show "$work/a.jsonl" "$work/a.json"
printf '{"step": 1}\nhello\n{"step": 2}\n' > "$work/mixed.jsonl"
refused 2 'line 2 is no line' show "$work/mixed.jsonl"
echo ok
