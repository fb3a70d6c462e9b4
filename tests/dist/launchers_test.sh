#!/bin/sh
# Ranks that something else has launched meet and compute the same: Open MPI's mpirun, torchrun, and "two hosts" on one
# machine. What is not installed is left out, visibly.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
failures=0
complain() { echo "FAILED: $*"; sed 's/^/    /' "$work/log"; failures=$((failures + 1)); }
tests="--gtest_color=no --gtest_filter=Collectives.ComeToWhatTheyShould:DataParallel.RanksStayTheSame"

if command -v mpirun >/dev/null; then
  mpirun --allow-run-as-root --oversubscribe -n 2 "$RANK_TESTS" $tests >"$work/log" 2>&1 || complain "mpirun"
  grep -q 'PASSED.* 2 tests' "$work/log" || complain "mpirun: not all tests"
  mpirun --allow-run-as-root --oversubscribe -n 3 "$SINTER" bench ddp --size tiny --ctx 16 --layers 1 --d-model 32 \
    --d-ff 32 --heads 2 --steps 2 --warmup 1 --strategy flat --json "$work/ddp.json" >"$work/log" 2>&1 ||
    complain "mpirun: bench ddp"
  grep -q '"ranks": 3' "$work/ddp.json" || complain "mpirun: bench ddp did not use its three ranks"
else
  echo "left out: mpirun (openmpi-bin) is not installed"
fi

# torch 1.13 under Python 3.11 does not find the member 0 of one of its own enumerations.
python=/usr/bin/python3
if $python -c 'import torch.distributed.run' 2>/dev/null; then
  $python - --nproc_per_node 2 --no_python "$RANK_TESTS" $tests >"$work/log" 2>&1 <<'PY' || complain "torchrun"
from torch.distributed.elastic.multiprocessing import api
if api.Std.from_str("0") is None:
    api.Std.from_str = classmethod(lambda cls, text: cls(int(text)))
from torch.distributed.run import main
main()
PY
  grep -q 'PASSED.* 2 tests' "$work/log" || complain "torchrun: not all tests"
else
  echo "left out: torchrun ($python has no torch)"
fi

# Hosts are told apart by SINTER_HOSTID: memory is shared inside one, and TCP goes between them.
small="--size tiny --ctx 16 --layers 1 --d-model 32 --d-ff 32 --heads 2 --steps 2 --warmup 1 --strategy flat"
two_hosts() { "$SINTER" launch -n 4 -- sh -c "SINTER_HOSTID=host\$((RANK / 2)) exec '$SINTER' $*"; }
if [ "${SINTER_GLOO:-OFF}" = ON ]; then
  two_hosts bench ddp $small --json "$work/ddp.json" >"$work/log" 2>&1 || complain "two hosts"
  grep -q 'hosts: 2 ranks on each of 2 hosts: shm inside' "$work/log" || complain "two hosts: auto takes another way"
  # An uneven number has no such structure.
  "$SINTER" launch -n 3 -- sh -c "SINTER_HOSTID=host\$((RANK / 2)) exec '$SINTER' bench ddp $small" >"$work/log" 2>&1 ||
    complain "two hosts of 2 and 1 ranks"
  grep -q 'gloo: ranks are on 2 hosts' "$work/log" || complain "2 and 1 ranks: auto does not take gloo"
  "$SINTER" launch -n 3 -- sh -c "SINTER_HOSTID=host\$((RANK / 2)) exec '$SINTER' bench ddp $small --backend hosts" \
    >"$work/log" 2>&1
  [ $? -eq 2 ] || complain "hosts of 2 and 1 ranks are not refused with 2"
  grep -q 'as many ranks' "$work/log" || complain "hosts of 2 and 1 ranks: no reason"
  both='Collectives.Come*:Collectives.Many*:Collectives.Sha*Whole:Collectives.Some*:*.EqualsOneProcess*:*.Tied*'
  "$SINTER" launch -n 4 -- sh -c "SINTER_HOSTID=host\$((RANK / 2)) exec '$RANK_TESTS' --gtest_filter='$both'" \
    >"$work/log" 2>&1 || complain "rank tests on two hosts"
  grep -q 'PASSED.* 8 tests' "$work/log" || complain "two hosts: not all tests"
  grep -q '"host": 1' "$work/ddp.json" || complain "two hosts: the record knows of one"
  two_hosts bench allreduce --mb 0.1 --steps 3 --json "$work/r.json" >"$work/log" 2>&1 ||
    complain "two hosts: all-reduce"
  grep -q '"hosts": 2' "$work/r.json" || complain "two hosts: all-reduce saw one"
fi
two_hosts bench ddp $small --backend shm >"$work/log" 2>&1
[ $? -eq 2 ] || complain "shm between two hosts is not refused with 2"
grep -q 'share no memory; use --backend gloo' "$work/log" || complain "shm between two hosts: no remedy"
[ $failures -eq 0 ] && echo ok
exit $((failures > 0))
