#!/bin/sh
# bench allreduce: ranks of its own and of a job, every sum verified, what the record holds, and what is refused.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }

# looked_at RECORD CODE…: python looks at the record r; `g` says whether this build has gloo.
looked_at() {
  python3 - "$1" "$gloo" "$2" << 'EOF' || fail "$1 is not as it should be"
import json, sys
r, g = json.load(open(sys.argv[1])), sys.argv[2] == "yes"
rows = r["results"]
assert r["command"] == "bench allreduce" and rows
for x in rows:
    assert x["status"] == "ok" and x["verified"] is True, x
    assert [t["rank"] for t in x["by_rank"]] == list(range(x["ranks"])), x
    for i, ms in enumerate(x["samples_ms"]):
        assert ms > 0 and ms == max(t["samples_ms"][i] for t in x["by_rank"]), x
    n, seconds = x["ranks"], x["median_ms"] / 1e3
    assert abs(x["algbw_gbs"] * 1e9 * seconds / x["bytes"] - 1) < 1e-9, x
    assert abs(x["busbw_gbs"] - x["algbw_gbs"] * 2 * (n - 1) / n) < 1e-9, x
    assert x["spread_ms"] >= 0, x
exec(sys.argv[3])
EOF
}

gloo=yes
"$SINTER" bench allreduce --mb 0.001 --backend gloo --steps 1 > "$work/out" 2> "$work/err" || gloo=no
[ $gloo = yes ] || has "$work/err" 'this build lacks it'

# Without --backend all that the build has; groups of the first ranks; sizes that no rank's share divides.
"$SINTER" bench allreduce --ranks 2,3 --mb 0.000004,0.1,1.000004 --steps 6 --json "$work/r.json" --plot "$work/p.svg" \
    --table "$work/t.csv" > "$work/out" 2> "$work/err" || fail "$(cat "$work/err")"
looked_at "$work/r.json" '
backends = ["shm", "gloo"] if g else ["shm"]
assert [(x["ranks"], x["bytes"], x["backend"]) for x in rows] == \
    [(n, b, e) for n in (2, 3) for b in (4, 100000, 1000004) for e in backends], rows
assert all(x["dtype"] == "fp32" and len(x["samples_ms"]) == 6 for x in rows)
assert [(f["ranks"], f["backend"]) for f in r["fits"]] == [(n, e) for n in (2, 3) for e in backends], r["fits"]
for f in r["fits"]:
    assert [p["bytes"] for p in f["curve"]] == [4, 100000, 1000004]
    assert f["alpha_ms"] >= 0 and f["beta_ms_per_byte"] >= 0
    errors = [abs((f["alpha_ms"] + f["beta_ms_per_byte"] * p["bytes"]) / p["ms"] - 1) for p in f["curve"]]
    assert abs(max(errors) - f["largest_error"]) < 1e-9, f
'
for word in 'algbw' 'busbw' 'verified' 'alpha'; do has "$work/out" "$word"; done
has "$work/p.svg" 'shm, 3 ranks'
has "$work/t.csv" 'busbw GB/s'
[ "$(grep -c 'rank [12]\]' "$work/err")" -eq 0 ] || fail "ranks other than 0 speak: $(cat "$work/err")"
"$SINTER" show "$work/r.json" > "$work/shown"
cmp "$work/out" "$work/shown" || fail "show shows something else"
COLUMNS=80 "$SINTER" show "$work/r.json" > "$work/shown"
[ "$(LC_ALL=C.UTF-8 wc -L < "$work/shown")" -le 80 ] || fail "wider than 80 columns: $(cat "$work/shown")"

# The record alone on stdout; 16-bit sums.
"$SINTER" bench allreduce --ranks 3 --mb 0.1 --dtype bf16,fp16 --steps 3 --deterministic --check-collectives --json - \
    > "$work/r.json" 2> "$work/err" || fail "$(cat "$work/err")"
looked_at "$work/r.json" 'assert {x["dtype"] for x in rows} == {"bf16", "fp16"} and r["config"]["deterministic"]'

# The ranks of a job: all of them, or the first.
"$SINTER" launch -n 2 -- bench allreduce --mb 0.1 --steps 3 --json "$work/r.json" > "$work/out" 2> "$work/err" || \
    fail "$(cat "$work/err")"
looked_at "$work/r.json" 'assert {x["ranks"] for x in rows} == {2}'
"$SINTER" launch -n 3 -- bench allreduce --ranks 1,2 --mb 0.1 --steps 3 --json "$work/r.json" \
    > /dev/null 2> "$work/err" || \
    fail "$(cat "$work/err")"
