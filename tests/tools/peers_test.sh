#!/bin/sh
# What PyTorch's replies say of their machine, with stand-ins for torch and nvidia-smi; where python3 has torch itself,
# a whole reply of each script on the CPU.
set -eu
command -v python3 > /dev/null || { echo "no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
peers=$SINTER_SOURCE_DIR/bench/peers

cat > "$work/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in *"--id=GPU-1234"*) echo "1350, 3201, 1980, 3201, 649.10, [N/A], 54" ;; *) exit 6 ;; esac
END
chmod +x "$work/nvidia-smi"
cat > "$work/check.py" <<'END'
import re
import sys
from types import SimpleNamespace as Object

sys.path.insert(0, sys.argv[1])
import torch_machine

properties = Object(uuid="1234")
cuda = Object(get_device_properties=lambda gpu: properties, get_device_name=lambda gpu: "Some GPU")
torch = Object(__version__="9.9", version=Object(cuda="13.0"), backends=Object(cudnn=Object(version=lambda: 91900)),
               get_num_threads=lambda: 2, cuda=cuda)
here = torch_machine.machine(torch, "cuda", 0)
assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", here.pop("date"))
clocks = {"sm_mhz": 1350, "memory_mhz": 3201, "sm_max_mhz": 1980, "memory_max_mhz": 3201, "power_w": 649.1,
          "power_limit_w": None, "temperature_c": 54}
assert here == {"torch": "9.9", "cuda": "13.0", "cudnn": 91900, "threads": 2,
                "gpu": {"name": "Some GPU", "uuid": "GPU-1234", "clocks": clocks}}, here
worked = []
assert torch_machine.clocks("GPU-1234", lambda: worked.append(1)) == clocks and worked
assert torch_machine.clocks("GPU-5678") is None  # one that nvidia-smi does not know
del properties.uuid  # a torch that does not tell
assert torch_machine.machine(torch, "cuda", 0)["gpu"] == {"name": "Some GPU", "uuid": None, "clocks": None}
assert torch_machine.machine(torch, "cpu", 0)["gpu"] is None
END
PATH=$work:$PATH python3 "$work/check.py" "$peers"
rm "$work/nvidia-smi"

if ! python3 -c 'import torch' 2> /dev/null; then
  echo "peers: what they say of their machine is right; no torch here to run them"
  exit 0
fi
shape='[{"device": "cpu", "batch": 1, "heads": 1, "kv_heads": 1, "ctx": 8, "head_dim": 4, "causal": true,
         "dtype": "fp32", "pass": "forward-backward", "seed": 0}]'
python3 "$peers/torch_lm.py" --device cpu --d-model 16 --d-ff 32 --layers 1 --heads 2 --vocab 31 --ctx 8 --batch 1 \
  --warmup 1 --steps 3 > "$work/lm.json"
python3 "$peers/torch_attention_peer.py" --backends math --shapes "$shape" --warmup 1 --steps 3 > "$work/attention.json"
python3 - "$work/lm.json" "$work/attention.json" <<'END'
import json
import sys

for path in sys.argv[1:]:
    reply = json.load(open(path))
    assert set(reply["machine"]) == {"torch", "cuda", "cudnn", "date", "threads", "gpu"}, reply
    for result in reply["results"]:
        samples = result["samples_ms"]
        assert len(samples["both"] if isinstance(samples, dict) else samples) == 3, result
END
echo "peers: ok"
