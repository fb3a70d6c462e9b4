#!/bin/sh
# sinter launch: what ranks are told, who writes where, and that no rank outlives one that fails.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
unset SINTER_THREADS OMP_NUM_THREADS SINTER_SECRET
fail() { echo "FAILED: $*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cat "$1")"; }

# launched CODE SECONDS ARGUMENTS…: launch ends with that code, in that time, and leaves nothing behind.
launched() {
  code=$1 most=$2
  shift 2
  got=0 start=$(date +%s)
  MARK=$work "$SINTER" launch "$@" > "$work/out" 2> "$work/err" || got=$?
  took=$(($(date +%s) - start))
  [ "$got" -eq "$code" ] || fail "launch $*: exit code $got, not $code: $(cat "$work/err")"
  [ "$took" -le "$most" ] || fail "launch $*: took $took s, more than $most"
  left=$(grep -lsF "MARK=$work" /proc/[0-9]*/environ || true)
  [ -z "$left" ] || fail "launch $*: left $left"
}

# Rank 0 has stdout to itself; the others' lines carry their rank, whichever stream they were written to.
launched 0 20 -n 3 -- sh -c 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR"; echo oh >&2'
[ "$(cat "$work/out")" = "0/3 0/3 127.0.0.1" ] || fail "rank 0 wrote $(cat "$work/out")"
for line in '[rank 1] 1/3 1/3 127.0.0.1' '[rank 2] 2/3 2/3 127.0.0.1' '[rank 1] oh'; do has "$work/err" "$line"; done
launched 0 20 -n 2 -- sh -c 'printf "no newline"'
has "$work/err" '[rank 1] no newline'
launched 0 20 -n 2 -- sh -c 'echo "$MASTER_PORT" > "$MARK/port.$RANK"'
cmp "$work/port.0" "$work/port.1" || fail "the ranks have different ports"
[ "$(cat "$work/port.0")" -gt 0 ] || fail "no port"
cores=$(nproc)
launched 0 20 -n "$cores" -- sh -c 'echo "$SINTER_THREADS $OMP_NUM_THREADS"'
has "$work/out" '1 1'
launched 0 20 -n 1 --threads 3 --master-port 12345 -- sh -c 'echo "$SINTER_THREADS $MASTER_PORT"'
has "$work/out" '3 12345'
SINTER_THREADS=2 "$SINTER" launch -n 2 -- sh -c 'echo "$SINTER_THREADS"' > "$work/out" 2> /dev/null
has "$work/out" 2

# All ranks of a launch know its name and its secret, which nobody can guess; one that is set already is kept.
told='echo "$TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE $SINTER_SECRET" > "$MARK/told.$RANK"'
launched 0 20 -n 2 -- sh -c "$told"
cmp "$work/told.0" "$work/told.1" || fail "the ranks have different jobs or secrets"
grep -qE '^launch-[0-9a-f]{32} False [0-9a-f]{32}$' "$work/told.0" || fail "ranks are told $(cat "$work/told.0")"
mv "$work/told.0" "$work/told.before"
launched 0 20 -n 1 -- sh -c "$told"
! cmp -s "$work/told.0" "$work/told.before" || fail "two launches have one secret"
export SINTER_SECRET=mine TORCHELASTIC_USE_AGENT_STORE=True
launched 0 20 -n 2 -- sh -c 'echo "$TORCHELASTIC_USE_AGENT_STORE $SINTER_SECRET"'
has "$work/out" 'False mine'
unset SINTER_SECRET TORCHELASTIC_USE_AGENT_STORE
# Or the first line of stdin, on no command line. Ranks have an empty stdin, and the rest of ours stays where it was.
seen='echo "$SINTER_SECRET|$(cat)|$(cat /proc/[0-9]*/cmdline 2> /dev/null | tr "\\0" "\\n" | grep -c "psst[ ]two")"'
printf 'psst two\nthe rest\n' > "$work/secret"
{
  launched 0 20 -n 2 --secret-stdin -- sh -c "$seen"
  read -r rest
} < "$work/secret"
[ "$(cat "$work/out")" = 'psst two||0' ] || fail "with --secret-stdin rank 0 saw $(cat "$work/out")"
has "$work/err" '[rank 1] psst two||0'
[ "$rest" = 'the rest' ] || fail "--secret-stdin left $rest"
printf 'no newline' > "$work/secret"
launched 0 20 --secret-stdin -- sh -c 'echo "$SINTER_SECRET"' < "$work/secret"
has "$work/out" 'no newline'

