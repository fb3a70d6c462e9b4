#!/bin/sh
# Bad input is refused before any work: the right exit code, one line on stderr that names the cause and the remedy, no
# C++ names, and nothing on stdout.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# refused CODE 'words the message must have, | between them' arguments…
refused() {
  code=$1 words=$2
  shift 2
  "$SINTER" "$@" > "$work/out" 2> "$work/err"
  got=$?
  problem=
  [ "$got" -eq "$code" ] || problem="exit code $got, not $code"
  [ "$(wc -l < "$work/err")" -eq 1 ] || problem="$problem; stderr is not one line"
  [ ! -s "$work/out" ] || problem="$problem; stdout is not empty"
  grep -qE 'std::|terminate|what\(\)|sinter::' "$work/err" && problem="$problem; C++ names"
  old_ifs=$IFS
  IFS='|'
  for word in $words; do
    grep -qF -- "$word" "$work/err" || problem="$problem; no '$word'"
  done
  IFS=$old_ifs
  if [ -n "$problem" ]; then
    echo "FAILED: sinter $*: $problem"
    sed 's/^/    /' "$work/err"
    failures=$((failures + 1))
  fi
}

cpu="bench model --device cpu"
refused 2 'huge|tiny, mini, small' $cpu --size huge
refused 2 'heads 7|256' $cpu --size tiny --heads 7
refused 2 'odd|heads' $cpu --d-model 36 --d-ff 64 --layers 1 --heads 4
refused 2 'ctx' $cpu --size tiny --ctx 0
refused 2 'batch' $cpu --size tiny --batch 0
refused 2 'vocab' $cpu --size tiny --vocab 0
refused 2 'layers' $cpu --size tiny --layers -1
refused 2 'dtype|fp8|bf16' $cpu --size tiny --dtype fp8
refused 2 'tf32|fp32' $cpu --size tiny --dtype tf32
refused 2 'pass|sideways' $cpu --size tiny --pass sideways
refused 2 'attention|sparse|portable' $cpu --size tiny --attention sparse
refused 2 'attention portable|CUDA' $cpu --size tiny --attention portable
refused 2 'attention tiled|CPU' memory model --predict --size small --attention tiled
refused 2 'attention flash|128|256|naive' memory model --predict --size small --heads 3 --attention flash
refused 2 'kv-heads 3|heads 8' $cpu --size tiny --kv-heads 3
refused 2 'kv-heads' $cpu --size tiny --kv-heads 0
refused 2 'peer|kv-heads' $cpu --size tiny --kv-heads 2 --peer torch-plain
refused 2 'device|tpu|cpu, cuda' bench model --device tpu
for device in cuda: cuda:x cuda:-1 cuda:0,1 cuda:1x cuda:99999 cuda1; do
  for command in 'bench model' 'bench attention' 'profile model' 'profile attention' 'memory model' 'compile model' \
      precision; do
    refused 2 "device $device|cuda:0" $command --device $device
  done
done
refused 2 'device cpu:1|one CPU|--threads' bench model --device cpu:1
refused 2 'steps' $cpu --size tiny --steps 0
refused 2 'warmup' $cpu --size tiny --warmup -1
refused 2 'threads' $cpu --size tiny --threads 0
for command in 'bench model' 'profile model' 'memory model' 'compile model'; do
  refused 2 "threads 9999|this process may use|SINTER_THREADS" $command --device cpu --size tiny --threads 9999
done
refused 2 'accumulate' $cpu --size tiny --accumulate 0
refused 2 'accumulate|pass step|forward' $cpu --size tiny --accumulate 2 --pass step,forward
refused 2 'peer|accumulate 2' $cpu --size tiny --accumulate 2 --peer torch-best
refused 2 'accumulate' compile model --size tiny --accumulate 0
refused 2 'no-tune|CUDA' $cpu --size tiny --no-tune
refused 2 'peer|flax' $cpu --size tiny --peer flax
refused 2 'json|missing' $cpu --size tiny --json "$work/missing/dir/record.json"
refused 2 'table|.md' $cpu --size tiny --table "$work/table.docx"
refused 2 'plot|.svg' $cpu --size tiny --plot "$work/plot.bmp"

for command in 'memory model --predict' 'compile model'; do
  refused 2 'shard optimizer|say among how many|--ranks' $command --device cpu --size tiny --shard optimizer
  refused 2 'ranks|between 1 and' $command --device cpu --size tiny --ranks 0
done

plan="plan cost --size xl"
refused 2 'preset|xxs|xxl' plan cost --preset xxs
refused 2 'preset xxl|--size' $plan --preset xxl
refused 2 'one configuration|2' plan cost --size xl,small
refused 2 'tensor 2|heads 25' $plan --tensor 2
refused 2 'tensor' $plan --tensor 0
refused 2 'data' $plan --data 0
refused 2 'shard parameters|--data' $plan --shard parameters
refused 2 'shard broadcast|optimizer' $plan --data 8 --shard broadcast
refused 2 'links 1|two numbers' $plan --links 1
refused 2 'links|between 1 and' $plan --links 0,1
refused 2 'flops|between 1 and' $plan --flops 0
refused 2 'bandwidth|between 1 and' $plan --bandwidth -1
refused 2 'memory|between' $plan --memory 1e300
refused 2 'call-us|between 0 and' $plan --call-us -1

