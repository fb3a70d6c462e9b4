#!/bin/sh
# stdout carries results and stderr messages: a stderr that cannot be written costs nothing, a stdout that cannot be
# written is no success.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
fail() { echo "FAILED: $*"; exit 1; }
shape="--d-model 32 --d-ff 64 --layers 1 --heads 4 --vocab 97 --ctx 16 --batch 2"
bench="bench model --device cpu $shape --warmup 0 --steps 1"

# Nobody hears the progress: the result is there all the same, and the record is not mixed with messages.
whole() {
  [ "$(cat "$work/code")" -eq 0 ] || fail "$1: exit code $(cat "$work/code")"
  grep -q 97 "$work/out" || fail "$1: no table on stdout"
  "$SINTER" show "$work/r.json" > "$work/again" || fail "$1: the record is damaged"
  cmp "$work/out" "$work/again" || fail "$1: show prints another table"
  rm "$work/out" "$work/r.json"
}
"$SINTER" $bench --json "$work/r.json" > "$work/out" 2>&-
echo $? > "$work/code"
whole "stderr closed"
"$SINTER" $bench --json "$work/r.json" > "$work/out" 0<&- 2>&-
echo $? > "$work/code"
whole "stdin and stderr closed"
"$SINTER" $bench --json "$work/r.json" > "$work/out" 2> /dev/full
echo $? > "$work/code"
whole "stderr full"
{ sleep 0.5; "$SINTER" $bench --json "$work/r.json" 2>&1 > "$work/out"; echo $? > "$work/code"; } | true
whole "stderr without a reader"
code=0
"$SINTER" $bench --size huge > /dev/null 2>&- || code=$?
[ "$code" -eq 2 ] || fail "a refusal that cannot be told ends with $code, not 2"

# stdout that cannot be written: an error that says so, and files are there.
for command in --help --version "" "bench model --help" "precision --device cpu" "$bench --json $work/r.json"; do
  for place in full closed; do
    code=0
    if [ "$place" = full ]; then "$SINTER" $command > /dev/full 2> "$work/err" || code=$?
    else "$SINTER" $command >&- 2> "$work/err" || code=$?
    fi
    [ "$code" -eq 1 ] || fail "sinter $command with stdout $place: exit code $code, not 1"
    grep -q 'error: stdout: ' "$work/err" || fail "sinter $command with stdout $place says: $(cat "$work/err")"
  done
done
"$SINTER" show "$work/r.json" > /dev/null || fail "a full stdout cost the record"
rm "$work/r.json"

# A reader that has seen enough ends it as it ends other tools: quietly, by SIGPIPE.
for command in --help --version "" "$bench --json $work/r.json"; do
  { sleep 0.5; "$SINTER" $command 2> "$work/err"; echo $? > "$work/code"; } | true
  [ "$(cat "$work/code")" -eq 141 ] || fail "sinter $command | true: exit code $(cat "$work/code"), not 141"
  if grep -q error "$work/err"; then fail "sinter $command | true says: $(cat "$work/err")"; fi
done
"$SINTER" show "$work/r.json" > /dev/null || fail "a reader that went away cost the record"

# A file that may not grow is an error as well, and leaves no half of itself.
(ulimit -f 0; "$SINTER" show "$work/r.json" --table "$work/t.md" 2>&1 > /dev/null; echo "code $?") | cat > "$work/err"
grep -q 't.md: writing failed' "$work/err" && grep -q 'code 1' "$work/err" || fail "ulimit -f: $(cat "$work/err")"
[ ! -e "$work/t.md" ] || fail "half a table was left"
echo "streams are as they should be"