# A command of sinter's own is run by this very program, under that name; options after -- are its own.
launched 0 60 -n 2 -- bench model --device cpu --size tiny --ctx 16 --dry-run --json "$work/r.json"
has "$work/r.json" '"command": "bench model"'
has "$work/err" '[rank 1] '
"$SINTER" launch -n 1 -- bench model --device cpu --size tiny --steps 100000 > /dev/null 2>&1 &
launcher=$!
for i in 1 2 3 4 5 6 7 8 9 10; do
  child=$(cat /proc/$launcher/task/$launcher/children 2> /dev/null || true)
  [ -z "$child" ] || break
  sleep 0.2
done
name=$(tr '\0' ' ' < /proc/${child% }/cmdline)
[ "$name" = "sinter bench model --device cpu --size tiny --steps 100000 " ] || fail "the child is called $name"
# Killed without a word, it takes its ranks along.
kill -9 $launcher
wait $launcher 2> /dev/null || true
for i in 1 2 3 4 5 6 7 8 9 10; do
  [ -d /proc/${child% } ] || break
  sleep 0.2
done
[ ! -d /proc/${child% } ] || fail "a rank outlived the launcher"

# One that fails ends all within five seconds, and is named; also where the others do not listen.
launched 5 5 -n 3 -- sh -c '[ $RANK = 1 ] && exit 1; sleep 100'
has "$work/err" 'rank 1 ended with exit code 1'
launched 5 5 -n 3 -- sh -c '[ $RANK = 2 ] && kill -9 $$; sleep 100'
has "$work/err" 'rank 2 was ended by signal 9 (Killed)'
launched 5 5 -n 2 -- sh -c '[ $RANK = 0 ] && kill -SEGV $$; sleep 100'
has "$work/err" 'rank 0 was ended by signal 11'
launched 5 5 -n 2 -- sh -c 'trap "" TERM; [ $RANK = 1 ] && exit 7; sleep 100 & wait; sleep 100'
has "$work/err" 'rank 1 ended with exit code 7'
launched 5 5 -n 2 -- sh -c '[ $RANK = 1 ] && exit 1; kill -STOP $$'
has "$work/err" 'rank 1 ended with exit code 1'
launched 5 5 -n 2 -- "$work/no-such-program"
has "$work/err" 'No such file'
# The others have time to say what they know, and are not called the reason, also not when they end first.
launched 5 5 -n 3 -- sh -c '[ $RANK = 1 ] && exit 1; sleep 0.5; echo "rank 1 has gone" >&2; exit 3'
has "$work/err" '[rank 2] rank 1 has gone'
has "$work/err" 'sinter launch: rank 1 ended with exit code 1'
[ "$(grep -c 'sinter launch' "$work/err")" -eq 1 ] || fail "several reasons: $(cat "$work/err")"
launched 4 5 -n 2 -- sh -c '[ $RANK = 0 ] && exit 5; sleep 0.5; exit 4'
has "$work/err" 'sinter launch: rank 1 ended with exit code 4'
launched 2 20 -n 2 -- bench model --size huge
has "$work/err" 'huge'

# Ctrl-C and SIGTERM.
for signal in INT TERM; do
  code=0
  MARK=$work timeout --foreground --preserve-status -s $signal 1 "$SINTER" launch -n 2 -- sleep 100 2> "$work/err" || \
      code=$?
  [ "$code" -eq 130 ] || fail "SIG$signal ends launch with $code, not 130"
  left=$(grep -lsF "MARK=$work" /proc/[0-9]*/environ || true)
  [ -z "$left" ] || fail "SIG$signal: left $left"
done

# Ranks that end well when they are asked to are no failure.
code=0
timeout --foreground --preserve-status -s TERM 1 "$SINTER" launch -n 2 -- sh -c 'trap "exit 0" TERM; sleep 100 & wait' \
  2> "$work/err" || code=$?
[ "$code" -eq 0 ] || fail "SIGTERM to ranks that end with 0: $code"

# All ranks are started again when one has died, with another place to meet; not when it would fail again.
again='echo "$MASTER_PORT $TORCHELASTIC_RUN_ID" >> "$MARK/starts.$RANK"; [ $(wc -l < "$MARK/starts.$RANK") -ge 3 ]'
launched 0 20 -n 2 --restarts 5 -- sh -c "$again || { [ \$RANK = 1 ] && kill -9 \$\$; sleep 100; }"
has "$work/err" 'starting all ranks again (2 of 5)'
places=$(sort -u "$work/starts.0")
[ "$(echo "$places" | wc -l)" -eq 3 ] || fail "ranks meet where those before them did: $places"
launched 5 20 -n 2 --restarts 1 -- sh -c '[ $RANK = 1 ] && exit 9; sleep 100'
[ "$(grep -c 'again' "$work/err")" -eq 1 ] || fail "--restarts 1: $(cat "$work/err")"
launched 2 20 -n 1 --restarts 5 -- sh -c 'exit 2'
! grep -q again "$work/err" || fail "bad usage is tried again"

