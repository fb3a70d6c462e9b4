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
#   attention        batch 8; naive against flash from ctx 128 to 65536; the leaderboard's shape
#   attention_peers  ours beside PyTorch's cuDNN, FA2 and memory-efficient kernels, over the shapes people compare
#   compiled         eager and compiled steps of every size, passes one by one, naive and flash attention, where the time goes
#   compiled_peers   compiled steps beside PyTorch's CUDA graphs (it compiles for minutes)
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
  attention)
    record attention_batch8 bench attention --device cuda --plot "$out/attention_batch8.svg"
    record attention_sweep bench attention --device cuda --sweep --warmup 2 --steps 20 --seconds 0.1 --plot "$out/attention_sweep.svg"
    record attention_leaderboard bench attention --device cuda --leaderboard --attention flash,portable --deterministic --seconds 0.5 ;;
  attention_peers)
    beside() {  # beside NAME PEERS FLAGS…
      name=$1 peers=$2
      shift 2
      record "attention_$name" bench attention --device cuda --peer "$peers" --python "${PYTHON:-python3}" --warmup 5 --steps 40 \
        --seconds 0.25 "$@"
    }
    long="--batch 2 --ctx 16384 --dtype bf16" short="--batch 16 --ctx 2048 --dtype bf16"
    beside leaderboard_peers cudnn,flash --leaderboard
    beside d128_long cudnn,flash $long --heads 16 --head-dim 128 --attention flash,portable
    beside d64_long cudnn,flash $long --heads 32 --head-dim 64 --attention flash,portable
    beside d128_short cudnn,flash $short --heads 16 --head-dim 128 --attention flash,portable
    beside d64_short cudnn,flash $short --heads 32 --head-dim 64 --attention flash,portable
    beside one_head cudnn,flash --batch 1 --ctx 128,256,512,1024,8192,32768,65536 --head-dim 16,32,64,128 --dtype bf16 --attention flash
    beside fp32 mem_eff --batch 1 --ctx 8192,16384,32768,65536 --head-dim 16,32,64,128 --dtype fp32 --attention flash
    beside full cudnn --batch 2 --heads 16 --ctx 16384 --head-dim 128 --dtype bf16 --attention flash --full --pass forward ;;
  compiled)
    sizes=${SIZES:-small,medium,large,xl,2.7B}
    record sizes_bf16 bench model --device cuda --size "$sizes" --dtype bf16 --mode eager,compiled --warmup 4
    record sizes_fp32_tf32 bench model --device cuda --size "$sizes" --dtype fp32,tf32 --mode compiled --warmup 3 --steps 4
    record b8 bench model --device cuda --size small,xl,2.7B --dtype bf16 --batch 8 --ctx 1024 --mode eager,compiled --warmup 3 --steps 8
    record gpt2 bench model --device cuda --size small --d-ff 2048 --vocab 50304 --dtype bf16 --batch 32 --ctx 1024 --mode eager,compiled --warmup 3
    record clipped bench model --device cuda --size "$sizes" --dtype bf16 --mode compiled --clip 1 --warmup 4
    record passes bench model --device cuda --size small,xl --dtype bf16 --ablate --warmup 4
    for dtype in bf16 fp32; do
      record attention_$dtype bench attention --device cuda --attention naive,flash --mode eager,compiled --dtype $dtype --warmup 3 --steps 20 --seconds 0.2
    done
    for size in small xl; do "$sinter" profile model --device cuda --size $size --dtype bf16 --mode compiled > "$out/profile_$size.txt"; done ;;
  compiled_peers)  # SIZES narrows it
    record compiled_peers bench model --device cuda --size "${SIZES:-small,medium,large,xl,2.7B}" --dtype bf16 --pass forward,step --mode compiled \
      --peer torch-compiled --python "${PYTHON:-python3}" --warmup 4 --steps 20 ;;
  precision) record precision precision ;;
  doctor) "$sinter" doctor --json "$out/doctor.json" ;;
  *) echo "collect_results.sh: unknown step $step" >&2; exit 2 ;;
  esac
done
