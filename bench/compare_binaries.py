#!/usr/bin/env python3
"""Two sinter binaries on the same work, in turns, so that drift of the machine meets both:

    python3 bench/compare_binaries.py OLD NEW --turns 3 --out FOLDER -- bench model --size small --mode compiled

Every turn is a fresh process of OLD, then one of NEW; a run of OLD before the first turn, which is not kept, fills
caches that both share. The records are FOLDER/old.1.json, FOLDER/new.1.json and so on. Printed are, per configuration,
the medians over all timed passes of all turns, NEW ÷ OLD, the same of the fastest passes, and the medians of each turn.
`--show FOLDER` prints that again from the records. For bench attention the time is that of its phase `both`, or of
`forward` where that is all.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys


def samples_of(result):
    if result.get("samples_ms"):
        return result["samples_ms"]
    phases = result.get("phases", {})
    return phases.get("both", phases.get("forward", {})).get("samples_ms", [])


def name_of(result):
    fields = [result.get(f) for f in ("size", "attention", "dtype", "mode", "pass")]
    return " ".join(str(f) for f in fields if f) + f", batch {result.get('batch')}, ctx {result.get('ctx')}"


def show(folder):
    times = {}
    for who in ("old", "new"):
        for path in sorted(folder.glob(f"{who}.[0-9]*.json")):
            for result in json.loads(path.read_text())["results"]:
                turns = times.setdefault(name_of(result), {"old": [], "new": [], "memory": None})
                turns[who].append(samples_of(result))
                if who == "new" and result.get("peak_bytes") and result.get("predicted_peak_bytes"):
                    turns["memory"] = result["peak_bytes"] == result["predicted_peak_bytes"]
    print(f"{'configuration':60} {'old ms':>9} {'new ms':>9} {'new/old':>8} {'fastest':>8}  memory as predicted,"
          " medians of the turns")
    for name, turns in times.items():
        old, new = ([x for turn in turns[who] for x in turn] for who in ("old", "new"))
        if not old or not new:
            print(f"{name:60} not measured by both")
            continue
        medians = " / ".join(" ".join(f"{statistics.median(t):.4g}" for t in turns[who]) for who in ("old", "new"))
        a, b = statistics.median(old), statistics.median(new)
        memory = {True: "yes", False: "NO", None: "–"}[turns["memory"]]
        print(f"{name:60} {a:9.4g} {b:9.4g} {b / a:8.4f} {min(new) / min(old):8.4f}  {memory}, {medians}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="*", metavar="OLD NEW")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("compared"))
    parser.add_argument("--show", type=pathlib.Path, metavar="FOLDER")
    if "--" not in sys.argv:
        options, command = parser.parse_args(), []
    else:
        cut = sys.argv.index("--")
        options, command = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1 :]
    if options.show:
        return show(options.show)
    if len(options.binaries) != 2 or not command:
        parser.error("name two binaries, and after -- a command for both; or --show FOLDER")
    options.out.mkdir(parents=True, exist_ok=True)
    binaries = dict(zip(("old", "new"), options.binaries))

    def run(who, record):
        done = subprocess.run([binaries[who], *command, "--json", str(record)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{binaries[who]} ended with {done.returncode}: {done.stderr.strip()}")

    warm = options.out / "warm.json"
    run("old", warm)
    warm.unlink()
    for turn in range(1, options.turns + 1):
        for who in ("old", "new"):
            run(who, options.out / f"{who}.{turn}.json")
    show(options.out)


if __name__ == "__main__":
    main()