simulate="plan simulate --size xl"
refused 2 'machine v100x|h100|calibrate' $simulate --machine v100x
refused 2 'network carrier|h100' $simulate --network carrier
refused 2 'devices 12|multiple|8' $simulate --devices 12 --tensor 8
refused 2 'devices|between 1 and 100000' $simulate --devices 0
refused 2 'heads 25|tensor 2' $simulate --devices 2 --tensor 2
refused 2 'slow-device|1 or more' $simulate --slow-device 0.5
refused 2 'from graph|tensor' $simulate --from graph --devices 5 --tensor 5
refused 2 'interleave|--pipeline' $simulate --interleave 2
refused 2 't4|bf16|fp16' $simulate --machine t4 --dtype bf16
refused 2 'trace|one simulation|2' $simulate --devices 1,2 --trace "$work/t.json"
refused 2 'gpus|between 1 and' plan fit --size xl --gpus 0
refused 2 'memory lots|80GB' plan fit --size xl --memory lots
refused 2 'global-batch 7|--gpus 2' plan fit --size xl --gpus 2 --global-batch 7
refused 2 'global-batch|between 1' plan best --size small --global-batch 0
refused 2 'one model|2' plan best --size small,xl
refused 2 't4|bf16|fp16' plan best --size small --machine t4 --dtype bf16
refused 2 'mtbf|more than 0' plan failures --mtbf 0
refused 2 'save-s 0|each step' plan failures --save-s 0 --write-s 0
refused 2 'every-s 5|30 s' plan failures --every-s 5
refused 2 'one of --published' plan validate
refused 2 '--machine|calibrate' plan validate --random 2
refused 2 'calibrate|--record' plan calibrate
echo '{"runs": [{"id": "a", "source": "b", "value": 0}]}' > "$work/runs.json"
refused 2 'runs.json, line 1|machine|missing' plan validate --published "$work/runs.json"

# What was mistyped, what was probably meant, and where to look.
refused 2 'bnech|did you mean bench?|sinter --help' bnech model
refused 2 'modle|did you mean model?|sinter bench --help' bench modle
refused 2 'model|sinter bench model' model
refused 2 'frobnicate|bench, compile, doctor' frobnicate
refused 2 'szie|did you mean --size?|sinter bench model --help' bench model --szie tiny
refused 2 '--dtpye:|did you mean --dtype?|sinter profile model --help' profile model --dtpye=bf16
refused 2 '-size|did you mean --size?' bench model -size tiny
refused 2 'd_model|did you mean --d-model?' bench model --d_model 64
refused 2 '--deter|did you mean --deterministic?' bench model --deter
refused 2 'size|did you mean --size?' bench model size tiny
refused 2 'predict|sinter memory model has' bench model --predict
refused 2 'size|sinter bench model has' --size tiny bench model
refused 2 'size|value is missing|sinter bench model --help' bench model --size
refused 2 'size|value is missing|--ctx follows' bench model --size --ctx 8
refused 2 'size|2 times|with commas' bench model --size tiny --size mini
refused 2 'seed|2 times|once' bench model --seed 1 --seed 2
refused 2 'dry-run|no value' bench model --dry-run=maybe
refused 2 'one.json: cannot be opened' show one.json other.json
refused 2 'RECORD|sinter show --help' show
refused 2 '"": sinter bench has no such command' bench ''
refused 2 'no-such-flag|has no such option' $cpu --no-such-flag
refused 2 'none.json' $cpu --config "$work/none.json"
refused 2 'none.json' show "$work/none.json"

