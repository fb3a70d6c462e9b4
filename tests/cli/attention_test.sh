#!/bin/sh
# bench attention: its tables, its record, what does not fit, a peer that is not there, and Ctrl-C.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
export COLUMNS=400  # so wide that no column is left out; tables that fit a terminal: terminal_test.sh
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2"; }
bench="$SINTER bench attention --device cpu"

$bench --batch 2 --heads 4 --kv-heads 2 --ctx 32,64,128 --head-dim 16 --dtype fp32,bf16 --attention naive,tiled,flash \
    --warmup 1 \
  --steps 4 --json "$work/r.json" --table "$work/t.md" --plot "$work/p.svg" > "$work/out.txt" 2> "$work/progress.txt"
for text in 'Time (ms, medians)' 'Speed of light' '% of speed of light' 'Memory held before backward' 'probabilities' \
            'How held memory grows with ctx' 'speed-up' 'naive' 'tiled' 'flash' '4/2'; do
  has "$work/out.txt" "$text"
done
for field in '"command": "bench attention"' '"forward"' '"backward"' '"both"' '"wall"' '"samples_ms"' '"held_bytes"' \
    '"saved"' \
             '"L"' '"probabilities"' '"peak_bytes"' '"growth"' '"exponent"' '"of_light"' '"attention_why"' \
                 '"kv_heads": 2'; do
  has "$work/r.json" "$field"
done
has "$work/p.svg" '<svg'
"$SINTER" show "$work/r.json" --table "$work/again.md" > "$work/again.txt"
cmp "$work/out.txt" "$work/again.txt" || fail "show prints other tables"
cmp "$work/t.md" "$work/again.md" || fail "show writes other tables"

# One pass, the other mask, tiles, determinism, and the default's reason.
$bench --batch 1 --ctx 48 --head-dim 24 --pass forward --full --attention auto --warmup 0 --steps 1 --json - > \
    "$work/f.json" 2> /dev/null
has "$work/f.json" '"attention_why": "auto: cpu has a kernel for head dimension 24"'
has "$work/f.json" '"causal": false'
grep -q '"backward"' "$work/f.json" && fail "a forward pass has a backward phase"
$bench --batch 1 --ctx 64 --head-dim 16 --attention tiled --tile 32,64 --deterministic --warmup 0 --steps 2 > \
    "$work/tile.txt" 2> /dev/null
for text in 'tiled, tile 32' 'tiled, tile 64' 'deterministic' 'cost of determinism'; do has "$work/tile.txt" "$text"; \
    done

# Compiled beside eager: in turns, phase by phase, with what it took to compile; naive stays naive and says so.
$bench --batch 1 --heads 2 --kv-heads 1 --ctx 64,512 --head-dim 16 --dtype fp32,bf16 --attention naive,flash --mode \
    eager,compiled --warmup 1 \
  --steps 2 --json "$work/c.json" > "$work/c.txt" 2> /dev/null
for text in 'naive, compiled' 'flash, compiled' 'against eager fwd/bwd/both' 'compile ms' \
    'compiled naive is still naive' 'strips of rows' \
            'compiled flash is the same kernel' 'replayed as two segments'; do
  has "$work/c.txt" "$text"
done
for field in '"mode": "eager"' '"mode": "compiled"' '"passes": "all"' '"trace_ms"' '"arena_bytes"' '"pass": "causal"' \
    '"algorithm"'; do
  has "$work/c.json" "$field"
done
"$SINTER" show "$work/c.json" > "$work/again.txt"
cmp "$work/c.txt" "$work/again.txt" || fail "show prints another comparison of modes"
if python3 -c 'import json' 2> /dev/null; then
  python3 - "$work/c.json" <<'END' || fail "the record of eager and compiled attention is not as it should be"
import json, sys

results = json.load(open(sys.argv[1]))["results"]
assert len(results) == 16, len(results)
for r in results:
    assert r["peak_bytes"] == r["predicted_peak_bytes"] and r["held_bytes"] == r["predicted_held_bytes"], r["mode"]
    assert set(r["phases"]) == {"forward", "backward", "both"}
    passes = [p["pass"] for p in r.get("compiled", {}).get("passes", [])]
    assert ("compiled" in r) == ("algorithm" in r) == (r["mode"] == "compiled")
    if r["mode"] == "compiled":
        assert ("flash" in passes) == (r["attention"] != "naive"), "compiled naive must stay naive"
