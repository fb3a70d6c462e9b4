#!/bin/sh
# The GPU tests and their record. CI has no GPU, so the last run on a machine that has one is written down with a hash of
# the device sources; when they change, the record is STALE and says so at every `make test`.
#
#   gpu_record.sh hash               the hash of the device sources
#   gpu_record.sh status BUILD_DIR   what `make test` prints about GPU tests
#   gpu_record.sh run BUILD_DIR      run the GPU tests and write the record (`make gpu-test`); 2 without a GPU
#   gpu_record.sh ctest BUILD_DIR    run them without a record; 77 when they were skipped
#
# SINTER_GPU_RECORD names another file for the record, SINTER_COMMIT the commit in a copy without .git.
set -eu
. "$(dirname -- "$0")/common.sh"
cd "$root"
record=${SINTER_GPU_RECORD:-docs/results/gpu-test.json}

device_hash() {
  {
    find src/backend/cuda src/backend/generated src/ops -type f 2>/dev/null || true
    find src/core -type f -name '*.h' 2>/dev/null || true
    find src/backend -maxdepth 1 -type f \( -name '*.h' -o -name '*.def' \) 2>/dev/null || true
  } | LC_ALL=C sort | while IFS= read -r file; do sha256sum "$file"; done | sha256sum | cut -d ' ' -f 1
}

field() { sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$record"; }

commit() {
  if [ -n "${SINTER_COMMIT:-}" ]; then
    echo "$SINTER_COMMIT"
  else
    git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown
  fi
}

# run_tests BUILD_DIR: sets passed, failed, skipped, code; prints the run.
run_tests() {
  log=$1/gpu-test.log
  code=0
  { "$1/tests/sinter_tests" '--gtest_filter=*Gpu*' 2>&1 || echo "exit status $?"; } | tee "$log"
  code=$(sed -n '$s/^exit status //p' "$log")
  code=${code:-0}
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log" | tail -n 1)
  failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) tests\{0,1\}, listed below.*/\1/p' "$log" | tail -n 1)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\{0,1\}, listed below.*/\1/p' "$log" | tail -n 1)
  passed=${passed:-0} failed=${failed:-0} skipped=${skipped:-0}
  if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi  # it crashed: no summary
}

refuse_without_gpu() {
  if [ -z "$(gpu_name)" ]; then
    echo "gpu-test: this machine has no usable NVIDIA GPU (nvidia-smi names none); run it on one that has." >&2
    exit 2
  fi
}

case ${1:-} in
hash) device_hash ;;

gpu) refuse_without_gpu ;;  # asked before the build, so as not to build in vain

status)
  gpu=$(gpu_name)
  if [ -n "$gpu" ] && cuda_built "$2"; then
    here="GPU tests: ran here on $gpu"
  elif [ -n "$gpu" ]; then
    here="GPU tests: SKIPPED here (built without CUDA: $(cuda_why "$2"))"
  else
    here="GPU tests: SKIPPED here (no GPU)"
  fi
  if [ ! -f "$record" ]; then
    echo "$here; no record yet (\`make gpu-test\` on a machine with a GPU writes $record)"
    exit 0
  fi
  echo "$here; last record: $(field status) on $(field gpu) at $(field date)" \
       "($(field passed) passed, $(field failed) failed)"
  if [ "$(field hash)" = "$(device_hash)" ]; then
    echo "GPU record: current (device sources unchanged since)"
  else
    echo "GPU record: STALE: device sources changed since; run \`make gpu-test\` on a machine with a GPU"
  fi
  ;;

ctest)
  run_tests "$2"
  [ "$failed" -eq 0 ] || exit 1
  [ "$passed" -gt 0 ] || exit 77
  ;;

run)
  refuse_without_gpu
  if ! cuda_built "$2"; then
    echo "gpu-test: $2 was built without CUDA ($(cuda_why "$2"))." >&2
    exit 2
  fi
  hash=$(device_hash)
  run_tests "$2"
  if [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]; then status=PASSED; else status=FAILED; fi
  mkdir -p "$(dirname "$record")"
  cat > "$record" <<END
{
  "schema": "sinter.gpu-test.v1",
  "status": "$status",
  "hash": "$hash",
  "commit": "$(commit)",
  "date": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "gpu": "$(gpu_name)",
  "driver": "$(nvidia_smi --query-gpu=driver_version --format=csv,noheader | head -n 1)",
  "cuda": "$(cuda_why "$2" | tr ',' ';')",
  "passed": $passed,
  "failed": $failed,
  "skipped": $skipped,
  "command": "make gpu-test"
}
END
  echo "GPU tests: $status on $(gpu_name): $passed passed, $failed failed, $skipped skipped; wrote $record"
  [ "$status" = PASSED ]
  ;;

*)
  echo "usage: gpu_record.sh hash | gpu | status BUILD_DIR | run BUILD_DIR | ctest BUILD_DIR" >&2
  exit 2
  ;;
esac