# A launcher on each host. This ssh runs the command here, as a host of that name, and hangs up when it is killed.
mkdir "$work/bin"
cat > "$work/bin/ssh" <<'SSH'
#!/bin/sh
echo "ssh $*" >> "$MARK/ssh"
while [ "$1" != BatchMode=yes ]; do shift; done
[ "$2" != lost ] || { echo "ssh: lost: no route" >&2; exit 255; }
SINTER_HOSTID=$2 exec sh -c "$3"
SSH
chmod +x "$work/bin/ssh"
path=$PATH
export PATH="$work/bin:$PATH"
place='$SINTER_HOSTID $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK'
told="echo \"$place \$MASTER_ADDR \$TORCHELASTIC_RUN_ID \$1\""
launched 0 20 -n 2 --hosts localhost,me@other -- sh -c "$told" sh "it's so"
has "$work/out" "localhost 0/4 0/2 0 localhost launch it's so"
has "$work/err" "[rank 1] localhost 1/4 1/2 0 localhost launch it's so"
has "$work/err" "[rank 2] me@other 2/4 0/2 1 localhost launch it's so"
has "$work/err" "[rank 3] me@other 3/4 1/2 1 localhost launch it's so"
launched 0 20 -n 1 --hosts a,b -- sh -c 'echo "$SINTER_SECRET $MASTER_PORT" > "$MARK/told.$RANK"'
cmp "$work/told.0" "$work/told.1" || fail "two hosts have different secrets or ports"
! grep -q "$(cut -d ' ' -f 1 "$work/told.0")" "$work/ssh" || fail "the secret stands in ssh's command line"
launched 5 10 -n 2 --hosts a,b -- sh -c '[ $RANK = 3 ] && kill -9 $$; sleep 100'
has "$work/err" 'rank 3 was ended by signal 9'
[ "$(grep -c 'sinter launch' "$work/err")" -eq 1 ] || fail "several reasons: $(cat "$work/err")"
launched 4 10 -n 1 --hosts a,b -- sh -c '[ $RANK = 1 ] && exit 4; sleep 100'
launched 5 10 -n 1 --hosts a,lost -- sleep 100
has "$work/err" 'host lost ended with exit code 255'
has "$work/err" 'no route'
launched 0 60 -n 1 --hosts a,b -- bench model --device cpu --size tiny --ctx 16 --dry-run --json "$work/r.json"
# Ranks of all hosts may save what they have when they are asked to stop.
code=0
MARK=$work timeout --foreground --preserve-status -s TERM 1 "$SINTER" launch -n 1 --hosts a,b -- \
  sh -c 'trap "echo saved > $MARK/saved.$RANK; exit 0" TERM; sleep 100 & wait' 2> "$work/err" || code=$?
[ "$code" -eq 0 ] || fail "SIGTERM to ranks of two hosts that end with 0: $code"
[ -e "$work/saved.0" ] && [ -e "$work/saved.1" ] || fail "ranks of other hosts were not asked to stop"
export PATH="$path"
launched 0 20 -n 1 --nodes 3 --node 2 --master-port 29511 --secret-stdin -- sh -c 'echo "$RANK/$WORLD_SIZE"' <<END
psst
END
has "$work/err" '[rank 2] 2/3'

refused() {  # refused WORDS ARGUMENTS…
  words=$1
  shift
  launched 2 5 "$@"
  has "$work/err" "$words"
}
refused '-n must be between 1 and 1024' -n 0 -- true
refused '-n must be between 1 and 1024' -n 5000 -- true
refused 'not a whole number' -n two -- true
refused 'launch needs' -n 2
refused 'not an IPv4 address' --master-addr nowhere -- true
refused 'between 1 and 65535' --master-port 70000 -- true
refused '--restarts must be between 0 and 1000' --restarts -1 -- true
refused '--node 2: there are 2' --nodes 2 --node 2 -- true
refused 'need the same --master-addr, --master-port and SINTER_SECRET' --nodes 2 -- true
refused 'no host; give names as ssh takes them' --hosts -oProxyCommand=x -- true
refused 'a is there twice' --hosts a,a -- true
refused 'leave out --nodes' --hosts a --nodes 2 --master-port 1 -- true
refused 'standard input is empty; put a long random text there' --secret-stdin -- true < /dev/null
echo | refused 'standard input is empty; put a long random text there' --secret-stdin -- true
printf '\0zero\n' | refused 'without zero bytes' --secret-stdin -- true
refused 'no text of at most 2048 bytes' --secret-stdin -- true < /dev/zero
export SINTER_SECRET=mine
echo theirs | refused 'SINTER_SECRET is set as well; unset it' --secret-stdin -- true
unset SINTER_SECRET
echo "launch is as it should be"
