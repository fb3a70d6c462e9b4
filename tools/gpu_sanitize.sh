#!/bin/sh
# gpu_sanitize.sh BUILD_DIR [tool…]: the GPU tests under compute-sanitizer (memcheck, racecheck, initcheck).
# GPU_FILTER narrows the tests (a GoogleTest filter). The tests are dealt to several processes, because the tools keep one
# CPU core each busy. API errors are not reported: a test asks for more memory than there is, on purpose.
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
for tool in ${*:-memcheck racecheck initcheck}; do
  case $tool in memcheck) options="--report-api-errors no" ;; *) options= ;; esac
  start=$(date +%s)
  i=0
  while [ "$i" -lt "$shards" ]; do
    log=$build/sanitize-$tool-$i.log
    { GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$sanitizer" --tool "$tool" $options --error-exitcode 9 \
        "$build/tests/sinter_tests" "--gtest_filter=${GPU_FILTER:-*Gpu*}" --gtest_brief=1; echo "exit status $?"; } \
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
  echo "compute-sanitizer $tool: $passed tests passed, $(($(date +%s) - start)) s"
done
[ "$code" -eq 0 ] && echo "compute-sanitizer: clean" || echo "compute-sanitizer: ERRORS, see above"
exit "$code"
