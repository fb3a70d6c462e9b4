#!/usr/bin/env python3
"""sinter's attention inside PyTorch: an autograd function over libsinter.so, by ctypes, without a build step.

    from torch_flash import attention
    out = attention(q, k, v, causal=True)      # (batch, heads, positions, head dimension), CPU or CUDA; backward works

Run as a program it checks itself against torch's own attention, forward and backward, and prints how the two compare.
The library is $SINTER_LIBRARY, else build/libsinter.so beside this folder, else the installed one.
"""
import ctypes
import ctypes.util
import math
import os
import pathlib
import sys
import time

import torch

DTYPES = {torch.float64: 0, torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
DEVICES = {"cpu": 0, "cuda": 1}


class _Tensor(ctypes.Structure):  # sinter_tensor
    _fields_ = [("data", ctypes.c_void_p), ("dims", ctypes.c_int64 * 4), ("strides", ctypes.c_int64 * 4),
                ("dtype", ctypes.c_int32), ("reserved", ctypes.c_int32)]


class _Attention(ctypes.Structure):  # sinter_attention
    _fields_ = [("struct_size", ctypes.c_size_t), ("device", ctypes.c_int32), ("causal", ctypes.c_int32),
                ("causal_offset", ctypes.c_int64), ("scale", ctypes.c_double), ("deterministic", ctypes.c_int32),
                ("kernel", ctypes.c_int32), ("tile", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("stream", ctypes.c_void_p), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t),
                ("q", _Tensor), ("k", _Tensor), ("v", _Tensor), ("o", _Tensor), ("lse", ctypes.c_void_p),
                ("d_o", _Tensor), ("dq", _Tensor), ("dk", _Tensor), ("dv", _Tensor)]


def _load():
    beside = pathlib.Path(__file__).resolve().parent.parent / "build" / "libsinter.so"
    path = os.environ.get("SINTER_LIBRARY") or (str(beside) if beside.exists() else ctypes.util.find_library("sinter"))
    if not path:
        raise ImportError(f"libsinter.so was not found: build sinter ({beside}), install it, or set SINTER_LIBRARY")
    library = ctypes.CDLL(path)
    library.sinter_last_error.restype = ctypes.c_char_p
    for name in ("sinter_attention_forward", "sinter_attention_backward"):
        getattr(library, name).argtypes = [ctypes.POINTER(_Attention)]
    library.sinter_attention_backward_workspace.argtypes = [ctypes.POINTER(_Attention), ctypes.POINTER(ctypes.c_size_t)]
    return library


_library = _load()
_gpu = {}  # the one this process uses
_workspaces = {}  # bytes that backward wants, by device, type and shapes


def _run(function, *arguments):
    if getattr(_library, function)(*arguments) != 0:
        raise RuntimeError(_library.sinter_last_error().decode())


def _describe(t):
    if t.dtype not in DTYPES:
        raise TypeError(f"sinter's attention takes float tensors, not {t.dtype}")
    if t.dim() != 4:
        raise ValueError(f"expected (batch, heads, positions, head dimension), not {tuple(t.shape)}")
    return _Tensor(t.data_ptr(), tuple(t.shape), tuple(t.stride()), DTYPES[t.dtype], 0)


def _call(causal, causal_offset, scale, deterministic, **tensors):
    q = tensors["q"]
    for name, t in tensors.items():
        if t.device != q.device:
            raise ValueError(f"q is on {q.device}, {name} on {t.device}")
    if q.device.type not in DEVICES:
        raise ValueError(f"sinter's attention runs on the CPU or CUDA, not {q.device}")
    a = _Attention(struct_size=ctypes.sizeof(_Attention), device=DEVICES[q.device.type], causal=causal,
                   causal_offset=causal_offset, scale=scale, deterministic=deterministic)
    if q.is_cuda:
        a.stream = torch.cuda.current_stream(q.device).cuda_stream
    for name, t in tensors.items():
        setattr(a, name, t.data_ptr() if name == "lse" else _describe(t))
    return a


def _rows(t):
    """As it is, unless a row's elements do not lie side by side: views of a merged q|k|v product are not copied."""
    return t if t.stride(-1) == 1 or t.size(-1) == 1 else t.contiguous()


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, causal_offset, scale, deterministic):
        q, k, v = _rows(q), _rows(k), _rows(v)
        batch, heads, n, d = q.shape
        # Laid out as (batch, positions, heads, head dimension): joining the heads afterwards is a view.
        o = torch.empty(batch, n, heads, d, dtype=q.dtype, device=q.device).transpose(1, 2)
        lse = torch.empty(batch, heads, n, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32,
                          device=q.device)
        ctx.options = (causal, causal_offset, scale, deterministic)
        with torch.cuda.device_of(q):
            _run("sinter_attention_forward", ctypes.byref(_call(*ctx.options, q=q, k=k, v=v, o=o, lse=lse)))
        ctx.save_for_backward(q, k, v, o, lse)
        return o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        q, k, v, o, lse = ctx.saved_tensors
        dq, dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
        with torch.cuda.device_of(q):
            a = _call(*ctx.options, q=q, k=k, v=v, o=o, lse=lse, d_o=_rows(grad), dq=dq, dk=dk, dv=dv)
            # From torch's allocator, so that all the memory is in one pool.
            shape = (q.device, q.dtype, q.shape, k.shape)
            if shape not in _workspaces:
                need = ctypes.c_size_t()
                _run("sinter_attention_backward_workspace", ctypes.byref(a), ctypes.byref(need))
                _workspaces[shape] = max(1, need.value)
            workspace = torch.empty(_workspaces[shape], dtype=torch.uint8, device=q.device)
            a.workspace, a.workspace_bytes = workspace.data_ptr(), workspace.numel()
            _run("sinter_attention_backward", ctypes.byref(a))
        return dq, dk, dv, None, None, None, None


