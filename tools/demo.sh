#!/bin/sh
# The main job on what this machine has. `make demo` has set up and built before.
set -eu
. "$(dirname -- "$0")/common.sh"
build=${1:-build}
start=$(date +%s)
if [ -n "$(gpu_name)" ] && cuda_built "$build"; then
  set -- bench model
else
  set -- bench model --size tiny --ctx 128
fi
echo
echo "\$ $build/sinter $*"
code=0
"$build/sinter" "$@" || code=$?
echo
echo "demo: the job took $(($(date +%s) - start)) s"
[ "$code" -eq 0 ] || exit "$code"
cat <<END

Try next:
  $build/sinter bench model --size tiny,mini --ctx 128,256     sizes against context lengths
  $build/sinter bench model --dtype fp32,bf16                  what 16-bit arithmetic buys (a GPU shows it best)
  $build/sinter precision                                      why norms and sums stay in fp32
  $build/sinter doctor                                         this machine: libraries, peaks, what is missing
END
