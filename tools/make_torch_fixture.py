#!/usr/bin/python3
"""Writes tests/fixtures/transformer.safetensors: what PyTorch computes for a small Transformer.

    /usr/bin/python3 tools/make_torch_fixture.py        (Debian's python3-torch, 1.13; any later version will do)

tests/nn/torch_parity_test.cpp compares sinter with it. The model below is written from the definition of the model
(README, "The model"), not from sinter's code: einsum and autograd, one module per line of that table.

Contents, with p one of sinter's parameter names and everything float64 unless said:
    init/p           float32  initial values, exact in every type
    tokens, targets  int64    (steps, batch, ctx)
    logits, loss              of the first batch, at the initial values
    grad/p                    likewise
    logits32, loss32, grad32/p  float32  the same computed in float32
    adamw/p                   after five AdamW steps, one per batch, with learning rates `rates`, weight decay 0.01
    clipped/p, norms          the same with the global norm clipped to `max_norm`; the norms before clipping
    sgd/p                     after five steps of SGD, momentum 0.9, weight decay 0.01
"""
import json
import math
import pathlib
import struct

import numpy
import torch

VOCAB, D, FF, LAYERS, HEADS, CTX, BATCH, STEPS = 37, 24, 40, 2, 3, 7, 2, 5
THETA, EPS, MAX_NORM = 10000.0, 1e-5, 0.4
RATES = [1e-3, 3e-3, 2e-3, 1e-3, 5e-4]


def names_and_shapes():
    yield "embedding.weight", (VOCAB, D)
    for i in range(LAYERS):
        p = f"layers.{i}."
        yield p + "norm1.weight", (D,)
        for m in "qkvo":
            yield p + f"attn.{m}.weight", (D, D)
        yield p + "norm2.weight", (D,)
        yield p + "ffn.w1.weight", (FF, D)
        yield p + "ffn.w3.weight", (FF, D)
        yield p + "ffn.w2.weight", (D, FF)
    yield "norm.weight", (D,)
    yield "head.weight", (VOCAB, D)


def initial_values():
    g = torch.Generator().manual_seed(1234)
    values = {}
    for name, shape in names_and_shapes():
        x = torch.randn(shape, generator=g, dtype=torch.float32)
        # Norm weights away from 1, so that forgetting them shows.
        values[name] = 1 + 0.2 * x if len(shape) == 1 else x * (2 / sum(shape)) ** 0.5
    return values


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rope(x):  # (batch, head, position, dimension): adjacent pairs as complex numbers
    d, t = x.shape[-1], x.shape[-2]
    frequency = THETA ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(t, dtype=torch.float64)[:, None] * frequency
    c, s = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)


def attention(p, prefix, x):
    b, t, _ = x.shape
    q, k, v = (torch.einsum("btd,ed->bte", x, p[f"{prefix}.{m}.weight"]).view(b, t, HEADS, -1).transpose(1, 2)
               for m in "qkv")
    scores = torch.einsum("bhqd,bhkd->bhqk", rope(q), rope(k)) / math.sqrt(q.shape[-1])
    hidden = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
    mixed = torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores.masked_fill(hidden, -math.inf), -1), v)
    return torch.einsum("btd,ed->bte", mixed.transpose(1, 2).reshape(b, t, D), p[f"{prefix}.o.weight"])


def feed_forward(p, prefix, x):
    gate, up = (torch.einsum("btd,fd->btf", x, p[f"{prefix}.{m}.weight"]) for m in ("w1", "w3"))
    return torch.einsum("btf,df->btd", gate * torch.sigmoid(gate) * up, p[f"{prefix}.w2.weight"])


def logits_of(p, tokens):
    x = p["embedding.weight"][tokens]
    for i in range(LAYERS):
        x = x + attention(p, f"layers.{i}.attn", rms_norm(x, p[f"layers.{i}.norm1.weight"]))
        x = x + feed_forward(p, f"layers.{i}.ffn", rms_norm(x, p[f"layers.{i}.norm2.weight"]))
    return torch.einsum("btd,vd->btv", rms_norm(x, p["norm.weight"]), p["head.weight"])


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def parameters(dtype):
    return {n: v.to(dtype).requires_grad_() for n, v in initial_values().items()}


def first_pass(dtype, tokens, targets):
    p = parameters(dtype)
    logits = logits_of(p, tokens[0])
    loss = loss_of(logits, targets[0])
    loss.backward()
    return logits.detach(), loss.detach(), {n: v.grad for n, v in p.items()}


def train(make_optimizer, tokens, targets, max_norm=None):
    p = parameters(torch.float64)
    optimizer = make_optimizer(list(p.values()))
    norms = []
    for i, rate in enumerate(RATES):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss_of(logits_of(p, tokens[i]), targets[i]).backward()
        if max_norm:
            norms.append(float(torch.nn.utils.clip_grad_norm_(list(p.values()), max_norm)))
        optimizer.step()
    return {n: v.detach() for n, v in p.items()}, norms


def write_safetensors(path, tensors):
    """The format of github.com/huggingface/safetensors: header length, JSON header, raw little-endian data."""
    kinds = {"float64": "F64", "float32": "F32", "int64": "I64"}
    header, data = {}, b""
    for name, t in tensors.items():
        a = numpy.ascontiguousarray(t.detach().numpy())
        header[name] = {"dtype": kinds[str(a.dtype)], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(99)
    tokens = torch.randint(0, VOCAB, (STEPS, BATCH, CTX), generator=g)
    targets = torch.randint(0, VOCAB, (STEPS, BATCH, CTX), generator=g)
    out = {f"init/{n}": v for n, v in initial_values().items()}
    out |= {"tokens": tokens, "targets": targets, "rates": torch.tensor(RATES, dtype=torch.float64)}
    out["max_norm"] = torch.tensor(MAX_NORM, dtype=torch.float64)
    for suffix, dtype in (("", torch.float64), ("32", torch.float32)):
        logits, loss, grads = first_pass(dtype, tokens, targets)
        out |= {"logits" + suffix: logits, "loss" + suffix: loss} | {f"grad{suffix}/{n}": v for n, v in grads.items()}
    adamw = lambda p: torch.optim.AdamW(p, lr=1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    sgd = lambda p: torch.optim.SGD(p, lr=1, momentum=0.9, weight_decay=0.01)
    out |= {f"adamw/{n}": v for n, v in train(adamw, tokens, targets)[0].items()}
    clipped, norms = train(adamw, tokens, targets, MAX_NORM)
    assert all(n > MAX_NORM for n in norms), "clipping must be at work"
    out |= {f"clipped/{n}": v for n, v in clipped.items()}
    out["norms"] = torch.tensor(norms, dtype=torch.float64)
    out |= {f"sgd/{n}": v for n, v in train(sgd, tokens, targets)[0].items()}
    path = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "transformer.safetensors"
    path.parent.mkdir(exist_ok=True)
    write_safetensors(path, out)
    print(f"{path}: {path.stat().st_size} bytes, {len(out)} tensors, torch {torch.__version__}, "
          f"loss {float(out['loss'])}, norms {norms}")


if __name__ == "__main__":
    main()
