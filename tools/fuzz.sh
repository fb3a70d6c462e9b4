#!/bin/sh
# Gives readers of files bytes that nobody would write, until one of them does something else than to read or to refuse
# them: libFuzzer, with the address and undefined-behaviour sanitizers, in build-fuzz. Files that failed lie there.
#
#   fuzz.sh SECONDS [READER…]    each of them for so long; all by default
set -eu
. "$(dirname -- "$0")/common.sh"
cd "$root"
seconds=${1:-600}
[ $# -eq 0 ] || shift
libfuzzer() { ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a 2>/dev/null | tail -n 1; }
[ -n "$(libfuzzer)" ] || install_packages fuzz libclang-rt-14-dev
mkdir -p build-fuzz
cmake -G Ninja -B build-fuzz -DSINTER_FUZZ="$(libfuzzer)" -DSINTER_CUDA=OFF -DSINTER_SANITIZE=address,undefined \
  -DSINTER_BENCH=OFF -DSINTER_EXAMPLES=OFF > build-fuzz/configure.log 2>&1 || { cat build-fuzz/configure.log; exit 2; }
ninja -C build-fuzz fuzz_readers
[ $# -gt 0 ] || set -- $(ls tests/fuzz/seeds)
failed=0
for reader in "$@"; do
  mkdir -p "build-fuzz/found/$reader"
  log=build-fuzz/found/$reader.log
  if SINTER_READER=$reader build-fuzz/tests/fuzz_readers -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 \
    -max_len=65536 -artifact_prefix="build-fuzz/$reader-" "build-fuzz/found/$reader" "tests/fuzz/seeds/$reader" \
    > "$log" 2>&1; then
    echo "$reader: clean, $(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log" | tail -n 1) files"
  else
    echo "$reader: FAILED"
    grep -E 'ERROR|SUMMARY|runtime error|terminate|Test unit written' "$log" | head -n 8
    failed=1
  fi
done
exit $failed
