#!/bin/sh
# From a folder as transformers keeps it to text and back: import, generate, export, and what they refuse.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# Llamas with random weights: one of bytes, one of another vocabulary with all that Llama 3 adds, in two bf16 files.
cat > "$work/llama.py" << 'EOF'
import json, random, struct, sys, pathlib

def write_tensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))

def read_tensors(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    return {name: (e["dtype"], e["shape"], data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
            for name, e in json.loads(data[8:8 + n]).items() if name != "__metadata__"}

def make(folder, kind, **change):
    rng = random.Random(1)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, **change}
    d, f, kv, v = 32, 48, 16, config["vocab_size"]
    shapes = {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [v, d]
    for i in range(2):
        at = f"model.layers.{i}."
        shapes |= {at + "self_attn.q_proj.weight": [d, d], at + "self_attn.k_proj.weight": [kv, d],
                   at + "self_attn.v_proj.weight": [kv, d], at + "self_attn.o_proj.weight": [d, d],
                   at + "mlp.gate_proj.weight": [f, d], at + "mlp.up_proj.weight": [f, d],
                   at + "mlp.down_proj.weight": [d, f], at + "input_layernorm.weight": [d],
                   at + "post_attention_layernorm.weight": [d]}
    tensors = {}
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        raw = struct.pack(f"<{n}f", *(rng.uniform(-0.4, 0.4) + (len(shape) == 1) for _ in range(n)))
        if kind == "BF16":
            raw = b"".join(raw[4 * i + 2:4 * i + 4] for i in range(n))
        tensors[name] = (kind, shape, raw)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return tensors

work = pathlib.Path(sys.argv[2])
if sys.argv[1] == "make":
    write_tensors(work / "bytes/model.safetensors", tensors) if (tensors := make(work / "bytes", "F32")) else None
    tensors = make(work / "ids", "BF16", vocab_size=300, tie_word_embeddings=True, rope_theta=500000.0,
                   rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 32})
    names = list(tensors)
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, part in files.items():
        write_tensors(work / "ids" / file, {name: tensors[name] for name in part})
    (work / "ids/model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {name: file for file, part in files.items() for name in part}}))
else:  # the same tensors, and what config.json says of the arithmetic
    first, second = (work / name for name in sys.argv[3:5])
    read = lambda folder: {n: t for p in folder.glob("*.safetensors") for n, t in read_tensors(p).items()}
    assert read(first) == read(second), "the tensors differ"
    a, b = (json.loads((p / "config.json").read_text()) for p in (first, second))
    for field, value in a.items():
        assert b[field] == value, (field, value, b[field])
EOF
python3 "$work/llama.py" make "$work" || exit 1

cpu="--device cpu"
for kind in bytes ids; do
  "$SINTER" import --hf "$work/$kind" --out "$work/run-$kind" 2> "$work/err" || fail "import: $(cat "$work/err")"
done
"$SINTER" export --checkpoint "$work/run-bytes" --hf "$work/bytes-again" 2> "$work/err" || fail "$(cat "$work/err")"
"$SINTER" export --checkpoint "$work/run-ids" --hf "$work/ids-again" --dtype bf16 2> "$work/err" ||
  fail "$(cat "$work/err")"
for kind in bytes ids; do
  python3 "$work/llama.py" compare "$work" $kind $kind-again || fail "$kind did not survive"
done

# Plain PyTorch, where there is one, gets the same logits from the export.
if python3 -c 'import torch' 2> "$work/err"; then
  "$SINTER" export --checkpoint "$work/run-ids" --hf "$work/ids-exact" 2> "$work/err" || fail "$(cat "$work/err")"
  "$SINTER" generate $cpu --checkpoint "$work/run-ids" --prompt-ids 299,1,2,3,4,5,6,7,8,9,0 --tokens 1 \
    --logits "$work/logits.safetensors" > "$work/out" 2> "$work/err" || fail "$(cat "$work/err")"
  python3 "$SINTER_SOURCE_DIR/tools/reference_llama.py" "$work/ids-exact" --logits "$work/logits.safetensors" \
    > "$work/out" 2>&1 || fail "PyTorch's logits: $(cat "$work/out")"
fi

generate="generate $cpu --checkpoint $work/run-bytes"
run() { "$SINTER" "$@" 2> "$work/err" || fail "sinter $*: $(cat "$work/err")"; }
run $generate --prompt "To be" --tokens 40 --seed 3 --json "$work/one.json" > "$work/one"
run $generate --prompt "To be" --tokens 40 --seed 3 > "$work/again"
cmp -s "$work/one" "$work/again" || fail "the same seed, another text"
grep -q '40 tokens after a prompt of 5: the first after .* tokens/s' "$work/err" || fail "times: $(cat "$work/err")"
head -c 5 "$work/one" | grep -q 'To be' || fail "no prompt: $(cat "$work/one")"
printf 'To be' > "$work/prompt"
run $generate --prompt-file "$work/prompt" --tokens 40 --seed 3 > "$work/again"
cmp -s "$work/one" "$work/again" || fail "the same prompt from a file, another text"
run $generate --prompt "To be" --tokens 40 --seed 4 > "$work/again"
cmp -s "$work/one" "$work/again" && fail "another seed, the same text"
run $generate --prompt "To be" --tokens 40 --seed 3 --samples 3 --json - > "$work/three.json"
run generate $cpu --checkpoint "$work/run-bytes/step_00000000" --prompt-ids 84,111,32,98,101 --tokens 40 --seed 3 \
    --attention naive > "$work/again"
cmp -s "$work/one" "$work/again" || fail "the same by ids, naive attention and the checkpoint's own folder"
run $generate --prompt "To be" --tokens 40 --temperature 0 --dtype bf16 > "$work/out"
run $generate --prompt "To be" --tokens 100 --ctx 105 --logits "$work/l.safetensors" > "$work/out"
run show "$work/one.json" > "$work/out"
run generate $cpu --checkpoint "$work/run-ids" --prompt-ids 299,0,7 --tokens 9 --seed 1 > "$work/ids-out"
grep -qE '^299,0,7(,[0-9]+){9}$' "$work/ids-out" || fail "ids: $(cat "$work/ids-out")"
third=$(cut -d, -f6 "$work/ids-out")
run generate $cpu --checkpoint "$work/run-ids" --prompt-ids 299,0,7 --tokens 9 --seed 1 --stop-ids "$third" \
  > "$work/out"
[ "$(cat "$work/out")" = "$(cut -d, -f1-6 "$work/ids-out")" ] || fail "--stop-ids: $(cat "$work/out")"
python3 - "$work" << 'EOF' || fail "the records are not as they should be"
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
one, three = (json.loads((work / f"{n}.json").read_text()) for n in ("one", "three"))
assert one["command"] == "generate" and len(one["results"]) == 1 and len(three["results"]) == 3
assert one["results"][0]["ids"] == three["results"][0]["ids"], "a sample does not depend on how many there are"
assert len({tuple(r["ids"]) for r in three["results"]}) == 3
assert one["config"]["peak_bytes"] == one["config"]["predicted_peak_bytes"] > 4 * 31904, one["config"]
for r in three["results"]:
    assert len(r["ids"]) == 40 and r["ended_by"] == "tokens" and r["tokens_per_s"] > 0 and r["first_token_ms"] > 0
    assert all(0 <= i < 256 for i in r["ids"])
EOF
# What a byte is that stands in the continuation once, and so ends it there.
stop=$(python3 -c '
import json, sys
ids = json.load(open(sys.argv[1]))["results"][0]["ids"]
print(next((chr(i) for i in ids if 33 <= i < 127), ""))' "$work/one.json")
if [ -n "$stop" ]; then
  run $generate --prompt "To be" --tokens 40 --seed 3 --stop "$stop" --json "$work/stopped.json" > "$work/out"
  python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))["results"][0]
assert r["ended_by"] == "stop" and r["ids"][-1] == ord(sys.argv[2]) and sys.argv[2] not in r["text"], r' \
    "$work/stopped.json" "$stop" || fail "--stop '$stop'"
fi

# refused 'words, | between them' arguments…
refused() {
  words=$1
  shift
  "$SINTER" "$@" > "$work/out" 2> "$work/err"
  got=$?
  { [ $got -eq 2 ] && [ "$(wc -l < "$work/err")" -eq 1 ] && [ ! -s "$work/out" ]; } ||
    fail "$*: $got $(cat "$work/err")"
  old_ifs=$IFS IFS='|'
  for word in $words; do grep -qF -- "$word" "$work/err" || fail "$*: no '$word': $(cat "$work/err")"; done
  IFS=$old_ifs
}
: > "$work/nothing"
refused 'checkpoint is missing|sinter train' generate --prompt x
refused 'is not a folder' generate --checkpoint "$work/nowhere" --prompt x
refused 'holds no checkpoint' generate --checkpoint "$work/bytes" --prompt x
refused 'missing|--prompt-ids' $generate
refused 'more than one way' $generate --prompt x --prompt-ids 1
refused 'prompt-file|empty' $generate --prompt-file "$work/nothing"
refused 'nowhere|cannot be opened' $generate --prompt-file "$work/nowhere"
refused 'is a folder' $generate --prompt-file "$work"
refused 'token id 256|vocabulary of 256' $generate --prompt-ids 1,256
refused '65 tokens|64 positions|--ctx' $generate --tokens 1 \
  --prompt aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggggg
refused '--tokens 64|--tokens 63|--ctx' $generate --prompt x --tokens 64
refused '--tokens|at least 1' $generate --prompt x --tokens 0
refused '--temperature -1' $generate --prompt x --temperature=-1
refused '--top-p 0|more than 0' $generate --prompt x --top-p 0
refused '--top-k -1' $generate --prompt x --top-k=-1
refused '--samples' $generate --prompt x --samples 0
refused '--prompt|vocabulary of 300|--prompt-ids' generate $cpu --checkpoint "$work/run-ids" --prompt x
refused '--stop|--stop-ids' generate $cpu --checkpoint "$work/run-ids" --prompt-ids 1 --stop x
refused 'stop-ids 300' generate $cpu --checkpoint "$work/run-ids" --prompt-ids 1 --stop-ids 300
refused 'one model at a time' $generate --prompt x --dtype fp32,bf16
refused '--hf' export --checkpoint "$work/run-bytes"
refused 'bytes-again|not an empty folder' export --checkpoint "$work/run-bytes" --hf "$work/bytes-again"
refused '--dtype tf32|bf16' export --checkpoint "$work/run-bytes" --hf "$work/new" --dtype tf32
refused '--out' import --hf "$work/bytes"
refused 'not an empty folder' import --hf "$work/bytes" --out "$work/run-bytes"
refused 'config.json' import --hf "$work/cache" --out "$work/new"
sed -i 's/"llama"/"gpt2"/' "$work/bytes/config.json"
refused 'model_type|gpt2' import --hf "$work/bytes" --out "$work/new"
[ ! -e "$work/new" ] || fail "a refused command left a folder"

[ "$failures" -eq 0 ] || exit 1
echo "from a folder to text and back"
