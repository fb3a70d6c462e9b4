#!/usr/bin/env python3
"""The tables of docs/results, made from the records beside them:

    python3 bench/results_tables.py            writes them into the pages
    python3 bench/results_tables.py --check    changes nothing; says what is wrong, and then ends with 1

A page holds a table between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a function of this file. Checked are:

- every table is what its records give;
- no record and no text comes from an uncommitted build;
- a commit that a page names is that of a record its tables are made from, or of a file it links to;
- links lead to files, no file lies here without a table or a link, and all together stay under 2 MiB.

Times are medians over all timed passes of all records of a row, unless a page says otherwise.
"""
import json
import pathlib
import re
import statistics
import sys

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "results"
SIZES = ["small", "medium", "large", "xl", "2.7B"]
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
LIMIT = 2 << 20


class Records:
    """Reads records and remembers, for the caption of a table and for the checks, which."""

    def __init__(self):
        self.patterns, self.used, self.in_caption = [], set(), True

    def read(self, pattern):
        paths = sorted(RESULTS.glob(pattern))
        if not paths:
            raise FileNotFoundError(f"no record is called {pattern}")
        self.used.update(paths)
        if pattern not in self.patterns:
            self.patterns.append(pattern)
        return [json.loads(path.read_text()) for path in paths]

    def results(self, pattern):
        return [result for record in self.read(pattern) for result in record["results"]]

    def caption(self):
        """Which records, of which commits, days and peers; those that agree in all of it together."""
        groups = {}
        for pattern in self.patterns:
            paths = sorted(RESULTS.glob(pattern))
            commits, days, peers = set(), set(), set()
            for path in paths:
                record = json.loads(path.read_text())
                commits.add(commit_of(record))
                days.add((date_of(record) or "")[:10])
                if isinstance(record, dict):
                    peers |= {r["engine"] for r in record.get("results", []) if not is_ours(r)}
            what = ["sinter " + " and ".join(f"`{c}`" for c in sorted(commits - {None}))] if commits - {None} else []
            what += sorted(days - {""}) + sorted(peers)
            name = f"`{pattern}`" if "*" in pattern else f"[{pattern}]({pattern})"
            groups.setdefault(", ".join(what), []).append(name)
        parts = [", ".join(names) + (f" ({what})" if what else "") for what, names in groups.items()]
        return "From " + "; ".join(parts) + "."


def commit_of(record):
    """The commit of the build that wrote a record, seven digits; None where it has none."""
    if not isinstance(record, dict):
        return None
    commit = record.get("commit") or record.get("machine", {}).get("sinter", {}).get("commit")
    return commit and commit[:7]


def date_of(record):
    if not isinstance(record, dict):
        return None
    return record.get("date") or record.get("machine", {}).get("date") or record.get("context", {}).get("date")


def only(results, **wanted):
    return [r for r in results if all(r.get(k) == v for k, v in wanted.items())]


def is_ours(result):
    return result.get("engine", "sinter") == "sinter"


def median(results, phase=None):
    if phase is None:
        return statistics.median(ms for r in results for ms in r["samples_ms"])
    if phase == "wall":
        return statistics.median(ms for r in results for ms in r["wall"]["samples_ms"])
    return statistics.median(ms for r in results for ms in r["phases"][phase]["samples_ms"])


def fastest(results, phase=None):
    return min(ms for r in results for ms in (r["phases"][phase] if phase else r)["samples_ms"])


def number(x):
    """Three digits that count."""
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 1 else f"{x:.3f}"


def gib(size):
    return f"{size / 2**30:.2f}" if size else "–"


def percent(x):
    return f"{100 * x:.1f}"


def table(header, rows):
    return ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]


# compiled.md

def compiled_now(records):
    results = records.results("h200-compiled/now/new.*.json")
    rows = []
    for size in SIZES:
        these = only(results, size=size)
        equal = all(r["peak_bytes"] == r["predicted_peak_bytes"] for r in these)
        rows.append([size, number(median(these)), number(statistics.median(r["floor_ms"] for r in these)),
                     f"{median(these) / these[0]['floor_ms']:.2f}",
                     f"{statistics.median(r['tokens_per_s'] for r in these) / 1e3:.1f}k",
                     gib(max(r["peak_bytes"] for r in these)), "equal" if equal else "DIFFERS"])
    return table(["size", "ms", "floor ms", "× floor", "tokens/s", "peak GiB", "its prediction"], rows)


def graphs_rows(records):
    peers = {r["size"]: r for r in records.read("h200-compiled/torch_graphs.json")[0]}
    eager = {r["size"]: r for r in records.read("h200-compiled/torch_other_days.json")[0] if r["compile"] == "eager"}
    ours = records.results("h200-compiled/ours_*.json")
    for size in SIZES:
        forward, step = only(ours, size=size, **{"pass": "forward"}), only(ours, size=size, **{"pass": "step"})
        yield size, forward, step, peers[size], eager[size]


def compiled_graphs(records):
    rows = []
    for size, forward, step, peer, eager in graphs_rows(records):
        floor = statistics.mean(r["floor_ms"] for r in step)
        peak = max(r["peak_bytes"] for r in step)
        rows.append([size, number(peer["fwd"]), number(median(forward)), f"**{peer['fwd'] / median(forward):.2f}**",
                     f"{number(peer['step'])} ± {peer['step_std']:.2f}", number(median(step)),
                     f"**{peer['step'] / median(step):.2f}**", number(floor), f"{median(step) / floor:.2f}", gib(peak),
                     f"{peak / 2**30 / eager['step_peak_gb']:.2f}"])
    return table(["size", "forward: PyTorch ms", "sinter", "ratio", "step: PyTorch ms", "sinter", "ratio", "floor ms",
                  "× floor", "sinter's peak GiB", "÷ eager PyTorch's"], rows)


