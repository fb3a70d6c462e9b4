#!/bin/sh
# The main job on what this machine has: an eager and a compiled training step, side by side; then tiny learns made-up
# stories, evaluated on some that it is not trained on.
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
show() {  # show ARGUMENTS…: run sinter with them, and say so
  echo
  echo "\$ $build/sinter $*"
  "$build/sinter" "$@"
}
if [ -n "$(gpu_name)" ] && cuda_built "$build"; then
  set -- bench model --dtype bf16 --mode eager,compiled
else
  set -- bench model --size tiny --ctx 128 --mode eager,compiled
fi
code=0
show "$@" || code=$?
work=$build/demo
rm -rf "$work"
mkdir -p "$work"
if [ "$code" -eq 0 ] && ! have python3; then
  echo "demo: no training: python3, which makes up the stories, is not installed"
elif [ "$code" -eq 0 ]; then
  python3 tools/make_corpus.py "$work/stories.txt"
  show train --text "$work/stories.txt" --size tiny --ctx 128 --mode compiled --global-batch 8 --steps 150 --lr 1e-3 \
    --clip 1 --evaluate-every 50 --out "$work/run" --plot "$work/losses.html" || code=$?
  [ "$code" -ne 0 ] || show generate --checkpoint "$work/run" --prompt Once --tokens 120 \
    --temperature 0.7 || code=$?
fi
echo
echo "demo: the job took $(($(date +%s) - start)) s"
[ "$code" -eq 0 ] || exit "$code"
[ ! -e "$work/losses.html" ] || echo "demo: the losses as a picture: $work/losses.html"
cat <<END

Try next:
  $build/sinter bench model --size tiny,mini --ctx 128,256     sizes against context lengths
  $build/sinter profile model                                  where the time goes
  $build/sinter train --text YOUR.txt --steps 1000             a model of your own text
  $build/sinter memory model --predict --size 2.7B             on which GPUs would it fit?
  $build/sinter doctor                                         this machine: libraries, peaks, what is missing
END
