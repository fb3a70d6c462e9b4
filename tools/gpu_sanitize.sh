#!/bin/sh
# gpu_sanitize.sh BUILD_DIR [tool…]: the GPU tests under compute-sanitizer (memcheck, racecheck, initcheck), and once
# with every allocation full of NaNs (poison). GPU_FILTER narrows the tests (a GoogleTest filter). The tests are dealt
# to several processes, because the tools keep one CPU core each busy.
#
# memcheck: API errors are not reported: a test asks for more memory than there is, on purpose.
# racecheck: the tests without products. On cuBLASLt's Hopper kernels it takes minutes a launch, or stops with an error
# of its own; ours run in the others.
# racecheck leaves out attention. Hopper's kernels meet at mbarriers and exchange tiles through TMA and wgmma, which
# it does not follow: for those there are repeats with injected delays (-DSINTER_INJECT_DELAYS). The portable ones
# need a build with CUDAFLAGS=-DSINTER_RACECHECK (see pair_arrive in attention_portable.cuh): in such a build, name
# them in GPU_FILTER and they are run.
# initcheck does not see what a bulk copy (TMA) writes (docs/results/initcheck_tma.txt). Hopper's attention kernels
# write their results so, and cuBLASLt's 16-bit ones: they, and the tests that train in 16 bits, are left out. `poison`
# covers them, and more: under it, whatever a kernel reads that nobody wrote is a NaN. The profiler's tests are left out
# of all: the tools and CUPTI exclude each other.
set -eu
. "$(dirname -- "$0")/common.sh"
sh "$root/tools/gpu_record.sh" gpu
build=$1; shift
sanitizer=$(find_tool compute-sanitizer /usr/local/cuda/bin) || {
  echo "gpu-sanitize: compute-sanitizer was not found (part of the CUDA toolkit)" >&2
  exit 2
}
shards=${JOBS:-$(nproc)}
[ "$shards" -le 8 ] || shards=8
code=0
for tool in ${*:-poison memcheck racecheck initcheck}; do
  run="$sanitizer --tool $tool --error-exitcode 9"
  filter=${GPU_FILTER:-*Gpu*}
  case $filter in *-*) filter=$filter:*ProfilerGpu* ;; *) filter=$filter-*ProfilerGpu* ;; esac
  case $tool in
    poison) run="env SINTER_POISON=1" ;;
    memcheck) run="$run --report-api-errors no" ;;
    racecheck) filter="$filter:*matmul*:*linear*:*Products*:*TrainerGpu*:*TrainGpu*:*TransformerGpu*"
               filter="$filter:*PredictedMemoryGpu*:*Tf32Gpu*:*EventGpu*:*AttentionGpu*best*:*ttention_*"
               filter="$filter:*ModelAttention*"
               case ${GPU_FILTER:-} in *AttentionGpu*) ;; *) filter="$filter:*AttentionGpu*" ;; esac ;;
    initcheck) filter="$filter:*TrainerGpu*:*TrainGpu*:*TransformerGpu*:*PredictedMemoryGpu*"
               filter="$filter:*AttentionGpu*best*:*ttention_*:*ModelAttention*" ;;
  esac
  start=$(date +%s)
  i=0
  while [ "$i" -lt "$shards" ]; do
    log=$build/sanitize-$tool-$i.log
    { GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i $run "$build/tests/sinter_tests" "--gtest_filter=$filter" \
        --gtest_brief=1; echo "exit status $?"; } \
      > "$log" 2>&1 &
    i=$((i + 1))
  done
  wait
  passed=0
  i=0
  while [ "$i" -lt "$shards" ]; do
    log=$build/sanitize-$tool-$i.log
    [ "$(sed -n '$s/^exit status //p' "$log")" = 0 ] || { code=1; cat "$log"; }
    n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log")
    passed=$((passed + ${n:-0}))
    i=$((i + 1))
  done
  echo "$tool: $passed tests passed, $(($(date +%s) - start)) s"
done
[ "$code" -eq 0 ] && echo "gpu-sanitize: clean" || echo "gpu-sanitize: ERRORS, see above"
exit "$code"