def compiled_blocks(records):
    ours = records.results("h200-compiled/sizes_fp32_tf32.json")
    peers = records.read("h200-compiled/torch_blocks.json")[0]
    rows = []
    for size in SIZES:
        row = [size]
        for dtype in ("fp32", "tf32"):
            mine, (peer,) = only(ours, size=size, dtype=dtype), only(peers, size=size, dtype=dtype)
            row += [f"{number(peer['step'])} ± {peer['step_std']:.2f}", number(median(mine)),
                    f"**{peer['step'] / median(mine):.2f}**"]
        rows.append(row)
    return table(["size", "fp32: PyTorch ms", "sinter", "ratio", "tf32: PyTorch ms", "sinter", "ratio"], rows)


def compile_time(records):
    rows = []
    for r in sorted(records.results("h200-compiled/ours_*.2.json"), key=lambda r: SIZES.index(r["size"])):
        c = r["compiled"]
        rows.append([r["size"], r["pass"], number(c["trace_ms"]), number(c["passes_ms"]), number(c["build_ms"]),
                     number(c["first_run_ms"]), number(c["capture_ms"]),
                     number(r["trajectory_ms"][0] - median([r]))])
    return table(["size", "pass", "trace ms", "passes ms", "build ms", "the rest of the first run ms", "capture ms",
                  "first pass beyond a later one ms"], rows)


# eager.md

def beside_plain(records):
    names = ("ratios", "ratios_xl_fp32", "ratios_2.7B")
    return [r for name in names for r in records.results(f"h200-eager/{name}.json")]


def eager_ratios(records):
    results = beside_plain(records)
    rows = []
    for peer in results:
        if is_ours(peer):
            continue
        mine = [r for r in results if is_ours(r) and all(r[k] == peer[k] for k in ("size", "dtype", "pass"))]
        a, b, m, n = median(mine), median([peer]), max(r["peak_bytes"] for r in mine), peer["peak_bytes"]
        rows.append([peer["size"], peer["dtype"], peer["pass"], number(a), number(b), f"**{b / a:.2f}**", gib(m),
                     gib(n), f"{m / n:.3f}"])
    rows.sort(key=lambda row: (SIZES.index(row[0]), row[1], row[2]))
    return table(["size", "dtype", "pass", "sinter ms", "PyTorch ms", "ratio", "sinter's peak GiB", "PyTorch's",
                  "memory, ours ÷ theirs"], rows)


def eager_now(records):
    results = records.results("h200-eager/now/new.*.json")
    return table(["size", "ms", "peak GiB"],
                 [[size, number(median(only(results, size=size))),
                   gib(max(r["peak_bytes"] for r in only(results, size=size)))] for size in ("small", "2.7B")])


def eager_sweep(records):
    results = records.results("h200-eager/sweep.json")
    contexts = sorted({r["ctx"] for r in results})
    rows = [[size, dtype] + [f"{number(median(cell))} ({percent(cell[0]['mfu'])} %)"
                             for ctx in contexts for cell in [only(results, size=size, dtype=dtype, ctx=ctx)]]
            for size in SIZES for dtype in ("fp32", "tf32", "bf16")]
    return table(["size", "dtype"] + [f"ctx {ctx}" for ctx in contexts], rows)


def eager_warmup(records):
    results = records.results("h200-eager/warmup.json")
    rows = [[str(r["warmup"]), number(r["mean_ms"]), number(r["median_ms"]), number(r["std_ms"])] for r in results]
    once = ", ".join(f"{what} {number(ms)} ms" for what, ms in results[0]["startup_ms"].items())
    return table(["warm-up passes", "mean ms", "median ms", "std ms"], rows) + ["", f"One-time costs: {once}."]


def host_cost(records):
    rows = []
    for folder in ("h200-eager", "h200-profile"):
        (record,) = records.read(f"{folder}/host_cost.json")
        times = {b["name"].split("/")[0]: b["real_time"] for b in record["benchmarks"]
                 if b.get("aggregate_name", "median") == "median"}
        for call, recorded, bare in (("`add` of two, 64 × 64", "recorded_add", "bare_launch"),
                                     ("product, 64 × 64 × 64, bf16", "recorded_product", "bare_cublaslt")):
            meta = times["dispatch_add" if recorded == "recorded_add" else "dispatch_linear"]
            rows.append([folder, call, f"{times[recorded] / 2e5:.2f}",  # ns a burst of 200 calls, as µs a call
                         f"{times[bare] / 2e5:.2f}", f"{times[recorded] / times[bare]:.2f}", f"{meta / 1e3:.2f}"])
    return table(["folder", "call", "recorded µs", "bare µs", "ratio", "without a launch µs"], rows)


# attention.md

def three(mine, peer):
    phases = [p for p in ("forward", "backward", "both") if p in peer["phases"]]
    return [f"{median([peer], p) / median([mine], p):.2f}" for p in phases] + ["–"] * (3 - len(phases))


