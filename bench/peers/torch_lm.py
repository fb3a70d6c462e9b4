"""PyTorch's side of `sinter bench model --peer`: the same model, timed the same way, as JSON on stdout.

Variants:
  torch-plain     every op spelled out, foreach AdamW: what a student writes
  torch-best      merged projections, SDPA, F.rms_norm, fused AdamW: what a PyTorch user reaches for
  torch-compiled  torch-best under torch.compile of the whole model (CUDA graphs on a GPU)

Times are the wall clock around a synchronised call, memory is max_memory_allocated. The reply has `machine` (versions,
date, threads, GPU) and per pass all samples and, on a GPU, the clocks at work. Works with torch 1.13 on a CPU (without
torch-compiled) and with 2.x on a GPU.
"""
import argparse
import contextlib
import json
import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.dont_write_bytecode = True  # no folder of it beside the scripts
import torch_machine

OutOfMemory = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError


class Unavailable(Exception):
    """What was asked for does not exist here."""


class Norm(nn.Module):
    def __init__(self, width, eps, best):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
        self.fused = best and hasattr(F, "rms_norm")

    def forward(self, x):
        if self.fused:
            return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)
        wide = x.float()
        return (self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps))).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, shape, best):
        super().__init__()
        d, d_ff, self.heads, self.best = shape.d_model, shape.d_ff, shape.heads, best
        self.norm1, self.norm2 = Norm(d, shape.norm_eps, best), Norm(d, shape.norm_eps, best)

        def linear(n_in, n_out):
            return nn.Linear(n_in, n_out, bias=False)

        if best:
            self.qkv, self.gate_up = linear(d, 3 * d), linear(d, 2 * d_ff)
        else:
            self.q, self.k, self.v = linear(d, d), linear(d, d), linear(d, d)
            self.w1, self.w3 = linear(d, d_ff), linear(d, d_ff)
        self.o, self.w2 = linear(d, d), linear(d_ff, d)
        head = d // shape.heads
        frequencies = shape.rope_theta ** (-torch.arange(0, head, 2).float() / head)
        angles = torch.outer(torch.arange(shape.ctx).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("mask", torch.tril(torch.ones(shape.ctx, shape.ctx, dtype=torch.bool)), persistent=False)

    def attention(self, q, k, v):
        if self.best and hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        length = q.shape[-2]
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        scores = torch.where(self.mask[:length, :length], scores, float("-inf"))
        e = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (e / e.sum(-1, keepdim=True)).to(v.dtype) @ v

    def forward(self, x):
        batch, length, d = x.shape
        y = self.norm1(x)
        q, k, v = self.qkv(y).chunk(3, -1) if self.best else (self.q(y), self.k(y), self.v(y))
        q, k, v = (t.view(batch, length, self.heads, d // self.heads).transpose(1, 2) for t in (q, k, v))
        cos, sin = self.cos[:length].to(q.dtype), self.sin[:length].to(q.dtype)
        a = self.attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.o(a.transpose(1, 2).reshape(batch, length, d))
        y = self.norm2(x)
        gate, up = self.gate_up(y).chunk(2, -1) if self.best else (self.w1(y), self.w3(y))
        return x + self.w2(F.silu(gate) * up if self.best else gate * torch.sigmoid(gate) * up)


class LanguageModel(nn.Module):
    def __init__(self, shape, best):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape, best) for _ in range(shape.layers))
        self.norm = Norm(shape.d_model, shape.norm_eps, best)
        self.head = nn.Linear(shape.d_model, shape.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Experiment:
    def __init__(self, args):
        self.args, self.cuda = args, args.device == "cuda"
        best = args.variant != "torch-plain"
        torch.manual_seed(args.seed)
        if self.cuda:
            torch.backends.cuda.matmul.allow_tf32 = args.dtype == "tf32"
        # Where torch can (2.0 on), parameters are made on the device: drawing billions of them on the host takes
        # minutes.
        with torch.device(args.device) if hasattr(torch.device, "__enter__") else contextlib.nullcontext():
            self.model = LanguageModel(args, best).to(args.device)
        self.net = self.model
        if args.variant == "torch-compiled":
            self.net = torch.compile(self.model, mode="reduce-overhead" if self.cuda else None, dynamic=False)
        self.make_optimizer()
        self.lower = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.dtype)
        self.scaler = torch.cuda.amp.GradScaler() if args.dtype == "fp16" and self.cuda else None
        self.widen_logits = not best
        ids = [torch.randint(0, args.vocab, (args.batch, args.ctx), device=args.device) for _ in range(2)]
        self.tokens, self.targets = ids

    def make_optimizer(self):
        how = {"fused": True} if self.args.variant != "torch-plain" and self.cuda else {"foreach": True}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.lr, **how)

    def autocast(self):
        return torch.autocast(self.args.device, dtype=self.lower) if self.lower else contextlib.nullcontext()

    def forward(self):
        with torch.no_grad(), self.autocast():
            self.net(self.tokens)

    def forward_backward(self):
        self.model.zero_grad(set_to_none=True)
        with self.autocast():
            logits = self.net(self.tokens)
        logits = logits.view(-1, logits.size(-1))
        loss = F.cross_entropy(logits.float() if self.widen_logits else logits, self.targets.view(-1))
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def step(self):
        self.forward_backward()
        if self.scaler and self.args.clip > 0:
            self.scaler.unscale_(self.optimizer)
        if self.args.clip > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def measure(self, name):
        work = {"forward": self.forward, "forward-backward": self.forward_backward, "step": self.step}[name]
        trajectory = []
        for i in range(self.args.warmup + self.args.steps):
            if i == self.args.warmup and self.cuda:
                torch.cuda.reset_peak_memory_stats()
            self.synchronize()
            start = time.perf_counter()
            work()
            self.synchronize()
            trajectory.append((time.perf_counter() - start) * 1e3)
        peak = torch.cuda.max_memory_allocated() if self.cuda else None

        def again():
            work()
            self.synchronize()

        return {
            "pass": name,
            "status": "ok",
            "samples_ms": trajectory[self.args.warmup:],
            "trajectory_ms": trajectory,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "peak_bytes": peak,
            "clocks": torch_machine.clocks(torch_machine.uuid_of(torch, self.args.gpu), again) if self.cuda else None,
        }


