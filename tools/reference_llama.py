#!/usr/bin/env python3
"""Llama's forward pass in plain PyTorch, from a folder as transformers keeps it: what `sinter export` must be read as.

Nothing here comes from sinter or transformers: half-split rotation, weights by their names in model.safetensors, sizes
from config.json.

    sinter generate --checkpoint run --prompt "Once upon" --tokens 1 --logits logits.safetensors
    sinter export --checkpoint run --hf exported
    python3 tools/reference_llama.py exported --logits logits.safetensors

prints how far sinter's logits are from these, as ‖a − b‖ / ‖b‖, and fails beyond --tolerance.
"""
import argparse
import json
import math
import pathlib
import struct
import sys

import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64}


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        raw = torch.frombuffer(bytearray(data[begin:end]), dtype=TYPES[entry["dtype"]])
        tensors[name] = raw.reshape(entry["shape"])
    return tensors


def frequencies(config, head_dim):
    plain = config["rope_theta"] ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    scaling = config.get("rope_scaling")
    if not scaling:
        return plain
    if scaling["rope_type"] != "llama3":
        sys.exit(f"rope_scaling {scaling['rope_type']} is not Llama's")
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = ((original * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * plain / scaling["factor"] + smooth * plain


def rotate(x, cos, sin):
    """x: (heads, positions, head dimension); the head is rotated as two halves."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def logits_of(folder, tokens, dtype):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = {name: w.to(dtype) for name, w in read_safetensors(folder / "model.safetensors").items()}
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // heads
    count = len(tokens)
    angles = torch.arange(count, dtype=torch.float64)[:, None] * frequencies(config, head_dim)
    turn = angles.cos().to(dtype), angles.sin().to(dtype)
    hidden = torch.triu(torch.full((count, count), -math.inf, dtype=dtype), diagonal=1)

    def normed(x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"])
        return x * scale * weights[name]

    def projected(x, name, of_heads):
        return (x @ weights[name].T).view(count, of_heads, head_dim).transpose(0, 1)

    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = normed(x, at + "input_layernorm.weight")
        q = rotate(projected(h, at + "self_attn.q_proj.weight", heads), *turn)
        k = rotate(projected(h, at + "self_attn.k_proj.weight", shared), *turn)
        v = projected(h, at + "self_attn.v_proj.weight", shared)
        k, v = (t.repeat_interleave(heads // shared, dim=0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(head_dim) + hidden
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(count, -1)
        x = x + mixed @ weights[at + "self_attn.o_proj.weight"].T
        h = normed(x, at + "post_attention_layernorm.weight")
        gate = torch.nn.functional.silu(h @ weights[at + "mlp.gate_proj.weight"].T)
        x = x + (gate * (h @ weights[at + "mlp.up_proj.weight"].T)) @ weights[at + "mlp.down_proj.weight"].T
    head = "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
    return normed(x, "model.norm.weight") @ weights[head].T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="config.json and model.safetensors")
    parser.add_argument("--logits", type=pathlib.Path, required=True, help="tokens and logits, from sinter generate")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--double", action="store_true", help="compute in fp64")
    args = parser.parse_args()
    ours = read_safetensors(args.logits)
    with torch.no_grad():
        theirs = logits_of(args.folder, ours["tokens"], torch.float64 if args.double else torch.float32)
    error = ((ours["logits"].double() - theirs.double()).norm() / theirs.double().norm()).item()
    same = (ours["logits"].argmax(-1) == theirs.argmax(-1)).double().mean().item()
    print(f"{len(ours['tokens'])} positions: relative difference {error:.2e}, the same most likely token at {same:.1%}")
    sys.exit(0 if error <= args.tolerance else 1)


if __name__ == "__main__":
    main()
