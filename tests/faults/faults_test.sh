#!/bin/sh
# Every way in which a rank can fail, injected: the others name rank, step and collective, launch returns 5 within 5 s
# (a hang: soon after its time-out), and nothing is left behind.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "FAILED: $*"; sed 's/^/    /' "$work/log"; failures=$((failures + 1)); }
says() { grep -q "$1" "$work/log" || complain "$name: nobody says '$1'"; }
backends=shm
[ "${SINTER_GLOO:-OFF}" = ON ] && backends="shm gloo"

# launch RANKS BACKEND RANK STEP FAULT CODE MOST_SECONDS [TIMEOUT [SHARD]]
launch() {
  name="$5 of rank $3 in step $4 ($2, $1 ranks)"
  began=$(date +%s%N)
  "$SINTER" launch -n "$1" -- "$FAULTY_RANK" "$2" "$3" "$4" "$5" ${8:-} ${9:-} >"$work/log" 2>&1
  code=$?
  took=$((($(date +%s%N) - began) / 1000000))
  [ $code -eq "$6" ] || complain "$name: exit code $code, not $6"
  [ $took -le $(($7 * 1000)) ] || complain "$name: $took ms"
  for pid in $(sed -n 's/.*is process \([0-9]*\)/\1/p' "$work/log"); do
    [ ! -e "/proc/$pid" ] || complain "$name: process $pid is left"
  done
}

for backend in $backends; do
  for fault in kill segv exit throw; do
    launch 3 $backend 1 2 $fault 5 5
    says 'rank 1 '
    says 'rank 1 has ended in step 2, .*collective [0-9]* (all_reduce of'
    [ $fault != throw ] || says 'rank 1\] error: an exception, as asked for'
    [ $fault != throw ] || says 'rank 1 ended with exit code 1'
  done
  launch 3 $backend 1 2 inside 5 5
  says 'rank 1 has ended in step 2, in collective [0-9]* (all_reduce of'
  # The time-out, and what every rank did last.
  for fault in stop hang; do
    launch 3 $backend 2 2 $fault 5 8 2
    says 'have not come within 2 s'
    says 'rank 0: step 2, '
    says 'rank 2: step 2, '
  done
  # While parameters are gathered, and while gradients are scattered.
  launch 3 $backend 1 2 inside 5 5 60 parameters
  says 'rank 1 has ended in step 2, in collective [0-9]* (all_gather of'
  launch 3 $backend 1 2 kill 5 5 60 parameters
  says 'rank 1 has ended in step 2, .*collective [0-9]* ('
  launch 3 $backend 2 2 hang 5 8 2 parameters
  says 'have not come within 2 s'
  says 'rank 2: step 2, '
  launch 2 $backend 0 2 mismatch 5 5
  says 'ranks disagree about collective'
  says 'rank 0: all_reduce of 7 fp32'
  launch 3 $backend 1 3 diverge 4 5
  says 'replicas have diverged .*: after step 4, .* of rank 1 differs'
done
# Before the ranks have met.
launch 3 shm 1 0 kill 5 5
says 'rank 1 was ended by signal 9'
launch 3 shm 0 0 exit 5 5
says 'rank 0 ended with exit code 7'
# Nothing goes wrong.
launch 3 shm 7 2 kill 0 20
says 'rank 2 has finished'
[ $failures -eq 0 ] && echo "ok"
exit $((failures > 0))
