#!/bin/sh
# Every way in which a rank can fail, injected: the others name rank, step and collective, launch returns 5 within 5 s
# (a hang: soon after its time-out), and nothing is left behind. With SINTER_TEST_DEVICE=cuda ranks are on the GPU.
#
#   faults_test.sh [BACKEND]    with that one; 77 where it is not to be had
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "FAILED: $*"; sed 's/^/    /' "$work/log"; failures=$((failures + 1)); }
says() { grep -q "$1" "$work/log" || complain "$name: nobody says '$1'"; }
backends=shm
[ "${SINTER_GLOO:-OFF}" = ON ] && backends="shm gloo"
if [ "${SINTER_TEST_DEVICE:-cpu}" = cuda ]; then
  backends="ipc nccl"
  if "$SINTER" launch -n 2 -- "$FAULTY_RANK" nccl 9 1 kill 2>&1 | grep -q 'NCCL was not found'; then
    backends=ipc; echo "without nccl, which was not found"
  fi
fi
[ $# -eq 0 ] || case " $backends " in *" $1 "*) backends=$1 ;; *) echo "no $1 here"; exit 77 ;; esac
first=${backends%% *}

# launch RANKS BACKEND RANK STEP FAULT CODE MOST_SECONDS [TIMEOUT [SHARD]]
launch() {
  name="$5 of rank $3 in step $4 ($2, $1 ranks)"
  began=$(($(date +%s%N) / 1000000))
  "$SINTER" launch -n "$1" -- "$FAULTY_RANK" "$2" "$3" "$4" "$5" ${8:-} ${9:-} >"$work/log" 2>&1
  code=$?
  ended=$(($(date +%s%N) / 1000000))
  failed=$(sed -n 's/.*fails at \([0-9]*\)$/\1/p' "$work/log" | head -n 1)
  took=$((ended - ${failed:-$began}))
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
launch 3 $first 1 0 kill 5 5
says 'rank 1 was ended by signal 9'
launch 3 $first 0 0 exit 5 5
says 'rank 0 ended with exit code 7'
# Nothing goes wrong.
launch 3 $first 7 2 kill 0 20
says 'rank 2 has finished'
[ $failures -eq 0 ] && echo "ok"
exit $((failures > 0))
