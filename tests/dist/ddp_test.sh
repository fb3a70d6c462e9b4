#!/bin/sh
# bench ddp: what its record and traces hold, what it prints, and what it refuses before any rank is started.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }
small="--layers 2 --d-model 64 --d-ff 96 --heads 4 --vocab 300 --ctx 32 --batch 2 --warmup 1 --steps 4"

"$SINTER" bench ddp --ranks 3 $small --mode eager,compiled --bucket-mb 0.05,25 --check-replicas 2 \
    --json "$work/r.json" --plot "$work/p.svg" --trace "$work/traces" > "$work/out" 2> "$work/err" ||
  fail "$(cat "$work/err")"
python3 - "$work/r.json" "$work/traces" << 'EOF2' || fail "the record or the traces are not as they should be"
import json, pathlib, re, sys
r = json.load(open(sys.argv[1]))
rows = r["results"]
strategies = [("none", None), ("naive", None), ("flat", None), ("overlap", None), ("bucketed", 0.05),
              ("bucketed", 25.0)]
assert [(x["mode"], x["strategy"], x.get("bucket_mb")) for x in rows] == \
    [(m, *s) for m in ("eager", "compiled") for s in strategies], rows
losses = set()
for x in rows:
    assert x["ranks"] == 3 and x["status"] == "ok" and len(x["samples_ms"]) == 4, x
    assert [t["rank"] for t in x["by_rank"]] == [0, 1, 2]
    for i, ms in enumerate(x["samples_ms"]):
        assert ms == max(t["samples_ms"][i] for t in x["by_rank"])
    assert x["peak_bytes"] == x["predicted_peak_bytes"], (x["strategy"], x["peak_bytes"], x["predicted_peak_bytes"])
    if x["strategy"] == "none":
        assert not x.get("communication_ms") and "overlap" not in x
        continue
    losses.add(x["loss"])
    assert x["communication_ms"] > 0 and 0 <= x["exposed_ms"] <= x["communication_ms"] * 1.0001
    assert abs(x["overlap"] - (1 - x["exposed_ms"] / x["communication_ms"])) < 1e-9
    assert x["model"]["best_bucket_mb"] > 0
    if x["mode"] == "eager" and x["strategy"] in ("naive", "flat"):
        assert x["overlap"] < 0.05, x  # nothing runs beside what comes after the backward pass
assert len(losses) == 1, losses  # whatever the strategy and the mode
folders = sorted(p.name for p in pathlib.Path(sys.argv[2]).iterdir())
assert len(folders) == 12, folders
for folder in pathlib.Path(sys.argv[2]).iterdir():
    files = sorted(folder.iterdir())
    assert [f.name for f in files] == ["rank_0.json", "rank_1.json", "rank_2.json"]
    for rank, f in enumerate(files):
        # What HolisticTraceAnalysis asks of a file.
        text = f.read_text()
        assert re.search(r'"rank":\s+(\d+)', text).group(1) == str(rank)
        trace = json.loads(text)
        assert trace["distributedInfo"]["world_size"] == 3
        kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
        assert any(e["name"].startswith("ProfilerStep#") for e in trace["traceEvents"])
        for e in kernels:
            assert isinstance(e["args"]["stream"], int) and e["args"]["stream"] > 0
            assert isinstance(e["args"]["correlation"], int) and e["dur"] >= 0
        collectives = [e for e in kernels if "ncclKernel" in e["name"]]
        assert bool(collectives) == (not folder.name.endswith("none")), folder
        assert all(e["args"]["stream"] == 9 for e in collectives)
EOF2
for word in 'exposed' 'overlap' 'bucket model' 'not a scaling result'; do has "$work/out" "$word"; done
has "$work/p.svg" 'communication'
[ "$(grep -c 'rank [12]\]' "$work/err")" -eq 0 ] || fail "ranks other than 0 speak: $(cat "$work/err")"
COLUMNS=80 "$SINTER" show "$work/r.json" > "$work/shown"
[ "$(LC_ALL=C.UTF-8 wc -L < "$work/shown")" -le 80 ] || fail "wider than 80 columns: $(cat "$work/shown")"

# One rank has nobody to talk to.
"$SINTER" bench ddp --ranks 1 $small --mode compiled --strategy none,bucketed --json "$work/one.json" > "$work/out" 2>&1
grep -q '"backend": "none"' "$work/one.json" || fail "one rank: $(cat "$work/out")"

# Ranks started by hand: two processes, and none that they launch.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
by_hand() { "$SINTER" bench ddp $small --strategy flat --world-size 2 --master-port "$port" --rank "$@"; }
by_hand 1 > "$work/out.1" 2> "$work/err.1" & other=$!
by_hand 0 --json "$work/hand.json" > "$work/out" 2> "$work/err" || fail "rank 0 by hand: $(cat "$work/err")"
wait $other || fail "rank 1 by hand: $(cat "$work/err.1")"
has "$work/hand.json" '"ranks": 2'
[ ! -s "$work/out.1" ] || fail "rank 1 by hand wrote $(cat "$work/out.1")"

refused() {  # refused TEXT FLAGS…
  text=$1; shift
  code=0; "$SINTER" bench ddp $small "$@" > "$work/out" 2>&1 || code=$?
  [ $code -eq 2 ] || fail "$*: exit code $code, not 2: $(cat "$work/out")"
  has "$work/out" "$text"
}
refused 'choose naive, flat, overlap, bucketed' --strategy fast
refused '--bucket-mb must be positive' --bucket-mb 0
refused '--ranks must be between' --ranks 0
refused '--timeout must be positive' --timeout -1
refused '--world-size is missing' --rank 1
refused '--backend tcp: unknown' --backend tcp
refused '--check-replicas must not be negative' --check-replicas -2
refused '--device' --device cuda
refused '--peer torch: unknown' --peer torch
refused '--trace' --trace /proc/nowhere
echo ok