def attention_peers(records):
    rows = []
    for name, shape in (("leaderboard_peers", "b1 h16 N16384 d64, the leaderboard's"),
                        ("d128_long", "b2 h16 N16384 d128"), ("d64_long", "b2 h32 N16384 d64"),
                        ("d128_short", "b16 h16 N2048 d128"), ("d64_short", "b16 h32 N2048 d64"),
                        ("full", "b2 h16 N16384 d128, no mask")):
        results = records.results(f"h200-attention/{name}.json")
        for kernel, backend in (("flash", "cudnn"), ("portable", "flash")):
            mine = [r for r in results if is_ours(r) and r["attention"] == kernel]
            peer = [r for r in results if not is_ours(r) and r["attention"] == backend]
            if mine and peer:
                last = "both" if "both" in mine[0]["phases"] else "forward"
                theirs = {"cudnn": "cuDNN", "flash": "FlashAttention 2"}[backend]
                rows.append([shape, kernel, theirs, *three(mine[0], peer[0]), number(median(mine, last)),
                             number(mine[0]["phases"][last]["tflops"])])
    return table(["shape", "sinter's kernel", "PyTorch's", "forward", "backward", "both", "sinter ms", "TFLOP/s"], rows)


def one_head_cell(results, **shape):
    cell = only(results, **shape)
    mine, peers = [r for r in cell if is_ours(r)], [r for r in cell if not is_ours(r) and r["status"] == "ok"]
    return mine, peers


def better(mine, peers, phase):
    return f"{min(median([p], phase) for p in peers) / median(mine, phase):.2f}"


def attention_one_head(records):
    results = records.results("h200-attention/one_head.json")
    rows = []
    for d in (16, 32, 64, 128):
        row = [str(d)]
        for ctx in (128, 1024):
            mine, peers = one_head_cell(results, head_dim=d, ctx=ctx)
            row.append(better(mine, peers, "wall"))
        for ctx in (8192, 32768, 65536):
            mine, peers = one_head_cell(results, head_dim=d, ctx=ctx)
            row.append(" / ".join(better(mine, peers, p) for p in ("forward", "backward", "both")))
        rows.append(row)
    return table(["d", "N 128, with the host's part", "N 1024, with the host's part", "N 8192", "N 32768", "N 65536"],
                 rows)


def attention_fp32(records):
    results = records.results("h200-attention/fp32.json")
    rows = []
    for d in (16, 32, 64, 128):
        row = [str(d)]
        for ctx in (8192, 32768):
            mine, peers = one_head_cell(results, head_dim=d, ctx=ctx)
            row.append(" / ".join(better(mine, peers, p) for p in ("forward", "backward", "both")))
        rows.append(row)
    return table(["d", "N 8192", "N 32768"], rows)


def attention_deterministic(records):
    results = records.results("h200-attention/leaderboard.json")
    rows = []
    for kernel in ("flash", "portable"):
        free, fixed = (only(results, attention=kernel, deterministic=x) for x in (False, True))
        rows.append([kernel, number(median(free, "backward")), number(median(fixed, "backward")),
                     f"{median(fixed, 'backward') / median(free, 'backward'):.2f}"])
    return table(["kernel", "backward ms", "with `--deterministic`", "ratio"], rows)


def attention_sweep(records):
    results = records.results("h200-attention/sweep.json")
    contexts = sorted({r["ctx"] for r in results})
    rows = []
    for d in (64, 128):
        for kernel in ("naive", "flash"):
            cells = [only(results, head_dim=d, attention=kernel, ctx=ctx)[0] for ctx in contexts]
            last = cells[-1]
            times = [number(median([c], "both")) if c["status"] == "ok" else c["status"] for c in cells]
            rows.append([str(d), kernel, *times, f"{last['held_bytes'] / 2**20:.0f}" if last["held_bytes"] else "–"])
    return table(["d", "attention"] + [f"N {ctx}" for ctx in contexts] + [f"held at N {contexts[-1]}, MiB"], rows)


# profile.md and memory.md

def profile_shares(records):
    results = records.results("h200-profile/profile.json")
    cells = [only(results, size=size, dtype="bf16", ctx=256)[0] for size in SIZES]

    def row(name, value):
        return [name] + [value(c) for c in cells]

    def attention(c, unit):
        forward = c["attention_parts"]["forward"]
        return percent(forward[f"softmax_{unit}"] / forward[f"products_{unit}"])

    whole = [next(p for p in c["phases"] if p["phase"] in ("step", "pass", "whole pass")) for c in cells]
    rows = [row("wall clock ms", lambda c: number(c["wall_ms"])),
            row("products, % of forward", lambda c: percent(c["phases"][0]["gemm_share"])),
            ["products, % of the step"] + [percent(w["gemm_share"]) for w in whole],
            row("softmax ÷ products inside attention, time %", lambda c: attention(c, "ms")),
            row("the same in FLOPs, %", lambda c: attention(c, "flops")),
            row("idle, % of the time between device events",
                lambda c: percent(c["device_time"]["idle_ms"] / c["device_time"]["between_events_ms"]))]
    closed = [r["device_time"]["busy_and_idle_to_events"] for r in results]
    slow = {dtype: [r["slowdown"] - 1 for r in only(results, dtype=dtype)] for dtype in ("fp32", "bf16")}
    lost, nameless = (sum(r["attribution"][k] for r in results) for k in ("dropped", "unattributed"))
    return table(["bf16, ctx 256"] + SIZES, rows) + [
        "", f"In all {len(results)} configurations together, kernels without a range: {nameless:.0f}; records lost:"
        f" {lost:.0f}. Busy and idle time together are {100 * min(closed):.2f} to {100 * max(closed):.2f} % of the time"
        f" between device events. Recording made the median pass slower by at most {percent(max(slow['fp32']))} % in"
        f" fp32 and {percent(max(slow['bf16']))} % in bf16."]


