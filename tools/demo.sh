#!/bin/sh
# The main job on what this machine has: an eager and a compiled training step, side by side.
#
#   demo.sh cuda BUILD_DIR   how to configure: without a GPU to run on, CUDA is left out of a new build
#   demo.sh run BUILD_DIR    run it; `make demo` has set up and built before
set -eu
. "$(dirname -- "$0")/common.sh"
build=$2
if [ "$1" = cuda ]; then
  [ -n "$(gpu_name)" ] || cuda_built "$build" || echo -DSINTER_CUDA=OFF
  exit 0
fi

start=$(date +%s)
if [ -n "$(gpu_name)" ] && cuda_built "$build"; then
  set -- bench model --dtype bf16 --mode eager,compiled
else
  set -- bench model --size tiny --ctx 128 --mode eager,compiled
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
  $build/sinter profile model                                  where the time goes
  $build/sinter memory model --predict --size 2.7B             on which GPUs would it fit?
  $build/sinter doctor                                         this machine: libraries, peaks, what is missing
END
