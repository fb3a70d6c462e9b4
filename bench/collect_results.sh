#!/bin/sh
# collect_results.sh BUILD_DIR OUT_DIR STEP…: the runs behind docs/results, by the names its pages use. OUT_DIR gets the
# folders that docs/results has; copy what is to be kept and run bench/results_tables.py, which makes the tables.
#
#   compiled         eager and compiled steps of every size, precision and batch, passes one by one, naive and flash
#                    attention, where the time goes
#   compiled_peers   compiled steps beside torch.compile with reduce-overhead (it compiles for minutes)
#   two_commits      OLD=BINARY and the build's in turns: compiled and eager steps; the pages keep the new ones
#   ratios           forward+backward and whole step beside plain eager PyTorch, every size, bf16 and fp32
#   sweep            sizes × ctx 128…1024 × fp32, tf32, bf16 × all passes, beside the published figures
#   warmup           warm-up 0, 1, 2, 5, each in a fresh process, with the one-time costs
#   host             host cost of a recorded op beside the bare call (Google Benchmark)
#   attention        naive against flash from ctx 128 to 65536; the leaderboard's shape; in a model
#   attention_peers  ours beside PyTorch's cuDNN, FA2 and memory-efficient kernels, over the shapes people compare
#   profile          kernel profile, sizes × ctx 128…1024 × fp32, bf16; one in full
#   memory           memory of sizes × ctx 128, 256, 512 × fp32, bf16 × forward, step; a timeline of 2.7B
#   cpu              eager and compiled steps on this machine's CPU, three runs; and with an OpenBLAS that is too old
#   cpu_peers        the same beside PyTorch on the CPU
#   cpu_attention    naive against flash on this machine's CPU, two runs
#   ranks            sums over ranks, and a step by strategy; beside PyTorch's Gloo and DistributedDataParallel
#   shard            a step and its memory by what ranks divide; predictions for an H200 (no GPU needed)
#   ranks_torch      a step of four ranks of THREADS beside PyTorch's DistributedDataParallel, also compiled
#   gpu_ddp          a step by strategy, two ranks that share a GPU; also under MPS; what one rank takes
#   gpu_ddp_xl       the same of xl
#   gpu_ddp_peers    beside PyTorch's DistributedDataParallel and FSDP2 on the same GPU
#   gpu_shard        a step and its memory by what ranks divide, on a GPU
#   gpu_shard_peaks  memory alone, two and four ranks, eager and compiled
#   gpu_shard_limit  2.7B on four ranks of 30 GiB
#   gpu_sums         sums over 2, 4, 6 ranks that share a GPU, by every backend; ipc also under MPS
#   gpu_train        500 steps of training beside bench model's
#   plan_ranks       steps of RANKS ranks (2) of THREADS on CPUs, beside their predictions
#   gpu_plan         steps of shapes nobody chose, beside their predictions; SEED draws them
#   precision, doctor
#
# SIZES and DTYPES narrow a step, THREADS are those of the cpu steps (2), PYTHON has torch.
set -eu
build=$1 out=$2
shift 2
sinter=$build/sinter
sizes=${SIZES:-small,medium,large,xl,2.7B} threads=${THREADS:-2} python=${PYTHON:-python3}
here=$(dirname -- "$0")
without_fold=alone+constants+dce+cse+flash+causal+heads+loss+join+fuse
without_fold=$without_fold+rows+beta+early+gathers+lanes+gradients+plan+graph

record() {  # record FOLDER/NAME COMMAND…
  name=$1
  shift
  mkdir -p "$(dirname "$out/$name")"
  "$sinter" "$@" --json "$out/$name.json"
}
model() { name=$1; shift; record "$name" bench model --device cuda "$@"; }
attention() { name=$1; shift; record "h200-attention/$name" bench attention --device cuda "$@"; }
beside() {  # beside NAME PEERS FLAGS…
  name=$1 peers=$2
  shift 2
  attention "$name" --peer "$peers" --python "$python" --warmup 5 --steps 40 --seconds 0.25 "$@"
}

turns() {  # turns NAME COMMAND…: OLD's and this build's
  name=$1
  shift
  python3 "$here/compare_binaries.py" "$OLD" "$sinter" --turns 3 --out "$out/$name/now" -- "$@"
}