def memory_peaks(records):
    results = records.results("h200-memory/memory.json")
    rows = []
    for size in SIZES:
        for name in ("forward", "step"):
            for dtype in ("fp32", "bf16"):
                cells = {r["ctx"]: r for r in only(results, size=size, dtype=dtype, **{"pass": name})}
                rows.append([size, name, dtype] + [gib(cells[ctx]["peak_bytes"]) for ctx in (128, 256, 512)])
    equal = sum(r["predicted_phases_equal"] and r["predicted_peak_bytes"] == r["peak_bytes"] for r in results)
    device = [r["predicted_device_bytes"] / r["device_bytes"] for r in results]
    return table(["size", "pass", "dtype", "ctx 128", "256", "512"], rows) + [
        "", f"In {equal} of {len(results)} configurations the prediction was equal to the byte in every phase; memory"
        f" in use on the device, context and libraries included, was predicted at {min(device):.3f} to"
        f" {max(device):.3f} of what it was."]


# cpu.md

def modes(results):
    for size in ("tiny", "mini"):
        eager, compiled = (only(results, size=size, mode=mode) for mode in ("eager", "compiled"))
        each = ", ".join(f"{median([e]) / median([c]):.2f}" for e, c in zip(eager, compiled))
        yield [size, f"{number(median(eager))} ({number(fastest(eager))})",
               f"{number(median(compiled))} ({number(fastest(compiled))})",
               f"**{median(eager) / median(compiled):.2f}** ({fastest(eager) / fastest(compiled):.2f})", each]


def cpu_modes(records):
    rows = []
    for pattern, machine in (("cpu-compiled/two_threads.*.json", "AMD EPYC, 2 threads"),
                             ("cpu-compiled/sixteen_threads.*.json", "Intel Xeon, 16 threads")):
        results = records.results(pattern)
        rows += [[machine, *row] for row in modes(results)]
    return table(["machine", "size", "eager ms", "compiled ms", "eager ÷ compiled", "of each run"], rows)


def beside_torch_1(records):
    """Size, mode, our results and the peer's: each mode's peer ran between two runs of ours."""
    results = records.results("cpu-compiled/cpu.json")
    for size in ("tiny", "mini"):
        peers = [r for r in only(results, size=size) if not is_ours(r)]
        for mode, peer in zip(("eager", "compiled"), peers):
            yield size, mode, [r for r in only(results, size=size, mode=mode) if is_ours(r)], peer


def cpu_torch(records):
    rows = []
    for size, mode, mine, peer in beside_torch_1(records):
        rows.append([size, mode, number(median(mine)), f"{number(median([peer]))} ± {peer['std_ms']:.0f}",
                     f"**{median([peer]) / median(mine):.2f}**", f"{max(r['peak_bytes'] for r in mine) / 2**20:.0f}"])
    return table(["size", "sinter's mode", "sinter ms", "PyTorch ms", "ratio", "sinter's peak MiB"], rows)


def cpu_torch_sixteen(records):
    ours = records.results("cpu-compiled/sixteen_threads.*.json")
    rows = []
    for peer in records.read("cpu-compiled/torch_sixteen_threads.json")[0]:
        mine = only(ours, size=peer["size"], mode="compiled")
        rows.append([peer["size"], number(median(mine)), f"{number(peer['step'])} ± {peer['step_std']:.1f}",
                     f"**{peer['step'] / median(mine):.2f}**"])
    return table(["size", "sinter compiled ms", "PyTorch ms", "ratio"], rows)


def cpu_old_openblas(records):
    results = records.results("cpu-compiled/old_openblas.json")
    rows = []
    for dtype in ("fp32", "bf16"):
        eager, compiled = (only(results, dtype=dtype, mode=mode) for mode in ("eager", "compiled"))
        rows.append([dtype, f"{number(median(eager))} ({number(fastest(eager))})",
                     f"{number(median(compiled))} ({number(fastest(compiled))})",
                     f"{median(eager) / median(compiled):.2f} ({fastest(eager) / fastest(compiled):.2f})"])
    return table(["dtype", "eager ms", "compiled ms", "eager ÷ compiled"], rows)


def cpu_attention(records):
    results = records.results("cpu-compiled/attention.*.json")
    rows = []
    for d in (64, 128):
        for dtype in ("fp32", "bf16"):
            row = [str(d), dtype]
            for ctx in (512, 1024, 2048):
                cell = only(results, head_dim=d, dtype=dtype, ctx=ctx)
                naive, flash = (fastest(only(cell, attention=kernel), "both") for kernel in ("naive", "flash"))
                row.append(f"{number(naive)} → {number(flash)} ({naive / flash:.1f})")
            rows.append(row)
    return table(["d", "dtype", "N 512", "N 1024", "N 2048"], rows)


# ranks.md

