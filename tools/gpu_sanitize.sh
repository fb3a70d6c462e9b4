#!/bin/sh
# gpu_sanitize.sh BUILD_DIR [tool…]: the GPU tests under compute-sanitizer (memcheck, racecheck, initcheck).
# GPU_FILTER narrows the tests (a GoogleTest filter).
set -eu
. "$(dirname -- "$0")/common.sh"
sh "$root/tools/gpu_record.sh" gpu
build=$1; shift
sanitizer=$(find_tool compute-sanitizer /usr/local/cuda/bin) || {
  echo "gpu-sanitize: compute-sanitizer was not found (part of the CUDA toolkit)" >&2
  exit 2
}
code=0
for tool in ${*:-memcheck racecheck initcheck}; do
  echo "== compute-sanitizer --tool $tool =="
  start=$(date +%s)
  "$sanitizer" --tool "$tool" --error-exitcode 9 "$build/tests/sinter_tests" "--gtest_filter=${GPU_FILTER:-*Gpu*}" \
    --gtest_brief=1 || code=1
  echo "== $tool: $(($(date +%s) - start)) s =="
done
[ "$code" -eq 0 ] && echo "compute-sanitizer: clean" || echo "compute-sanitizer: ERRORS, see above"
exit "$code"
