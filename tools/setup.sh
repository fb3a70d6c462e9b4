#!/bin/sh
# Finds what sinter needs, by presence and not by package name, and installs what is missing with apt-get. With nothing
# missing it needs neither root nor network. Optional things are reported with what their absence disables.
#
#   setup.sh             check, install what is missing
#   setup.sh --check     check only; 2 if something required is missing
#   setup.sh --optional  install the optional Debian/Ubuntu packages too
set -u
. "$(dirname -- "$0")/common.sh"
mode=${1:-}

missing=""   # Debian/Ubuntu package names
need() { missing="$missing $1"; echo "missing: $2 ($1)"; }

# at_least HAVE WANT: compares dotted versions.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# ---- required ----
cxx=${CXX:-}
[ -n "$cxx" ] || { have g++ && cxx=g++; } || { have c++ && cxx=c++; } || { have clang++ && cxx=clang++; } || cxx=""
if [ -z "$cxx" ]; then
  need g++ "a C++20 compiler"
elif ! echo 'int main() {}' | $cxx -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
  need g++ "a C++20 compiler: $cxx does not take -std=c++20"
fi
if have cmake; then
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  at_least "$version" 3.22 || need cmake "CMake 3.22 or later: found $version"
else
  need cmake "CMake"
fi
have ninja || have ninja-build || need ninja-build "Ninja"

# Headers: one run of the preprocessor answers for all. Prefixes in CMAKE_PREFIX_PATH count, as they do for CMake.
prefixes=$(echo "${CMAKE_PREFIX_PATH:-}" | tr ':;' '  ')
includes=""; folders=""
for prefix in $prefixes; do
  includes="$includes -I$prefix/include -I$prefix/include/openblas"
  folders="$folders $prefix/lib $prefix/lib64"
done
for folder in /usr/local/include /usr/include /usr/include/"$(uname -m)"-linux-gnu; do
  for variant in openblas-pthread openblas openblas-openmp openblas-serial; do
    [ -d "$folder/$variant" ] && includes="$includes -I$folder/$variant"
  done
done
probe() {
  for header in fmt/format.h CLI/CLI.hpp nlohmann/json.hpp gtest/gtest.h benchmark/benchmark.h openblas_config.h \
                xxhash.h gloo/allreduce.h; do
    printf '#if __has_include(<%s>)\nfound %s\n#endif\n' "$header" "$header"
  done
}
found=""
# shellcheck disable=SC2086
[ -n "$cxx" ] && found=$(probe | $cxx -std=c++20 $includes -E -P -x c++ - 2>/dev/null)
header() { echo "$found" | grep -q "$1"; }
library() {  # library NAME: libNAME.so or .a where the linker or a prefix has it
  for kind in so a; do
    for folder in $folders; do
      [ -e "$folder/lib$1.$kind" ] && return 0
    done
    [ -n "$cxx" ] && case $($cxx -print-file-name="lib$1.$kind") in /*) return 0 ;; esac
    for variant in openblas-pthread openblas-openmp openblas-serial; do
      [ -e "/usr/lib/$(uname -m)-linux-gnu/$variant/lib$1.$kind" ] && return 0
    done
  done
  return 1
}
{ header openblas_config.h && library openblas; } || need libopenblas-dev "OpenBLAS"
header fmt/format.h || need libfmt-dev "fmt"
header CLI/CLI.hpp || need libcli11-dev "CLI11"
header nlohmann/json.hpp || need nlohmann-json3-dev "nlohmann json"
header xxhash.h || need libxxhash-dev "xxHash"
{ header gtest/gtest.h && library gtest; } || need libgtest-dev "GoogleTest"
# Only `make bench` stands on it, so its absence alone does not call for root.
bench_missing=""
{ header benchmark/benchmark.h && library benchmark; } || bench_missing=libbenchmark-dev

# ---- install ----
optional=""
[ "$mode" = --optional ] && optional="libgloo-dev clang-format clang-tidy ccache"
if [ -n "$missing$optional" ] && [ "$mode" != --check ]; then
  # shellcheck disable=SC2086
  install_packages setup $missing $bench_missing || exit 2
  # Optional ones, one by one: one that cannot be had does not stop the others. Gloo comes along with any installation.
  for package in ${optional:-libgloo-dev}; do
    apt_install "$package" >/dev/null 2>&1 || echo "setup: optional package $package could not be installed; going on"
  done
  [ -n "$cxx" ] || cxx=g++
  found=$(probe | $cxx -std=c++20 $includes -E -P -x c++ - 2>/dev/null)
elif [ -n "$missing" ]; then
  exit 2
fi

# ---- optional: reported, never a failure ----
note() { printf '  %-22s %s\n' "$1" "$2"; }
echo "setup: everything required is here. Optional:"
nvcc=$(find_tool nvcc "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin /opt/cuda/bin) || nvcc=""
version=""
[ -z "$nvcc" ] || version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
if [ -n "$version" ]; then
  note "CUDA toolkit" "$version ($nvcc)"
else
  note "CUDA toolkit" "absent: built for the CPU only (nvcc 12.0 or later enables --device cuda)"
fi
gpu=$(gpu_name)
if [ -n "$gpu" ]; then
  note "GPU" "$gpu, driver $(nvidia_smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
else
  note "GPU" "absent, or no driver: --device cuda and the GPU tests are disabled here"
fi
header benchmark/benchmark.h && bench_missing=""
[ -z "$bench_missing" ] || note "Google Benchmark" "absent: \`make bench\` is disabled (libbenchmark-dev)"
if header gloo/allreduce.h; then
  note "Gloo" "found"
else
  note "Gloo" "absent: no collectives between CPU processes (libgloo-dev)"
fi
for tool in clang-format clang-tidy; do
  if have $tool || have $tool-14; then note $tool "found"
  else note $tool "absent: \`make lint\` leaves it out ($tool)"; fi
done
if have ccache; then note "ccache" "found"; else note "ccache" "absent: rebuilds from scratch take longer (ccache)"; fi
# Whether python has torch is asked without importing it, which would take seconds.
python=${PYTHON:-python3}
if ! have "$python"; then
  note "python3 with torch" "absent: --peer (comparison with PyTorch) is disabled"
elif "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
  note "python3 with torch" "found"
else
  note "python3 with torch" "$python has no torch: --peer (comparison with PyTorch) is disabled"
fi