def out_of_memory(name):
    return {"pass": name, "status": "oom", "reason": "torch ran out of memory", "samples_ms": [], "trajectory_ms": []}


def run(args):
    if args.device == "cuda" and not torch.cuda.is_available():
        raise Unavailable("this torch (%s) sees no GPU" % torch.__version__)
    if args.device == "cuda":
        torch.cuda.set_device(args.gpu)
    if args.variant == "torch-compiled" and not hasattr(torch, "compile"):
        raise Unavailable("torch %s has no torch.compile; 2.0 or later has" % torch.__version__)
    if args.threads:
        torch.set_num_threads(args.threads)
    return torch_machine.machine(torch, args.device, args.gpu), passes(args)


def passes(args):
    # Cheapest first: a step leaves moments behind, which count as memory.
    order = ["forward", "forward-backward", "step"]
    names = sorted(args.passes.split(","), key=order.index)
    try:
        experiment = Experiment(args)
    except OutOfMemory:
        return [out_of_memory(name) for name in names]
    results = []
    for name in names:
        try:
            results.append(experiment.measure(name))
        except OutOfMemory:
            results.append(out_of_memory(name))
            experiment.model.zero_grad(set_to_none=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="torch-plain", choices=["torch-plain", "torch-best", "torch-compiled"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "tf32", "bf16", "fp16"])
    parser.add_argument("--pass", dest="passes", default="step", help="forward, forward-backward, step, with commas")
    for flag, default in (("d-model", 256), ("d-ff", 1024), ("layers", 4), ("heads", 8), ("vocab", 10000), ("ctx", 256),
                          ("batch", 4), ("warmup", 5), ("steps", 10), ("seed", 0), ("threads", 0), ("gpu", 0)):
        parser.add_argument("--" + flag, type=int, default=default)
    for flag, default in (("lr", 1e-4), ("clip", 0.0), ("rope-theta", 10000.0), ("norm-eps", 1e-5)):
        parser.add_argument("--" + flag, type=float, default=default)
    args = parser.parse_args()
    try:
        machine, results = run(args)
        reply = {"torch": torch.__version__, "cuda": torch.version.cuda, "threads": torch.get_num_threads(),
                 "machine": machine, "results": results}
    except Unavailable as error:
        reply = {"error": str(error)}
    except Exception as error:  # whatever it is, the other side wants one line
        reply = {"error": "%s: %s" % (type(error).__name__, str(error).split("\n")[0])}
    print(json.dumps(reply))
    return 0 if "results" in reply else 1


if __name__ == "__main__":
    sys.exit(main())
