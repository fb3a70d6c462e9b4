#!/bin/sh
# collect_results.sh BUILD_DIR OUT_DIR STEP…: the runs behind docs/results/. Each step writes its record (.json), table (.md)
# and, where there is something to see, plot (.svg).
#
#   ratios    forward+backward and whole step beside plain eager PyTorch, every size, bf16 and fp32
#   sweep     sizes × ctx 128…1024 × fp32, tf32, bf16 × all passes, beside the published figures
#   warmup    warm-up 0, 1, 2, 5, each in a fresh process, with the one-time costs
#   host      host cost of a recorded op beside the bare call (Google Benchmark)
#   cpu       whole step beside PyTorch on this machine's CPU, two threads
#   profile   kernel profile, sizes × ctx 128…1024 × fp32, bf16; one in full
#   memory    memory of sizes × ctx 128, 256, 512 × fp32, bf16 × forward, step; timelines of 2.7B
#   precision, doctor
set -eu
build=$1 out=$2
shift 2
mkdir -p "$out"
sinter=$build/sinter
record() { name=$1; shift; "$sinter" "$@" --json "$out/$name.json" --table "$out/$name.md"; }

for step in "$@"; do
  case $step in
  ratios)  # SIZES and DTYPES narrow it
    record ratios bench model --device cuda --size "${SIZES:-small,medium,large,xl,2.7B}" --dtype "${DTYPES:-bf16,fp32}" --pass forward-backward,step \
      --peer torch-plain --warmup 3 ;;
  sweep)
    record sweep bench model --device cuda --size small,medium,large,xl,2.7B --ctx 128,256,512,1024 --dtype fp32,tf32,bf16 \
      --pass forward,forward-backward,step --warmup 1 --steps 6 --published --plot "$out/sweep.svg" ;;
  warmup)
    record warmup bench model --device cuda --size small --dtype bf16 --warmup 0,1,2,5 --plot "$out/warmup.svg" ;;
  host)
    "$build/bench/sinter_bench" --benchmark_filter='bare|recorded|dispatch' --benchmark_out="$out/host.json" \
      --benchmark_out_format=json ;;
  cpu)
    record cpu bench model --device cpu --threads 2 --size tiny,mini --ctx 128 --pass step --peer torch-plain,torch-best \
      --python "${PYTHON:-python3}" ;;
  profile)
    record profile profile model --device cuda --size "${SIZES:-small,medium,large,xl,2.7B}" --ctx 128,256,512,1024 \
      --dtype fp32,bf16 --warmup 2 --steps 3
    "$sinter" profile model --device cuda --size small --dtype bf16 > "$out/small_bf16.txt" ;;
  memory)
    record memory memory model --device cuda --size "${SIZES:-small,medium,large,xl,2.7B}" --ctx 128,256,512 \
      --dtype fp32,bf16 --pass forward,step
    for dtype in fp32 bf16; do
      for pass in forward step; do
        "$sinter" memory model --device cuda --size 2.7B --dtype $dtype --pass $pass --plot "$out/2.7B_${dtype}_$pass.svg" \
          > "$out/2.7B_${dtype}_$pass.txt"
      done
    done ;;
  precision) record precision precision ;;
  doctor) "$sinter" doctor --json "$out/doctor.json" ;;
  *) echo "collect_results.sh: unknown step $step" >&2; exit 2 ;;
  esac
done