looked_at "$work/r.json" 'assert {x["ranks"] for x in rows} == {1, 2} and r["config"]["world"] == 3'
if command -v mpirun > /dev/null && mpirun --version 2> /dev/null | grep -q 'Open MPI'; then
  mpirun --allow-run-as-root --oversubscribe -n 2 "$SINTER" bench allreduce --mb 0.1 --steps 3 --json "$work/r.json" \
      > "$work/out" 2> "$work/err" || fail "mpirun: $(cat "$work/err")"
  looked_at "$work/r.json" 'assert {x["ranks"] for x in rows} == {2} and r["config"]["launcher"] == "Open MPI"'
  [ "$(grep -c 'busbw GB/s' "$work/out")" -eq 1 ] || fail "not one table: $(cat "$work/out")"
fi

# Ranks started by hand, whatever variables say; rank 0 alone writes.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
by_hand() {
  RANK=5 WORLD_SIZE=9 "$SINTER" bench allreduce --world-size 2 --master-port "$port" --mb 0.1 --steps 3 --rank "$@"
}
by_hand 1 --json "$work/other.json" > "$work/out.1" 2> "$work/err.1" &
other=$!
by_hand 0 --json "$work/r.json" > "$work/out" 2> "$work/err" || fail "rank 0 by hand: $(cat "$work/err")"
wait $other || fail "rank 1 by hand: $(cat "$work/err.1")"
looked_at "$work/r.json" 'assert {x["ranks"] for x in rows} == {2} and r["config"]["launcher"] == "flags"'
[ ! -s "$work/out.1" ] && [ ! -e "$work/other.json" ] || fail "rank 1 by hand wrote $(cat "$work/out.1")"

# What does not fit is a row, and costs nothing else.
"$SINTER" bench allreduce --mb 0.1,100000000 --backend shm --steps 3 --json "$work/r.json" \
    > "$work/out" 2> "$work/err" || \
    fail "$(cat "$work/err")"
has "$work/out" 'OOM'
has "$work/r.json" '"oom"'
code=0
"$SINTER" bench allreduce --mb 100000000 --backend shm > "$work/out" 2> "$work/err" || code=$?
[ "$code" -eq 3 ] || fail "nothing fits, but the exit code is $code"

refused() {  # refused WORDS ARGUMENTS…: in one line, before anything is launched
  words=$1 code=0
  shift
  "$SINTER" bench allreduce "$@" > "$work/out" 2> "$work/err" || code=$?
  [ "$code" -eq 2 ] || fail "$*: exit code $code, not 2: $(cat "$work/err")"
  [ "$(wc -l < "$work/err")" -eq 1 ] || fail "$*: not one line: $(cat "$work/err")"
  has "$work/err" "$words"
}
refused '--ranks must be between 1 and 1024, not 0' --ranks 0
refused '--ranks must be between 1 and 1024, not 5000' --ranks 2,5000
refused '--mb must be positive' --mb 0
refused '--mb must be positive' --mb 1,-3
refused '--backend mpi: unknown; choose auto, shm, gloo, ipc, nccl, hosts' --backend shm,mpi
refused '--dtype fp8: unknown' --dtype fp8
refused 'use fp32' --ranks 300 --dtype bf16
refused '--steps' --steps 0
refused '--warmup' --warmup -1
refused '--timeout' --timeout 0
refused '--world-size is missing' --rank 0
refused '--rank is missing' --world-size 2
refused '--rank is missing' --master-addr 127.0.0.1
refused '--rank=2, but --world-size=2' --rank 2 --world-size 2 --master-port 29500
refused 'set --master-port to a free port' --rank 0 --world-size 2
refused '--master-port=70000: must be a whole number between' --rank 0 --world-size 2 --master-port 70000
refused '--ranks 3: this job has 2 (flags)' --rank 0 --world-size 2 --master-port 29500 --ranks 3
refused '--plot' --plot "$work/p.png"
refused 'missing' --json "$work/missing/r.json"
code=0
"$SINTER" launch -n 2 -- bench allreduce --ranks 4 > "$work/out" 2> "$work/err" || code=$?
[ "$code" -eq 2 ] || fail "more ranks than the job has: exit code $code"
has "$work/err" '--ranks 4: this job has 2'

# A rank that is killed ends the others, soon and with its name.
"$SINTER" bench allreduce --ranks 3 --mb 1 --steps 1000000 --seconds 1000 --backend shm > "$work/out" 2> "$work/err" &
launcher=$!
for i in 1 2 3 4 5 6 7 8 9 10; do
  sleep 0.2
  ranks=$(cat /proc/$launcher/task/$launcher/children 2> /dev/null || true)
  [ "$(echo $ranks | wc -w)" -lt 3 ] || break
done
sleep 0.5
kill -9 "$(echo $ranks | cut -d ' ' -f 2)"
code=0
wait $launcher || code=$?
[ "$code" -eq 5 ] || fail "a rank was killed, but the exit code is $code: $(cat "$work/err")"
has "$work/err" 'rank 1 was ended by signal 9'
for rank in $ranks; do [ ! -d /proc/$rank ] || fail "rank $rank is left"; done
echo "bench allreduce is as it should be"