def ranks_allreduce(records):
    results = records.results("ranks/allreduce.json")
    rows = []
    for shm in only(results, backend="shm"):
        (gloo,) = only(results, backend="gloo", ranks=shm["ranks"], bytes=shm["bytes"])
        rows.append([str(shm["ranks"]), f"{shm['bytes'] / 1e6:g}", number(shm["median_ms"]), number(gloo["median_ms"]),
                     f"**{gloo['median_ms'] / shm['median_ms']:.1f}**", number(shm["busbw_gbs"]),
                     number(gloo["busbw_gbs"]), "yes" if shm["verified"] and gloo["verified"] else "NO"])
    return table(["ranks", "MB", "shm ms", "gloo ms", "gloo ÷ shm", "shm busbw GB/s", "gloo busbw GB/s", "verified"],
                 rows)


def beside_torch_gloo(records):
    results = records.results("ranks/allreduce_torch.json")
    for theirs in only(results, backend="torch-gloo"):
        key = {"ranks": theirs["ranks"], "bytes": theirs["bytes"]}
        (shm,), (gloo,) = (only(results, backend=name, **key) for name in ("shm", "gloo"))
        yield theirs, shm, gloo


def ranks_torch_gloo(records):
    return table(["ranks", "MB", "shm ms", "gloo ms", "PyTorch's Gloo ms", "PyTorch ÷ shm", "PyTorch ÷ gloo"],
                 [[str(theirs["ranks"]), f"{theirs['bytes'] / 1e6:g}", number(median([shm])), number(median([gloo])),
                   number(median([theirs])), f"**{median([theirs]) / median([shm]):.1f}**",
                   f"{median([theirs]) / median([gloo]):.2f}"] for theirs, shm, gloo in beside_torch_gloo(records)])


def strategy_name(result):
    bucket = f" {result['bucket_mb']:g} MiB" if result.get("bucket_mb") else ""
    return (result["strategy"] if is_ours(result) else result["engine"]) + bucket


def by_strategy(results):
    rows = []
    for r in results:
        (none,) = only(results, mode=r["mode"], strategy="none")
        talks = r["strategy"] != "none"
        rows.append([r["mode"], strategy_name(r), f"{number(median([r]))} ({number(fastest([r]))})",
                     f"{median([r]) / median([none]):.3f} ({fastest([r]) / fastest([none]):.3f})",
                     number(r["communication_ms"]) if talks else "", number(r["exposed_ms"]) if talks else "",
                     f"{100 * r['overlap']:.0f} %" if talks else "", str(r["collectives"]) if talks else "",
                     f"{r['peak_bytes'] / 2**20:.0f}"])
    return table(["mode", "strategy", "step ms", "÷ none", "communication ms", "exposed ms", "overlap", "calls",
                  "MiB a rank"], rows)


def ranks_ddp(records):
    return by_strategy(records.results("ranks/ddp_2_ranks.json"))


def ranks_bucket_model(records):
    rows = []
    results = records.results("ranks/ddp_2_ranks.json")
    for r in only(results, strategy="bucketed"):
        (none,) = only(results, mode=r["mode"], strategy="none")
        m = r["model"]
        rows.append([r["mode"], f"{r['bucket_mb']:g}", f"{m['buckets']:.0f}", number(m["overhead_ms"]),
                     number(median([r]) - median([none])), f"{m['best_bucket_mb']:.2g}"])
    return table(["mode", "bucket MiB", "buckets", "model ms", "measured ms", "best bucket by the model, MiB"], rows)


def ranks_torch_ddp(records):
    results = records.results("ranks/ddp_torch.json")
    theirs = [r for r in results if not is_ours(r) and r["strategy"] != "none"]
    rows = []
    for r in results:
        ratio = f"**{median(theirs) / median([r]):.2f}**" if is_ours(r) and r["strategy"] != "none" else ""
        rows.append([strategy_name(r), f"{number(median([r]))} ({number(fastest([r]))})", ratio])
    return table(["step", "ms", "PyTorch's DDP ÷ this"], rows)


def ranks_one(records):
    results = records.results("ranks/ddp_1_rank.json")
    rows = []
    for mode in ("eager", "compiled"):
        (none,), (ddp,) = (only(results, mode=mode, strategy=s) for s in ("none", "bucketed"))
        rows.append([mode, f"{number(median([none]))} ({number(fastest([none]))})",
                     f"{number(median([ddp]))} ({number(fastest([ddp]))})",
                     f"{median([ddp]) / median([none]):.3f} ({fastest([ddp]) / fastest([none]):.3f})"])
    return table(["mode", "without ranks, ms", "one rank, ms", "ratio"], rows)


STATE = ("parameter", "16-bit copy", "gradient", "optimizer state")


def by_level(results):
    rows = []
    for r in results:
        (none,) = only(results, mode=r["mode"], level="none")
        rows.append([r["mode"], r["level"], f"{number(median([r]))} ({number(fastest([r]))})",
                     f"{median([r]) / median([none]):.3f} ({fastest([r]) / fastest([none]):.3f})",
                     f"{r['bytes_moved'] / 1e6:.0f}", str(r["collectives"]), number(r["communication_ms"]),
                     number(r["exposed_ms"]), f"{100 * r['overlap']:.0f} %", f"{r['peak_bytes'] / 2**20:.0f}",
                     "equal" if r["peak_bytes"] == r["predicted_peak_bytes"] else f"{r['predicted_peak_bytes']}"])
    return table(["mode", "level", "step ms", "÷ none", "MB a rank sends", "calls", "communication ms", "exposed ms",
                  "overlap", "MiB a rank", "predicted"], rows)


