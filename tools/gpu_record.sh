#!/bin/sh
# The GPU tests and their record. CI has no GPU, so the last run on a machine that has one is written down with a hash
# of all that its tests were made from. At any other state the record is STALE, and `make test` says so; recorded
# failures fail it.
#
#   gpu_record.sh hash               the hash of what the GPU tests are made from
#   gpu_record.sh status BUILD_DIR   what `make test` prints about GPU tests; 1 where the record holds failures
#   gpu_record.sh run BUILD_DIR      run the GPU tests and write the record (`make gpu-test`); 2 without a GPU
#   gpu_record.sh ctest BUILD_DIR    run them without a record; 77 when they were skipped
#
# SINTER_GPU_RECORD names another file for the record, SINTER_COMMIT the commit in a copy without .git.
set -eu
. "$(dirname -- "$0")/common.sh"
cd "$root"
record=${SINTER_GPU_RECORD:-docs/results/gpu-test.json}

# GPU tests include rooms from core up to lab, so it is all of the sources, the tests and what builds them; cli and api,
# which they do not reach, are not worth an exception. Paths count too: a file that moves changes the hash.
source_hash() {
  find src include tests cmake CMakeLists.txt CMakePresets.json -name node_modules -prune -o -type f \
    -exec sha256sum {} + | LC_ALL=C sort | sha256sum | cut -d ' ' -f 1
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
hash) source_hash ;;

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
  if [ "$(field hash)" = "$(source_hash)" ]; then
    echo "GPU record: current (sources and tests unchanged since)"
  else
    echo "GPU record: STALE: sources or tests changed since; run \`make gpu-test\` on a machine with a GPU"
  fi
  if [ "$(field status)" != PASSED ]; then
    echo "GPU record: FAILED: $record holds failures; mend them and run \`make gpu-test\` on a machine with a GPU"
    exit 1
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
  hash=$(source_hash)
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
