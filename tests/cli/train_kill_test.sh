#!/bin/sh
# A run of two ranks that is killed again and again, at any moment, ends where one that never was does: the same
# parameters, and a log in which every step stands once. KILLS says how often, SEED when.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
python3 "$SINTER_SOURCE_DIR/tools/make_corpus.py" "$work/corpus.txt" --bytes 30000
kills=${KILLS:-10}
steps=$((200 * kills))
run="train --device cpu --text $work/corpus.txt --layers 1 --d-model 32 --d-ff 64 --heads 2 --ctx 16 --global-batch 8
  --ranks 2 --threads 1 --steps $steps"
# shellcheck disable=SC2086
begin() {
  "$SINTER" $run --out "$work/$1" --checkpoint-every 20 --keep 2 --resume-if-possible > "$work/out" 2> "$work/err"
}
begin whole || fail "$(cat "$work/err")"

running() { grep -ls "$work/k[i]lled" /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -n; }
done_steps() { if [ -f "$work/killed/log.jsonl" ]; then wc -l < "$work/killed/log.jsonl"; else echo 0; fi; }
seed=${SEED:-1}
for i in $(seq 1 "$kills"); do
  begin killed &
  launcher=$!
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  # At a step beyond those there are, or, for one in four, as it begins.
  target=$(($(done_steps) + 1 + seed / 65536 % 150))
  if [ $((seed / 256 % 4)) -eq 0 ]; then
    sleep "0.$(printf '%03d' $((seed / 65536 % 400)))"
  else
    while [ "$(done_steps)" -lt "$target" ]; do
      kill -0 $launcher 2> /dev/null || fail "kill $i: it ended by itself: $(cat "$work/err")"
      sleep 0.01
    done
  fi
  all=$(running)  # the launcher first, then its ranks
  case $((seed / 1024 % 3)) in
    0) victims=$(echo "$all" | head -n 1) ;;
    1) victims=$(echo "$all" | tail -n 1) ;;
    2) victims=$all ;;
  esac
  # shellcheck disable=SC2086
  kill -9 $victims 2> /dev/null || fail "kill $i: nobody was there"
  wait $launcher 2> /dev/null || true
  n=0
  while [ -n "$(running)" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
  [ $n -lt 100 ] || fail "kill $i: ranks outlive the one that was killed"
done
[ -s "$work/killed/latest" ] || fail "nothing was saved between kills"
begin killed || fail "after $kills kills: $(cat "$work/err")"
sums() { (cd "$work/$1/step_$(printf '%08d' "$steps")" && cksum ./*.safetensors); }
[ "$(sums whole)" = "$(sums killed)" ] || fail "other parameters than without being killed"
python3 - "$work/killed/log.jsonl" "$steps" << 'EOF2' || fail "the log"
import json, sys
assert [json.loads(l)["step"] for l in open(sys.argv[1])] == list(range(1, int(sys.argv[2]) + 1))
EOF2
echo ok