def ranks_shard(records):
    return by_level(records.results("ranks/shard_2_ranks.json"))


def peaks_by_level(results):
    """Bytes of state for each parameter, beside what the level's formula gives without units on their way."""
    formula = {"none": lambda d: 18, "broadcast": lambda d: 10 + 8 / d, "optimizer": lambda d: 6 + 12 / d,
               "gradients": lambda d: 2 + 16 / d, "parameters": lambda d: 16 / d}
    rows = []
    for r in results:
        state = sum(r["after_step_by"].get(c, 0) for c in STATE) / r["parameters"]
        equal = all(x["peak_bytes"] == x["predicted_peak_bytes"] for x in r["by_rank"])
        rows.append([r["mode"], str(r["ranks"]), r["level"], f"{r['peak_bytes'] / 2**20:.0f}",
                     "equal on every rank" if equal else "DIFFERS", f"{state:.2f}",
                     f"{formula[r['level']](r['ranks']):.2f}"])
    return table(["mode", "ranks", "level", "MiB a rank, at most", "predicted", "state, B a parameter", "formula"],
                 rows)


def ranks_shard_bf16(records):
    return peaks_by_level(records.results("ranks/shard_bf16.json"))


def ranks_shard_predicted(records):
    rows = []
    for name, what in (("medium", "medium"), ("large", "large"), ("2.7B", "2.7B"),
                       ("8B", "Llama-3.1-8B's shape, ctx 4096")):
        for r in records.results(f"ranks/shard_{name}.json"):
            by = r["peak_by"]
            state = sum(by.get(c, 0) for c in STATE) / r["parameters"]
            needed = r["cards"].get("ranks_needed", {})
            rows.append([what, r["mode"], str(r["ranks"]), r["shard"], f"{r['peak_bytes'] / 2**30:.2f}", f"{state:.2f}",
                         ", ".join(f"{card} from {n}" for card, n in needed.items() if n)])
    return table(["model", "mode", "ranks", "level", "GiB a rank, at most", "state at the peak, B a parameter",
                  "fits, with ranks"], rows)


# gpu-ranks.md

def gpu_ddp(records):
    return by_strategy(records.results("h200-ranks/ddp_medium.json"))


def gpu_ddp_mps(records):
    return by_strategy(records.results("h200-ranks/ddp_medium_mps.json"))


def best_bucketed(name, records):
    return min((r for r in records.results(f"h200-ranks/{name}.json")
                if r["strategy"] == "bucketed" and r["mode"] == "compiled" and is_ours(r)), key=lambda r: median([r]))


def gpu_ddp_costs(records):
    """The fastest buckets of two ranks that share the GPU, beside one rank that stores its gradients too."""
    (one,) = records.results("h200-ranks/one_rank.json")
    rows = [["one rank, gradients stored", number(median([one])), "1.00"]]
    for name, how in (("ddp_medium", "two ranks in turns"), ("ddp_medium_mps", "two ranks under MPS")):
        r = best_bucketed(name, records)
        rows.append([f"{how}, {strategy_name(r)}", number(median([r])), f"{median([r]) / median([one]):.2f}"])
    return table(["step", "ms", "÷ one rank"], rows)


def gpu_ddp_xl(records):
    published = {"naive": "846", "flat": "898", "bucketed 100 MiB": "874", "bucketed 1000 MiB": "out of memory"}
    rows = []
    for r in records.results("h200-ranks/ddp_xl.json"):
        name = strategy_name(r)
        talks = name != "none"
        rows.append([name, number(median([r])), number(r["communication_ms"]) if talks else "",
                     str(r["collectives"]) if talks else "", f"{r['peak_bytes'] / 2**30:.1f}", published.get(name, "")])
    return table(["strategy", "step ms", "communication ms", "calls", "GiB a rank", "published, on 2 GPUs, ms"], rows)


def gpu_ddp_torch(records):
    results = records.results("h200-ranks/ddp_torch.json")
    (theirs,) = [r for r in results if not is_ours(r)]
    return table(["step", "ms", "GiB a rank", "PyTorch's DDP ÷ this"],
                 [[strategy_name(r), number(median([r])), f"{r['peak_bytes'] / 2**30:.1f}",
                   f"**{median([theirs]) / median([r]):.1f}**" if is_ours(r) and r["strategy"] != "none" else ""]
                  for r in results])


def gpu_shard(records):
    return by_level(records.results("h200-ranks/shard_large.json"))


def gpu_shard_peaks(records):
    return peaks_by_level(records.results("h200-ranks/shard_medium.json"))


def gpu_shard_limit(records):
    rows = []
    for r in records.results("h200-ranks/shard_2.7B.json"):
        ok = r["status"] == "ok"
        rows.append([r["level"], number(median([r])) if ok else "", f"{r['peak_bytes'] / 2**30:.1f}" if ok else "",
                     "" if ok else f"refused: {r['reason']}"])
    return table(["level", "step ms", "GiB a rank", ""], rows)


def gpu_train(records):
    (bench,), (train,) = (records.results(f"h200-ranks/{name}.json") for name in ("train_bench", "train"))
    step = 1e3 * train["batch"] * train["ctx"] / train["tokens_per_s"]
    return table(["", "ms a step", "÷ bench"],
                 [["bench model, 200 steps", number(median([bench])), "1.000"],
                  [f"train, {train['steps_done']} steps, the median one", number(step),
                   f"{step / median([bench]):.3f}"],
                  ["train, with what comes before the first step", number(1e3 * train["seconds"] / train["steps_done"]),
                   f"{1e3 * train['seconds'] / train['steps_done'] / median([bench]):.3f}"]])


