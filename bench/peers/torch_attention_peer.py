#!/usr/bin/env python3
"""Attention in PyTorch, timed as `sinter bench attention` times its own: started by --peer, prints one JSON object.

  cudnn, flash, mem_eff, math   scaled_dot_product_attention with that backend alone (torch 2.3 on); on older ones math
                                is spelled out

Device time is between CUDA events, with caches emptied and the device kept busy so that the host is ahead of it; `wall`
is the clock around a synchronised pass, the host's part included. Inputs are normal random numbers. The reply has
`machine` (versions, date, threads, GPU) and per result all samples and, on a GPU, the clocks at work.
"""
import argparse
import json
import math
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(json.dumps({"error": "it cannot import torch (%s)" % error}))
    sys.exit(1)

sys.dont_write_bytecode = True  # no folder of it beside the scripts
import torch_machine

OutOfMemory = getattr(torch.cuda, "OutOfMemoryError", RuntimeError)
TYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
         "fp16": torch.float16}


class Unavailable(Exception):
    pass


def spelled_out(q, k, v, causal):
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        i = torch.arange(scores.shape[-1], device=scores.device)
        scores = scores.masked_fill(i[:, None] < i[None, :], float("-inf"))
    return torch.softmax(scores, -1) @ v


def attention_by(backend):
    """A function of q, k, v, causal, and what must hold around it."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        if backend != "math":
            raise Unavailable("torch %s cannot choose a backend; 2.3 or later can" % torch.__version__)
        return spelled_out
    name = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "mem_eff": "EFFICIENT_ATTENTION",
            "math": "MATH"}[backend]
    if not hasattr(SDPBackend, name):
        raise Unavailable("torch %s has no %s backend" % (torch.__version__, backend))
    kind = getattr(SDPBackend, name)

    def run(q, k, v, causal):
        more = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **more)

    return run


class Timer:
    def __init__(self, device, args):
        self.cuda, self.args = device == "cuda", args

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def passes(self, work, ahead):
        """work(mark) once per pass: the marks' times in ms since the start, and the wall clock's."""
        marks, walls, began = [], [], None
        for i in range(self.args.warmup + self.args.steps):
            if i == self.args.warmup:
                began = time.perf_counter()
            timed = i - self.args.warmup
            if timed >= 3 and self.args.seconds > 0 and time.perf_counter() - began > self.args.seconds:
                break
            self.synchronize()
            start = time.perf_counter()
            if ahead is not None:
                ahead.zero_()  # empties the caches, as ours does
                torch.cuda._sleep(2_000_000)  # about a millisecond: longer than the host needs to submit a pass
            times = []

            def mark():
                if self.cuda:
                    event = torch.cuda.Event(enable_timing=True)
                    event.record()
                    times.append(event)
                else:
                    times.append(time.perf_counter() * 1e3)

            mark()
            work(mark)
            self.synchronize()
            wall = (time.perf_counter() - start) * 1e3
            if timed < 0:
                continue
            walls.append(wall)
            marks.append([times[0].elapsed_time(t) if self.cuda else t - times[0] for t in times[1:]])
        return marks, walls


def measure(shape, backend, args):
    device, causal, both = shape["device"], shape["causal"], shape["pass"] != "forward"
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = shape["dtype"] == "tf32"
    torch.manual_seed(shape["seed"])
    f = attention_by(backend)

    def tensor(heads):
        return torch.randn(shape["batch"], heads, shape["ctx"], shape["head_dim"], device=device,
                           dtype=TYPES[shape["dtype"]])

    q, k, v, grad = tensor(shape["heads"]), tensor(shape["kv_heads"]), tensor(shape["kv_heads"]), tensor(shape["heads"])
    for x in (q, k, v):
        x.requires_grad_(both)

    def work(mark):
        o = f(q, k, v, causal)
        mark()
        if both:
            torch.autograd.grad(o, (q, k, v), grad)
            mark()

    held = None
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        o = f(q, k, v, causal)
        held = torch.cuda.memory_allocated() - before + sum(x.numel() * x.element_size() for x in (q, k, v))
        del o
        torch.cuda.reset_peak_memory_stats()
    timer = Timer(device, args)
    marks, walls = timer.passes(work, None)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    if device == "cuda":
        marks, _ = timer.passes(work, torch.empty(128 << 20, dtype=torch.float32, device=device))
    samples = {"forward": [m[0] for m in marks], "wall": walls}
    if both:
        samples["backward"] = [m[1] - m[0] for m in marks]
        samples["both"] = [m[1] for m in marks]

    def again():
        work(lambda: None)
        timer.synchronize()

    clocks = torch_machine.clocks(torch_machine.uuid_of(torch, args.gpu), again) if device == "cuda" else None
    return {"status": "ok", "samples_ms": samples, "held_bytes": held if both else None, "peak_bytes": peak,
            "clocks": clocks}


def run(args):
    shapes, results = json.loads(args.shapes), []
    machine = None
    if shapes and shapes[0]["device"] == "cuda" and not torch.cuda.is_available():
        raise Unavailable("this torch (%s) sees no GPU" % torch.__version__)
    if shapes and shapes[0]["device"] == "cuda":
        torch.cuda.set_device(args.gpu)
    if args.threads:
        torch.set_num_threads(args.threads)
    if shapes:
        machine = torch_machine.machine(torch, shapes[0]["device"], args.gpu)
    for shape in shapes:
        for backend in args.backends.split(","):
            try:
                result = measure(shape, backend, args)
            except OutOfMemory as error:
                full = "memory" in str(error)
                result = {"status": "oom" if full else "unavailable", "reason": str(error).split("\n")[0][:120]}
            except (Unavailable, RuntimeError) as error:
                result = {"status": "unavailable", "reason": str(error).split("\n")[0][:120]}
            if shape["device"] == "cuda":
                torch.cuda.empty_cache()
            results.append(dict(shape, attention=backend, **result))
    return machine, results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="math", help="cudnn, flash, mem_eff, math, with commas")
    parser.add_argument("--shapes", required=True,
                        help="a JSON list: device, batch, heads, kv_heads, ctx, head_dim, causal, dtype, pass, seed")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0, help="at most so long per shape and backend; 0: all steps")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--gpu", type=int, default=0, help="which one, by CUDA's ordinal")
    args = parser.parse_args()
    try:
        machine, results = run(args)
        reply = {"torch": torch.__version__, "cuda": torch.version.cuda, "machine": machine, "results": results}
    except Unavailable as error:
        reply = {"error": str(error)}
    except Exception as error:  # whatever it is, the other side wants one line
        reply = {"error": "%s: %s" % (type(error).__name__, str(error).split("\n")[0])}
    print(json.dumps(reply))
    return 0 if "results" in reply else 1


if __name__ == "__main__":
    sys.exit(main())
