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

gpu_memory() { nvidia_smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }

# The tests as commands, one to a line. Those of ranks, which are all on this GPU, run each by itself: one that fails
# takes its ranks with it.
commands() {
  tests="$1/tests/sinter_tests --gtest_filter=*Gpu*"
  if [ -z "$(gpu_name)" ] || ! cuda_built "$1"; then echo "$tests" && return; fi  # they say that they skip
  for backend in ipc nccl; do echo "sh tests/faults/faults_test.sh $backend"; done
  for part in 0 1 2 3; do echo "env GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$part $tests"; done
  rank_tests=$1/tests/sinter_rank_tests
  names=$("$1/sinter" launch -n 1 -- "$rank_tests" --gtest_list_tests |
          awk '/^[A-Z]/ { suite = $1 } /^  / { print suite $1 }')
  [ -n "$names" ] || echo "false the tests of ranks do not list themselves"
  for test in $names; do
    for ranks in 2 4; do echo "$1/sinter launch -n $ranks -- $rank_tests --gtest_filter=$test"; done
  done
}

# count WORD LOG: what GoogleTest's summaries of several programs say, added up.
count() { awk -v word="$1" '$0 ~ "^\\[ *" word " *\\] [0-9]+ tests?[.,]" { n += $4 } END { print n + 0 }' "$2"; }

# run_tests BUILD_DIR: sets passed, failed, skipped; prints each command as it ends, then all that they said.
run_tests() {
  log=$1/gpu-test.log logs=$1/gpu-test.logs held=$(gpu_memory)
  rm -rf "$logs" && mkdir -p "$logs"
  export SINTER_LOGS="$logs" SINTER_TEST_DEVICE=cuda SINTER="$1/sinter" FAULTY_RANK="$1/tests/faulty_rank"
  commands "$1" | xargs -P 8 -I {} sh -c '
    log=$(mktemp "$SINTER_LOGS/XXXXXX") && began=$(date +%s) && code=0
    { echo "[ RUN      ] {}" && {}; } > "$log" 2>&1 || code=$?
    case "$code {}" in
    "0 sh "*) echo "[  PASSED  ] 1 test." >> "$log" ;;
    "77 sh "*) echo "[  SKIPPED ] 1 test." >> "$log" ;;
    "0 "*) ;;
    *) echo "exit status $code" >> "$log" ;;
    esac
    echo "$code $(($(date +%s) - began)) s: {}"'
  cat "$logs"/* > "$log"
  if [ -n "$held" ]; then
    # The driver takes a moment to give back what a killed process held.
    for wait in 1 2 3 4 5; do
      left=$(($(gpu_memory) - held))
      [ $left -gt 100 ] || break
      sleep 1
    done
    if [ $left -gt 100 ]; then echo "exit status 1: $left MiB of GPU memory are left behind" >> "$log"; fi
  fi
  cat "$log"
  passed=$(count PASSED "$log") failed=$(count FAILED "$log") skipped=$(count SKIPPED "$log")
  # One that crashed has no summary.
  if grep -q '^exit status' "$log" && [ "$failed" -eq 0 ]; then failed=1; fi
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