# plan.md

def errors(rows, field="predicted_ms"):
    counted = [abs(r[field] / r["measured_ms"] - 1) for r in rows if not r["left_out"]]
    return sum(counted) / len(counted), max(counted)


def signed(r, field):
    return f"{100 * (r[field] / r['measured_ms'] - 1):+.1f} %"


def plan_published(records):
    rows = []
    for r in records.results("plan/published.json"):
        rows.append([r["id"], r["source"], r["text"], str(r["devices"]), r["machine"], number(r["measured_ms"]),
                     f"{r['factor']:.2f}", number(r["predicted_ms"]),
                     "left out" if r["left_out"] else signed(r, "predicted_ms"), signed(r, "naive_ms")])
    return table(["run", "source", "what", "devices", "machine", "measured ms", "source's number", "predicted ms",
                  "error", "constant part of the peak"], rows)


def plan_published_errors(records):
    rows = records.results("plan/published.json")
    return table(["predictor", "runs", "error on average", "at worst"],
                 [[name, str(sum(not r["left_out"] for r in rows))] + [f"{100 * e:.1f} %" for e in errors(rows, field)]
                  for name, field in (("simulated", "predicted_ms"), ("constant part of the peak", "naive_ms"))])


def plan_h200(records):
    rows = records.results("plan/h200_records.json")
    lines = []
    for mode in ("compiled", "eager"):
        for dtype in ("bf16", "tf32", "fp32"):
            these = [r for r in rows if f" {dtype}," in r["text"] and ("compiled" in r["text"]) == (mode == "compiled")]
            held_out = [r for r in these if r["id"] in ("medium", "xl")]
            lines.append([mode, dtype, str(len(these))] + [f"{100 * e:.1f} %" for e in errors(these)] +
                         [str(len(held_out))] + [f"{100 * e:.1f} %" for e in errors(held_out)])
    held_out = [r for r in rows if r["id"] in ("medium", "xl")]
    lines.append(["all", "", str(len(rows))] + [f"{100 * e:.1f} %" for e in errors(rows)] +
                 [str(len(held_out))] + [f"{100 * e:.1f} %" for e in errors(held_out)])
    return table(["mode", "dtype", "steps", "error on average", "at worst", "of them held out", "on average",
                  "at worst"], lines)


def plan_ranks(records):
    """By backend, mode and what ranks do: steps whose repeats spread less than a tenth, and the others."""
    rows = []
    for r in records.results("plan/ranks.json"):
        source = pathlib.Path(r["source"]).stem.split("_")  # ranks_ddp_shm
        what = {"ddp": "data parallelism", "shard": "sharding"}[source[1]]
        rows.append((what, source[2], "compiled" if "compiled" in r["text"] else "eager", r))
    steady = [row for row in rows if row[3]["spread"] < 0.1]
    lines = []
    for key in dict.fromkeys(row[:3] for row in rows):
        these = [row[3] for row in steady if row[:3] == key]
        lines.append([*key, f"{len(these)} of {sum(row[:3] == key for row in rows)}"] +
                     [f"{100 * e:.1f} %" for field in ("predicted_ms", "naive_ms") for e in errors(these, field)])
    lines.append(["all", "", "", f"{len(steady)} of {len(rows)}"] + [
        f"{100 * e:.1f} %" for field in ("predicted_ms", "naive_ms") for e in errors([r[3] for r in steady], field)])
    return table(["what", "backend", "mode", "steps that spread less than 10 %", "error on average", "at worst",
                  "constant part of the peak, on average", "at worst"], lines)


# correctness.md

def gpu_tests(records):
    (r,) = records.read("gpu-test.json")
    fields = ["status", "gpu", "driver", "passed", "failed", "skipped", "date"]
    return table(fields, [[str(r[field]) for field in fields]])


def machine_peaks(records):
    rows = []
    for r in records.results("h200-eager/doctor.json"):
        if r["section"] == "peak":
            rows.append([r["device"], r["item"], f"{r['measured'] / 1e12:.2f}",
                         f"{r['datasheet'] / 1e12:.2f}" if r["datasheet"] else "–"])
    return table(["device", "rate", "measured, 10¹² a second", "datasheet"], rows)


# README.md

