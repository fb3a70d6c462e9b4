#!/bin/sh
# run_tests.sh BUILD_DIR [ctest arguments]: runs CTest and ends with a summary in test cases, not CTest entries, and
# with what is known of the GPU tests. Failures in their record are failures here; a STALE record is only said.
set -eu
. "$(dirname -- "$0")/common.sh"
build=$1; shift
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
start=$(date +%s)
code=0
ctest --test-dir "$build" -j "$jobs" --no-tests=error "$@" || code=$?
seconds=$(($(date +%s) - start))

log=$build/Testing/Temporary/LastTest.log
[ "$code" -eq 0 ] || awk -f "$root/tools/failures.awk" "$log"
# GoogleTest prints "[  FAILED  ] Suite.Name (3 ms)" once per test, and again without a time in its own summary.
count() { grep -c "^\[ *$1 *\] .* ([0-9]* ms)\$" "$log" || true; }
echo
echo "== summary: $build, $seconds s =="
echo "test cases: $(count OK) passed, $(count FAILED) failed, $(count SKIPPED) skipped"
skipped=$(sed -n 's/^\[  SKIPPED \] \([^ ]*\) ([0-9]* ms)$/\1/p' "$log" | grep -v Gpu | sort -u || true)
if [ -n "$skipped" ]; then
  echo "skipped, GPU tests apart:"
  echo "$skipped" | head -n 20 | sed 's/^/  /'
fi
if ! grep -q '^SINTER_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
  gpu_code=0
  gpu=$(sh "$root/tools/gpu_record.sh" status "$build") || gpu_code=$?
  echo "$gpu"
  if [ "$code" -eq 0 ] && [ "$gpu_code" -ne 0 ]; then
    echo "tests: FAILED (on a GPU: see its record)"
    exit "$gpu_code"
  fi
fi
if [ "$code" -eq 0 ]; then
  case ${gpu:-} in
  *"GPU record: STALE"*) echo "tests: PASSED; GPU record: STALE" ;;
  *) echo "tests: PASSED" ;;
  esac
else
  echo "tests: FAILED (a process that died counts none of its cases):"
  sed 's/^[0-9]*:/  /' "$build/Testing/Temporary/LastTestsFailed.log" 2>/dev/null || true
fi
exit "$code"