for step in "$@"; do
  case $step in
  compiled)
    model h200-compiled/sizes_bf16 --size "$sizes" --dtype bf16 --mode eager,compiled --warmup 4
    model h200-compiled/sizes_fp32_tf32 --size "$sizes" --dtype fp32,tf32 --mode compiled --warmup 3 --steps 4
    model h200-compiled/clipped --size "$sizes" --dtype bf16 --mode compiled --clip 1 --warmup 4
    model h200-compiled/b8 --size small,xl,2.7B --dtype bf16 --batch 8 --ctx 1024 --mode eager,compiled --warmup 3 \
      --steps 8
    model h200-compiled/gpt2 --size small --d-ff 2048 --vocab 50304 --dtype bf16 --batch 32 --ctx 1024 \
      --mode eager,compiled --warmup 3
    model h200-compiled/passes --size small,xl --dtype bf16 --ablate --warmup 4
    for dtype in bf16 fp32; do
      record h200-compiled/attention_$dtype bench attention --device cuda --attention naive,flash \
        --mode eager,compiled --dtype $dtype --warmup 3 --steps 20 --seconds 0.2
    done
    for size in small xl; do
      record h200-compiled/profile_$size profile model --device cuda --size $size --dtype bf16 --mode compiled
    done ;;
  compiled_peers)
    model h200-compiled/compiled_peers --size "$sizes" --dtype bf16 --pass forward,step --mode compiled \
      --peer torch-compiled --python "$python" --warmup 4 --steps 20 ;;
  two_commits)
    turns h200-compiled bench model --device cuda --size "$sizes" --dtype bf16 --mode compiled --warmup 5 --steps 30
    turns h200-eager bench model --device cuda --size small,2.7B --dtype bf16 --mode eager --warmup 5 --steps 40 ;;
  ratios)
    model h200-eager/ratios --size "$sizes" --dtype "${DTYPES:-bf16,fp32}" --pass forward-backward,step \
      --peer torch-plain --attention naive --python "$python" --warmup 3 ;;
  sweep)
    model h200-eager/sweep --size "$sizes" --ctx 128,256,512,1024 --dtype "${DTYPES:-fp32,tf32,bf16}" \
      --pass forward,forward-backward,step --attention naive --warmup 1 --steps 6 --published ;;
  warmup)
    model h200-eager/warmup --size small --dtype bf16 --attention naive --warmup 0,1,2,5 ;;
  host)
    mkdir -p "$out/h200-eager"
    "$build/bench/sinter_bench" --benchmark_filter='bare|recorded|dispatch' \
      --benchmark_out="$out/h200-eager/host_cost.json" --benchmark_out_format=json ;;
  attention)
    attention sweep --sweep --warmup 2 --steps 20 --seconds 0.1
    attention leaderboard --leaderboard --attention flash,portable --deterministic --seconds 0.5
    for dtype in bf16 fp32; do
      model h200-attention/model_$dtype --size "$sizes" --ctx 128,256,512,1024 --dtype $dtype --attention naive,flash \
        --warmup 2 --steps 8
    done ;;
  attention_peers)
    long="--batch 2 --ctx 16384 --dtype bf16 --attention flash,portable"
    short="--batch 16 --ctx 2048 --dtype bf16 --attention flash,portable"
    beside leaderboard_peers cudnn,flash --leaderboard
    beside d128_long cudnn,flash $long --heads 16 --head-dim 128
    beside d64_long cudnn,flash $long --heads 32 --head-dim 64
    beside d128_short cudnn,flash $short --heads 16 --head-dim 128
    beside d64_short cudnn,flash $short --heads 32 --head-dim 64
    beside one_head cudnn,flash --batch 1 --ctx 128,256,512,1024,8192,32768,65536 --head-dim 16,32,64,128 --dtype bf16 \
      --attention flash
    beside fp32 mem_eff --batch 1 --ctx 8192,16384,32768,65536 --head-dim 16,32,64,128 --dtype fp32 --attention flash
    beside full cudnn --batch 2 --heads 16 --ctx 16384 --head-dim 128 --dtype bf16 --attention flash --full \
      --pass forward ;;
  profile)
    record h200-profile/profile profile model --device cuda --size "$sizes" --ctx 128,256,512,1024 --dtype fp32,bf16 \
      --attention naive --warmup 2 --steps 3
    "$sinter" profile model --device cuda --size small --dtype bf16 --attention naive \
      > "$out/h200-profile/small_bf16.txt" ;;
  memory)
    record h200-memory/memory memory model --device cuda --size "$sizes" --ctx 128,256,512 --dtype fp32,bf16 \
      --attention naive --pass forward,step
    "$sinter" memory model --device cuda --size 2.7B --dtype bf16 --attention naive \
      --plot "$out/h200-memory/2.7B_bf16_step.svg" ;;
  cpu)
    for run in 1 2 3; do
      record cpu-compiled/two_threads.$run bench model --device cpu --threads "$threads" --size tiny,mini --ctx 128 \
        --mode eager,compiled --warmup 3 --steps 20
    done
    export OPENBLAS_CORETYPE=Prescott
    record cpu-compiled/old_openblas bench model --device cpu --threads "$threads" --size tiny --ctx 128 \
      --dtype fp32,bf16 --mode eager,compiled --warmup 3 --steps 30
    unset OPENBLAS_CORETYPE ;;
  cpu_peers)
    record cpu-compiled/cpu bench model --device cpu --threads "$threads" --size tiny,mini --ctx 128 \
      --mode eager,compiled --pass step --peer torch-best --python "$python" --warmup 3 ;;
  cpu_attention)
    for run in 1 2; do
      record cpu-compiled/attention.$run bench attention --device cpu --batch 1 --heads 4 --ctx 512,1024,2048 \
        --head-dim 64,128 --dtype fp32,bf16 --attention naive,flash --warmup 3 --steps 20 --seconds 0.5
    done ;;
  ranks)
    step="--size mini --ctx 128 --warmup 2 --steps 20"
    record ranks/allreduce bench allreduce --ranks 2,4,6 --mb 1,10,100,1000 --backend shm,gloo
    record ranks/allreduce_torch bench allreduce --ranks 2,4 --mb 10,100 --backend shm,gloo --peer torch-gloo \
      --python "$python" --turns 10
    record ranks/ddp_2_ranks bench ddp --ranks 2 $step --mode eager,compiled --bucket-mb 1,10,25,100 --turns 5
    record ranks/ddp_torch bench ddp --ranks 2 $step --mode compiled --strategy none,flat,bucketed --turns 10 \
      --peer torch-none,torch-ddp --python "$python"
    record ranks/ddp_1_rank bench ddp --ranks 1 --backend shm --size tiny --ctx 128 --mode eager,compiled \
      --strategy none,bucketed --warmup 2 --steps 80 --turns 20 ;;
  shard)
    record ranks/shard_2_ranks bench shard --ranks 2 --size mini --ctx 128 --mode eager,compiled --warmup 1 \
      --steps 15 --turns 5
    record ranks/shard_bf16 bench shard --ranks 2,4 --size mini --ctx 128 --dtype bf16 --mode eager,compiled \
      --warmup 1 --steps 1 --turns 1
    predict="memory model --predict --device cuda --card H200-141 --largest 1 --dtype bf16"
    levels=none,optimizer,gradients,parameters
    record ranks/shard_medium $predict --size medium --mode eager,compiled --ranks 2 --shard parameters
    record ranks/shard_large $predict --size large --mode eager,compiled --ranks 2 --shard $levels
    record ranks/shard_2.7B $predict --size 2.7B --mode compiled --ranks 4 --shard $levels
    record ranks/shard_8B $predict --mode compiled --d-model 4096 --d-ff 14336 --layers 32 --heads 32 --kv-heads 8 \
      --vocab 128256 --rope-theta 500000 --ctx 4096 --batch 1 --ranks 8 --shard $levels ;;
  ranks_torch)
    step="--size mini --ctx 128 --warmup 2 --mode compiled"
    record ranks/ddp_torch_4 bench ddp --ranks 4 --threads "$threads" $step --steps 40 --turns 10 \
      --strategy none,flat,bucketed --peer torch-none,torch-ddp --python "$python"
    record ranks/ddp_torch_4_compiled bench ddp --ranks 4 --threads "$threads" $step --steps 20 --turns 2 \
      --strategy bucketed --peer torch-ddp-compiled --python "$python" ;;
  gpu_ddp)
    step="bench ddp --device cuda --ranks 2 --dtype bf16 --warmup 4 --turns 2"
    record h200-ranks/ddp_medium $step --size medium --mode eager,compiled --bucket-mb 25,100,1000 --steps 10
    record h200-ranks/ddp_medium_mps $step --size medium --mode compiled --bucket-mb 25,1000 --steps 20 --mps
    model h200-ranks/one_rank --size medium --dtype bf16 --mode compiled --passes $without_fold --warmup 4 --steps 60 ;;
  gpu_ddp_xl)
    record h200-ranks/ddp_xl bench ddp --device cuda --ranks 2 --dtype bf16 --warmup 3 --size xl --mode compiled \
      --strategy none,naive,flat,bucketed --bucket-mb 100,1000 --steps 6 --turns 2 ;;
  gpu_ddp_peers)
    record h200-ranks/ddp_torch bench ddp --device cuda --ranks 2 --dtype bf16 --size medium --mode compiled \
      --strategy none,bucketed --bucket-mb 1000 --warmup 2 --steps 6 --turns 1 --peer torch-ddp,torch-fsdp \
      --python "$python" ;;
  gpu_shard)
    record h200-ranks/shard_large bench shard --device cuda --dtype bf16 --mode compiled --warmup 4 --ranks 2 \
      --size large --steps 10 --turns 2 ;;
  gpu_shard_peaks)
    record h200-ranks/shard_medium bench shard --device cuda --dtype bf16 --mode eager,compiled --warmup 1 \
      --ranks 2,4 --size medium --steps 3 --turns 1 ;;
  gpu_shard_limit)
    record h200-ranks/shard_2.7B bench shard --device cuda --dtype bf16 --mode compiled --warmup 1 --ranks 4 \
      --size 2.7B --shard none,parameters --memory-limit 30 --steps 4 --turns 1 ;;
  gpu_sums)
    sums="bench allreduce --device cuda --ranks 2,4,6 --mb 1,10,100,1000 --steps 5 --seconds 0.1"
    record h200-ranks/sums_mps $sums --backend ipc --mps
    record h200-ranks/sums $sums --backend ipc,shm,gloo,nccl ;;
  gpu_train)
    model h200-ranks/train_bench --size small --dtype bf16 --mode compiled --warmup 10 --steps 200
    python3 "$here/../tools/make_corpus.py" "$out/corpus.txt"
    record h200-ranks/train train --device cuda --text "$out/corpus.txt" --size small --vocab 10000 --ctx 256 \
      --dtype bf16 --mode compiled --steps 500 --validation 0 --log "$out/h200-ranks/train.jsonl" ;;
  plan_ranks)
    ranks="--device cpu --ranks ${RANKS:-2}" plan=$out/plan
    steps="$ranks --threads $threads --mode eager,compiled --warmup 2 --steps 10 --turns 2"
    record plan/ranks_alone bench ddp $steps --size tiny,mini --ctx 64,128 --strategy none
    "$sinter" plan calibrate --record "$plan/ranks_alone.json" --name "CPU, threads of a rank: $threads" \
      --out "$plan/ranks_machine.json"
    record plan/ranks_network bench allreduce $ranks --mb 0.1,1,10,100 --backend shm,gloo
    for backend in shm gloo; do
      record plan/ranks_ddp_$backend bench ddp $steps --backend $backend --size mini --ctx 128 --bucket-mb 1,25
      record plan/ranks_shard_$backend bench shard $steps --backend $backend --size mini --ctx 128
    done
    taken=$plan/ranks_ddp_shm.json,$plan/ranks_ddp_gloo.json,$plan/ranks_shard_shm.json,$plan/ranks_shard_gloo.json
    record plan/ranks plan validate --record "$taken" --machine "$plan/ranks_machine.json" \
      --network "$plan/ranks_network.json" ;;
  gpu_plan)
    record plan/h200_random plan validate --random 20 --seed "$SEED" --machine h200-measured ;;
  precision) record h200-eager/precision precision ;;
  doctor) record h200-eager/doctor doctor ;;
  *) echo "collect_results.sh: unknown step $step" >&2; exit 2 ;;
  esac
done