refused 2 'profiler|nsys|events' profile model --device cpu --size tiny --profiler nsys
refused 2 'profiler|CPU' profile model --device cpu --size tiny --profiler cupti
refused 2 'top' profile model --device cpu --size tiny --top 0
refused 2 'trace|one configuration|2' profile model --device cpu --size tiny --ctx 8,16 --trace "$work/t.json"
refused 2 'trace|.json' profile model --device cpu --size tiny --trace "$work/t.svg"
refused 2 'json|trace|same file' profile model --device cpu --size tiny --trace "$work/t.json" --json "$work/./t.json"
refused 2 'trace|missing' profile model --device cpu --size tiny --trace "$work/missing/t.json"
refused 2 'warmup|bench model' profile model --device cpu --size tiny --warmup 0,1
refused 2 'pass|step' profile attention --device cpu --pass step
refused 2 'attention|sparse|flash' profile attention --device cpu --attention sparse
refused 2 'kv-heads 2|heads 3' profile attention --device cpu --heads 3 --kv-heads 2
refused 2 'tile|tiled' profile attention --device cpu --attention flash --tile 64
refused 2 'tile' profile attention --device cpu --attention tiled --tile 0
refused 2 'scores' profile attention --device cpu --batch 1048576 --ctx 1048576
refused 2 'head-dim' profile attention --device cpu --head-dim 0
attention="bench attention --device cpu"
refused 2 'sweep|leaderboard' $attention --sweep --leaderboard
refused 2 'attention portable|CUDA' $attention --attention portable
refused 2 'peer|flash3|cudnn' $attention --peer flash3
refused 2 'tile|naive' $attention --tile 64
refused 2 'tile|4096' $attention --attention tiled --tile 9999
refused 2 'tile of 1200|bytes' $attention --attention tiled --tile 16,1200
refused 2 'seconds' $attention --seconds -1
refused 2 'steps' $attention --steps 0
refused 2 'pass|step' $attention --pass step
refused 2 'mode lazy|eager|compiled' $attention --mode lazy
refused 2 'pass "nosuch"|causal|plan' $attention --mode compiled --passes nosuch
refused 2 'passes|--mode compiled' $attention --passes none
refused 2 'kv-heads 3|heads 4' $attention --heads 4 --kv-heads 3
refused 2 'head-dim' $attention --head-dim 64,0
refused 2 'ctx|abc' $attention --ctx abc
refused 2 'tf32|fp32' $attention --dtype tf32
refused 2 'plot|.svg' $attention --plot "$work/p.png"
refused 2 'snapshot|.pickle' memory model --device cpu --size tiny --snapshot "$work/s.txt"
refused 2 'snapshot|one configuration' memory model --device cpu --size tiny --ctx 8,16 --snapshot "$work/s.pickle"
refused 2 'snapshot|missing' memory model --device cpu --size tiny --snapshot "$work/missing/s.pickle"
refused 2 'card|GTX|4090-24' memory model --predict --card GTX
refused 2 'card|CPU|device cuda' memory model --predict --device cpu --card T4-16
refused 2 'card|device is cpu' compile model --device cpu --card T4-16
refused 2 'largest' memory model --device cpu --size tiny --largest 0
refused 2 'plot|one configuration' memory model --predict --size tiny,mini --plot "$work/p.svg"

echo '{"hidden_size": 64, "intermediate' > "$work/broken.json"
refused 2 'broken.json' $cpu --config "$work/broken.json"
refused 2 'broken.json' show "$work/broken.json"
# A document that is too deep to walk, no document, and numbers that are none.
{ head -c 300000 /dev/zero | tr '\0' '['; head -c 300000 /dev/zero | tr '\0' ']'; } > "$work/deep.json"
{ printf '{"schema": "sinter.record.v1", "command": "bench model", "machine": {}, "config": {}, "results": ['
  cat "$work/deep.json"; printf ']}'; } > "$work/deep_record.json"
: > "$work/empty.json"
head -c 10000 "$SINTER" > "$work/binary.json"
echo '{"hidden_size": NaN}' > "$work/nan.json"
echo '{"hidden_size": 1e999}' > "$work/overflow.json"
for command in "$cpu --config" show; do
  refused 2 'deep.json|300000 levels' $command "$work/deep.json"
  refused 2 'deep_record.json|300002 levels' $command "$work/deep_record.json"
  refused 2 'empty.json|is empty' $command "$work/empty.json"
  refused 2 'binary.json|not valid JSON' $command "$work/binary.json"
  refused 2 'nan.json|line 1' $command "$work/nan.json"
  refused 2 'overflow.json|1e999' $command "$work/overflow.json"
  refused 2 "$work|is a folder" $command "$work"
done
refused 2 "json $work|is a folder" $cpu --size tiny --json "$work"
refused 2 'json|too long' $cpu --size tiny --json "$work/$(head -c 300 /dev/zero | tr '\0' a)"
llama='"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":256'
echo "{$llama,\"num_key_value_heads\":3}" > "$work/gqa.json"
refused 2 'kv-heads 3|heads 4' $cpu --config "$work/gqa.json"
echo "{$llama,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}" > "$work/linear.json"
refused 2 'rope_scaling|linear|llama3' $cpu --config "$work/linear.json"
refused 2 'rope-scaling 8,1,4|FACTOR,LOW,HIGH,CTX' $cpu --size tiny --rope-scaling 8,1,4
refused 2 'rope-scaling 8,4,1,8192|LOW < HIGH' $cpu --size tiny --rope-scaling 8,4,1,8192
echo "{$llama,\"attention_bias\":true}" > "$work/bias.json"
refused 2 'attention_bias' $cpu --config "$work/bias.json"
echo "{$llama,\"hidden_act\":\"gelu\"}" > "$work/gelu.json"
refused 2 'hidden_act|gelu' $cpu --config "$work/gelu.json"

[ -x "$(command -v nvidia-smi)" ] || refused 2 'cuda|--device cpu' bench model --device cuda
refused 2 'device cuda:9999:|--device cpu' bench model --device cuda:9999
refused 2 'subcommand|--help' bench

if [ "$failures" -gt 0 ]; then
  echo "$failures refusals are not as they should be"
  exit 1
fi
echo "every refusal is as it should be"
