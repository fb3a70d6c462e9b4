#!/bin/sh
# bench model --peer with a stand-in for python: rows beside ours with their ratio and what the peer says of itself; a
# reply that is not as expected, and a peer that hangs while sinter is stopped, cost nothing of ours.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache" COLUMNS=400
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }
bench="$SINTER bench model --device cpu --d-model 32 --d-ff 64 --layers 1 --heads 2 --vocab 61 --ctx 16 --batch 2"
bench="$bench --warmup 0 --steps 2 --peer torch-best --python $work/python"

# stand_in TEXT: a python that has torch 9.9, and whose script does this.
stand_in() {
  printf '#!/bin/sh\nif [ "$1" = -c ]; then echo 9.9; exit 0; fi\n%s\n' "$1" > "$work/python"
  chmod +x "$work/python"
}
reply() { stand_in "echo '{\"torch\": \"9.9\", \"machine\": {\"cudnn\": 91900}, \"results\": [$1]}'"; }

reply '{"pass": "step", "status": "ok", "samples_ms": [7, 8, 9], "peak_bytes": 1000, "parameters": 5, "clocks": null}'
$bench --json "$work/r.json" > "$work/out.txt" 2> "$work/err.txt"
for text in 'torch-best (9.9)' 'theirs ÷ ours' '8.000'; do has "$work/out.txt" "$text"; done
for text in '"engine": "torch-best (9.9)"' '"cudnn": 91900' '"peak_bytes": 1000'; do has "$work/r.json" "$text"; done
[ "$(grep -c '"engine": "sinter"' "$work/r.json")" -eq 2 ] || fail "ours did not run before and after"
"$SINTER" show "$work/r.json" > "$work/again.txt"
cmp "$work/out.txt" "$work/again.txt" || fail "show prints another comparison"

reply '{"pass": "step", "samples_ms": [7]}'
$bench --json "$work/r.json" > "$work/out.txt" 2> /dev/null || fail "a strange reply ends the run with $?"
has "$work/out.txt" 'torch-best: its reply is not as expected'
[ "$(grep -c '"engine": "sinter"' "$work/r.json")" -eq 2 ] || fail "a strange reply costs rows of ours"

stand_in 'exec sleep 100'
$bench --json "$work/cut.json" > /dev/null 2> "$work/err.txt" &
running=$!
sleep 3
kill -TERM $running
code=0 start=$(date +%s)
wait $running || code=$?
[ "$code" -eq 130 ] || fail "interrupted beside a peer: exit code $code, not 130"
[ $(($(date +%s) - start)) -le 20 ] || fail "interrupted beside a peer that hangs: it went on"
has "$work/cut.json" '"engine": "sinter"'
echo "peers are as they should be"