by = {(r["attention"], r["mode"], r["dtype"], r["ctx"]): r for r in results}
for dtype in ("fp32", "bf16"):
    eager, compiled = (by["naive", mode, dtype, 512]["peak_bytes"] for mode in ("eager", "compiled"))
    assert compiled < eager, (dtype, eager, compiled)
END
fi
$bench --batch 1 --ctx 512 --head-dim 16 --pass forward --mode compiled --passes none,causal+plan --warmup 0 --steps \
    2 > "$work/passes.txt" 2> /dev/null
for text in 'naive, compiled: none' 'naive, compiled: causal+plan'; do has "$work/passes.txt" "$text"; done

# What does not fit is a row with its account, and the rest goes on; nothing that fits is exit code 3.
$bench --batch 8 --heads 64 --ctx 16,131072 --head-dim 16 --warmup 0 --steps 1 --attention naive > "$work/oom.txt" 2> \
    /dev/null
for text in 'OOM: needs' 'probabilities 32' 'would fit'; do has "$work/oom.txt" "$text"; done
code=0
$bench --batch 8 --heads 64 --ctx 131072 --head-dim 16 --attention naive > /dev/null 2>&1 || code=$?
[ "$code" -eq 3 ] || fail "nothing fits, but the exit code is $code, not 3"

# A python that fails leaves ours alone, with a note.
printf '#!/bin/sh\nexit 1\n' > "$work/python"
chmod +x "$work/python"
$bench --batch 1 --ctx 32 --head-dim 16 --warmup 0 --steps 2 --peer math --python "$work/python" > "$work/peer.txt" \
    2> /dev/null
has "$work/peer.txt" 'exit code 1 and no result; ours ran alone'
# A peer that answers stands beside ours.
cat > "$work/python" <<'END'
#!/bin/sh
cat <<'JSON'
{"torch": "9.9", "machine": {"cuda": "none"},
 "results": [{"device": "cpu", "batch": 1, "heads": 1, "kv_heads": 1, "ctx": 32, "head_dim": 16, "causal": true,
 "dtype": "fp32", "pass": "forward-backward", "seed": 0, "attention": "math", "status": "ok",
 "held_bytes": null, "peak_bytes": null,
 "samples_ms": {"forward": [1, 1], "backward": [2, 2], "both": [3, 3], "wall": [4, 4]}},
 {"device": "cpu", "batch": 1, "heads": 1, "kv_heads": 1, "ctx": 32, "head_dim": 16, "causal": true, "dtype": "fp32",
 "pass": "forward-backward", "seed": 0, "attention": "cudnn", "status": "unavailable", "reason": "no such backend"}]}
JSON
END
$bench --batch 1 --ctx 32 --head-dim 16 --warmup 0 --steps 2 --attention flash --peer math,cudnn --python \
    "$work/python" --json "$work/peer.json" \
  > "$work/peer.txt" 2> /dev/null
for text in 'Theirs ÷ ours' 'torch math (9.9)' 'none (1)' 'no such backend'; do has "$work/peer.txt" "$text"; done
has "$work/peer.json" '"cuda": "none"'
"$SINTER" show "$work/peer.json" > "$work/again.txt"
cmp "$work/peer.txt" "$work/again.txt" || fail "show prints another comparison"

# Ctrl-C keeps finished rows.
code=0
timeout --foreground --preserve-status -s INT 3 $bench --batch 1 --ctx 16,512 --head-dim 16 --warmup 0 --steps 100000 \
  --attention flash --seconds 1 --json "$work/cut.json" > /dev/null 2> "$work/err.txt" || code=$?
[ "$code" -eq 0 ] || fail "--seconds did not stop it: $code"
timeout --foreground --preserve-status -s INT 4 $bench --batch 1 --ctx 16,8192 --head-dim 64 --warmup 0 --steps 500 \
  --attention flash --json "$work/cut.json" > /dev/null 2> "$work/err.txt" || code=$?
[ "$code" -eq 130 ] || fail "Ctrl-C ends with $code, not 130: $(cat "$work/err.txt")"
"$SINTER" show "$work/cut.json" > "$work/cut.txt"
has "$work/cut.txt" 'ctx 16, '
if grep -q '8192' "$work/cut.txt"; then fail "a row that never finished is in the table"; fi
echo "bench attention is as it should be"