def index(records):
    """What was measured, in a line for each page; the pages name the records."""
    records.in_caption = False
    new = records.results("h200-compiled/now/new.*.json")
    steps = " / ".join(number(median(only(new, size=size))) for size in SIZES)
    graphs = [peer["step"] / median(step) for _, _, step, peer, _ in graphs_rows(records)]
    eager = beside_plain(records)
    plain = {}
    for peer in eager:
        if not is_ours(peer) and peer["pass"] == "step":
            mine = [r for r in only(eager, size=peer["size"], dtype=peer["dtype"], **{"pass": "step"}) if is_ours(r)]
            plain.setdefault(peer["dtype"], []).append(median([peer]) / median(mine))
    board = records.results("h200-attention/leaderboard_peers.json")
    cudnn = median(only(board, attention="cudnn"), "both") / median([r for r in board if is_ours(r)], "both")
    profiled, memory = records.results("h200-profile/profile.json"), records.results("h200-memory/memory.json")
    equal = sum(r["predicted_peak_bytes"] == r["peak_bytes"] for r in memory)
    cpu = [median([peer]) / median(mine) for _, mode, mine, peer in beside_torch_1(records) if mode == "compiled"]
    (tests,) = records.read("gpu-test.json")
    sums = [median([theirs]) / median([shm]) for theirs, shm, _ in beside_torch_gloo(records)]

    published, stored = records.results("plan/published.json"), records.results("plan/h200_records.json")
    (torch_ddp,) = (r for r in records.results("h200-ranks/ddp_torch.json") if not is_ours(r))
    torch_ddp = median([torch_ddp]) / median([best_bucketed("ddp_torch", records)])

    def span(values):
        return f"{max(values):.2f} to {min(values):.2f}"

    return table(["page", "what was measured", "in one line"], [
        ["[compiled](compiled.md)", "compiled steps on an H200", f"whole step, bf16, batch 4, ctx 256, small to 2.7B:"
         f" {steps} ms; {span(graphs)} times as fast as `torch.compile` with `reduce-overhead`"],
        ["[eager](eager.md)", "eager steps on an H200", f"whole step: {span(plain['bf16'])} times as fast as plain"
         f" eager PyTorch in bf16, where its launches bind it, and {span(plain['fp32'])} times in fp32"],
        ["[attention](attention.md)", "attention alone on an H200", f"the leaderboard's shape, forward and backward:"
         f" {cudnn:.2f} times as fast as cuDNN"],
        ["[profile](profile.md)", "where the time goes", f"{len(profiled)} configurations, every kernel under a name"],
        ["[memory](memory.md)", "peaks and their predictions", f"{equal} of {len(memory)} peaks predicted to the byte"],
        ["[cpu](cpu.md)", "steps and attention on CPUs", f"compiled, 2 threads, fp32: {span(cpu)} times as fast as"
         f" PyTorch 1.13"],
        ["[ranks](ranks.md)", "sums over ranks, data parallelism and sharding on CPUs", f"all-reduce of 10 and 100 MB,"
         f" 2 and 4 ranks on 2 cores: {span(sums)} times as fast as PyTorch's Gloo"],
        ["[gpu-ranks](gpu-ranks.md)", "data parallelism and sharding, ranks that share an H200", f"medium, two ranks:"
         f" {torch_ddp:.0f} times as fast as PyTorch's DistributedDataParallel on the same GPU"],
        ["[plan](plan.md)", "predicted step times beside measured ones", f"published runs: off by"
         f" {100 * errors(published)[0]:.1f} % on average, a constant part of the peak by"
         f" {100 * errors(published, 'naive_ms')[0]:.1f} %; our own H200 steps: {100 * errors(stored)[0]:.1f} %"],
        ["[correctness](correctness.md)", "GPU tests, sanitizers, precision", f"{tests['passed']} GPU tests passed,"
         f" {tests['failed']} failed, at `{tests['commit'][:7]}`; `make test` says whether that is still current"]])


def tables_of(text):
    """The page with its tables made anew, and the records they are made from."""
    used = set()

    def make(match):
        records = Records()
        lines = globals()[match[2]](records)
        used.update(records.used)
        caption = ["", records.caption()] if records.in_caption else []
        return match[1] + "\n" + "\n".join(lines + caption) + "\n\n" + match[4]

    return BLOCK.sub(make, text), used


def faults_of(page, text, used):
    """What is wrong with a page's links and commits; also the files it stands on."""
    faults, linked = [], set()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        path = (page.parent / target).resolve()
        if "://" in target:
            continue
        if not path.exists():
            faults.append(f"{page.name}: the link to {target} leads nowhere")
        elif path.is_file() and RESULTS in path.parents and path.suffix != ".md":
            linked.add(path)
    commits, texts = set(), ""
    for path in used | linked:
        if path.suffix == ".json":
            commits.add(commit_of(json.loads(path.read_text())))
        elif path.suffix == ".txt":
            texts += path.read_text()
    for commit in sorted(set(re.findall(r"`([0-9a-f]{7})`", text))):
        if commit not in commits and commit not in texts:
            faults.append(f"{page.name}: {commit} is the commit of no record or file that it stands on")
    return faults, used | linked


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    faults, standing = [], set()
    for page in sorted(RESULTS.glob("*.md")):
        before = page.read_text()
        after, used = tables_of(before)
        if check and after != before:
            faults.append(f"{page.name}: a table is not what its records give; bench/results_tables.py writes it anew")
        elif after != before:
            page.write_text(after)
        more, files = faults_of(page, after, used)
        faults += more
        standing |= files
    files = [p for p in RESULTS.rglob("*") if p.is_file()]
    for path in sorted(files):
        name = path.relative_to(RESULTS)
        if path.suffix != ".md" and path not in standing:
            faults.append(f"{name}: no page has a table of it or a link to it")
        if path.suffix in (".json", ".txt") and re.search(r"[0-9a-f]{7,}-dirty", path.read_text()):
            faults.append(f"{name}: from an uncommitted build")
    folders = sum(p.is_dir() for p in RESULTS.rglob("*"))
    blocks = 4096 * (folders + 1 + sum(-(-p.stat().st_size // 4096) for p in files))  # as du counts
    if blocks > LIMIT:
        faults.append(f"docs/results takes {blocks >> 10} KiB, more than {LIMIT >> 10}")
    print("\n".join(faults) or f"results: {len(files)} files, {blocks >> 10} KiB, every table as its records give it")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