def attention(q, k, v, causal=False, causal_offset=0, scale=None, deterministic=False):
    """softmax(scale · q·kᵀ) · v. k and v may have fewer heads than q. Query i sees keys j <= i + causal_offset."""
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    if scale == 0:
        raise ValueError("scale is 0, by which the library means 1/sqrt(d); every score would be the same")
    if q.is_cuda and _gpu.setdefault("index", q.device.index) != q.device.index:
        raise ValueError(f"sinter serves one GPU per process: cuda:{_gpu['index']} came first, this is {q.device}")
    return FlashAttention.apply(q, k, v, causal, causal_offset, scale, deterministic)


def reference(q, k, v, causal=False, causal_offset=0):
    """The same with torch's operations, which keep the scores."""
    k, v = (t.repeat_interleave(q.size(1) // t.size(1), dim=1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if causal:
        hidden = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).tril(causal_offset).logical_not()
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


def torch_attention(q, k, v, causal):
    """What a user of torch would call: its fused attention, from 2.0 on."""
    fused = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if fused is None or q.size(1) != k.size(1):
        return reference(q, k, v, causal)
    return fused(q, k, v, is_causal=causal)


def _error(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def _check(device, dtype, heads, kv_heads, n, d, causal, merged):
    """The largest relative error of o, dq, dk, dv against the reference in float64."""
    generator = torch.Generator().manual_seed(0)
    if merged:  # q, k and v as views of one product
        qkv = torch.randn(2, n, (heads + 2 * kv_heads) * d, generator=generator).to(device, dtype)
        widths = [heads * d, kv_heads * d, kv_heads * d]
        parts = [t.unflatten(-1, (-1, d)).transpose(1, 2) for t in qkv.split(widths, -1)]
    else:
        parts = [torch.randn(2, h, n, d, generator=generator).to(device, dtype) for h in (heads, kv_heads, kv_heads)]
    ours = [t.detach().requires_grad_() for t in parts]
    exact = [t.detach().double().requires_grad_() for t in parts]
    assert not merged or not ours[0].is_contiguous()
    o, e = attention(*ours, causal=causal), reference(*exact, causal=causal)
    grad = torch.randn(e.shape, generator=generator).to(device, dtype)
    o.backward(grad), e.backward(grad.double())
    return max([_error(o, e)] + [_error(a.grad, b.grad) for a, b in zip(ours, exact)])


def _time(function, device, repeats):
    times = []
    for _ in range(repeats + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[2:])[repeats // 2] * 1e3


def main():
    quick = "--quick" in sys.argv
    failures = 0
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    print(f"torch {torch.__version__}, libsinter {_library.sinter_version()}")
    bounds = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
    for device in devices:
        for dtype, bound in bounds.items():
            if device == "cuda" and dtype == torch.float64:
                continue
            for heads, kv_heads, n, d, causal, merged in [(4, 4, 65, 64, True, False), (4, 2, 130, 80, True, True),
                                                          (6, 1, 33, 128, False, True)]:
                try:
                    error = _check(device, dtype, heads, kv_heads, n, d, causal, merged)
                    verdict = "ok" if error <= bound else "WRONG"
                except RuntimeError as why:
                    error, verdict = math.nan, f"REFUSED: {why}"
                failures += verdict != "ok"
                print(f"{device} {str(dtype)[6:]:8} heads {heads}/{kv_heads} N {n:3} d {d:3} "
                      f"{'causal' if causal else 'full':6} {'views' if merged else 'contiguous':10} "
                      f"error {error:.1e}  {verdict}")

    print("\nforward + backward, causal, batch 1, 8 heads, d 64; medians in ms")
    for device in devices:
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        for n in [256] if quick else [512, 1024, 2048] if device == "cpu" else [1024, 4096, 16384]:
            q, k, v = (torch.randn(1, 8, n, 64, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
            grad = torch.randn(1, 8, n, 64, device=device, dtype=dtype)
            repeats = 3 if quick else 10
            ours = _time(lambda: attention(q, k, v, causal=True).backward(grad), device, repeats)
            theirs = _time(lambda: torch_attention(q, k, v, True).backward(grad), device, repeats)
            print(f"{device} {str(dtype)[6:]:8} N {n:5}: sinter {ours:8.2f}   torch {theirs:8.2f}   "
                  f"torch ÷ sinter {theirs / ours:.2f}")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
