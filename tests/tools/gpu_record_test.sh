#!/bin/sh
# The record of the GPU tests: its hash follows sources and tests and nothing else; another state is STALE, and failures
# in it fail a run. In a small tree with stand-ins for nvidia-smi, ctest and the tests.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset SINTER_GPU_RECORD SINTER_COMMIT || true
fail() { echo "FAILED: $*"; exit 1; }

tree=$work/tree
mkdir -p "$tree/tools" "$tree/src/compile/passes" "$tree/include" "$tree/tests/compile" "$tree/cmake" "$work/bin"
for tool in common.sh gpu_record.sh run_tests.sh failures.awk; do
  cp "$SINTER_SOURCE_DIR/tools/$tool" "$tree/tools"
done
for file in src/compile/passes/fold.cpp include/sinter.h tests/compile/fold_test.cpp cmake/Cuda.cmake CMakeLists.txt \
            CMakePresets.json; do
  echo "$file" > "$tree/$file"
done

program() { cat > "$1" && chmod +x "$1"; }
program "$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in *memory.used*) echo 0 ;; *) echo "Some GPU" ;; esac
END
program "$work/bin/ctest" <<'END'
#!/bin/sh
while [ "$1" != --test-dir ]; do shift; done
mkdir -p "$2/Testing/Temporary" && echo "[       OK ] Suite.Name (3 ms)" > "$2/Testing/Temporary/LastTest.log"
END
build=$tree/build
mkdir -p "$build/tests" "$tree/tests/faults"
# The tests of ranks: what the launcher runs, with 2 and with 4 of them, and the faults.
program "$build/sinter" <<'END'
#!/bin/sh
case "$*" in
*--gtest_list_tests) printf 'Suite.\n  One\n  Two\n' ;;
*--gtest_filter=Suite.*) echo "[  PASSED  ] 1 test." ;;
*) exit 1 ;;
esac
END
echo : > "$tree/tests/faults/faults_test.sh"
printf 'SINTER_CUDA_BUILT:INTERNAL=ON\nSINTER_CUDA_WHY:INTERNAL=nvcc\n' > "$build/CMakeCache.txt"
PATH=$work/bin:$PATH

hash() { sh "$tree/tools/gpu_record.sh" hash; }
changes() {  # changes FILE: the hash changes with it, and comes back
  before=$(hash)
  echo more >> "$tree/$1"
  [ "$(hash)" != "$before" ] || fail "the hash does not follow $1"
  echo "$1" > "$tree/$1"
  [ "$(hash)" = "$before" ] || fail "the hash of the same files differs"
}
for file in src/compile/passes/fold.cpp include/sinter.h tests/compile/fold_test.cpp cmake/Cuda.cmake CMakeLists.txt; do
  changes "$file"
done
before=$(hash)
mv "$tree/src/compile/passes/fold.cpp" "$tree/src/compile/fold.cpp"
[ "$(hash)" != "$before" ] || fail "the hash does not follow a file that moves"
mv "$tree/src/compile/fold.cpp" "$tree/src/compile/passes/fold.cpp"
echo output > "$build/output"
mkdir -p "$tree/tests/browser/node_modules" "$tree/docs" "$tree/.git"
echo package > "$tree/tests/browser/node_modules/package"
echo text > "$tree/docs/text.md"
[ "$(hash)" = "$before" ] || fail "the hash follows what is no source"
cp -R "$tree" "$work/copy" && rm -rf "$work/copy/.git" "$work/copy/build"
[ "$(sh "$work/copy/tools/gpu_record.sh" hash)" = "$before" ] || fail "a copy without .git or build has another hash"

status() {  # status CODE TEXT: what it exits with and says
  code=0
  sh "$tree/tools/gpu_record.sh" status "$build" > "$work/out" || code=$?
  [ "$code" -eq "$1" ] || { cat "$work/out"; fail "status exits with $code, not $1"; }
  grep -qF -- "$2" "$work/out" || { cat "$work/out"; fail "status does not say $2"; }
}
run_tests() {  # run_tests CODE TEXT: the same of `make test`
  code=0
  sh "$tree/tools/run_tests.sh" "$build" > "$work/out" || code=$?
  [ "$code" -eq "$1" ] || { cat "$work/out"; fail "the run exits with $code, not $1"; }
  tail -n 1 "$work/out" | grep -qF -- "$2" || { cat "$work/out"; fail "the run does not end with $2"; }
}
record() { SINTER_COMMIT=0123456 sh "$tree/tools/gpu_record.sh" run "$build" > "$work/out"; }

status 0 "no record yet"
run_tests 0 "tests: PASSED"

program "$build/tests/sinter_tests" <<'END'
#!/bin/sh
echo "[  PASSED  ] 3 tests."
END
record || fail "tests that passed are recorded as failures"
grep -q '"passed": 18,' "$tree/docs/results/gpu-test.json" || \
  fail "3 tests in each of 4 parts, 2 with 2 and with 4 ranks, 2 of faults"
echo "exit 1" > "$tree/tests/faults/faults_test.sh"
record && fail "faults that are not survived are recorded as a pass"
echo : > "$tree/tests/faults/faults_test.sh"
record || fail "what passes again is recorded as a failure"
status 0 "GPU record: current"
run_tests 0 "tests: PASSED"
echo more >> "$tree/src/compile/passes/fold.cpp"
status 0 "GPU record: STALE"
run_tests 0 "GPU record: STALE"

program "$build/tests/sinter_tests" <<'END'
#!/bin/sh
echo "[  PASSED  ] 11 tests."
echo "[  FAILED  ] 1 test, listed below:"
exit 1
END
record && fail "a failure is recorded as a pass"
status 1 "GPU record: FAILED"
run_tests 1 "tests: FAILED"
echo more >> "$tree/src/compile/passes/fold.cpp"  # a failure stays one at another state
run_tests 1 "tests: FAILED"

echo "not a record" > "$tree/docs/results/gpu-test.json"
status 1 "GPU record: FAILED"
echo "gpu record: ok"
