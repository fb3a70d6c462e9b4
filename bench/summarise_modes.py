"""Eager against compiled from several records of one machine: python3 bench/summarise_modes.py RECORD.json...

All timed passes of the records are pooled by size: medians, minima in brackets, and the ratio of each record's medians.
"""
import json, statistics, sys

passes, ratios = {}, {}
for path in sys.argv[1:]:
    medians = {}
    for r in json.load(open(path))["results"]:
        passes.setdefault((r["size"], r["mode"]), []).extend(r["samples_ms"])
        medians[r["size"], r["mode"]] = statistics.median(r["samples_ms"])
    for size, mode in medians:
        if mode == "compiled" and (size, "eager") in medians: ratios.setdefault(size, []).append(medians[size, "eager"] / medians[size, mode])
if not ratios: sys.exit("usage: summarise_modes.py RECORD.json... (of `sinter bench model --mode eager,compiled --json`)")

print("| size | eager ms | compiled ms | eager ÷ compiled | of each run |\n|---|---|---|---|---|")
for size, each in ratios.items():
    e, c = passes[size, "eager"], passes[size, "compiled"]
    print(f"| {size} | {statistics.median(e):.1f} ({min(e):.1f}) | {statistics.median(c):.1f} ({min(c):.1f}) | "
          f"**{statistics.median(e) / statistics.median(c):.2f}** ({min(e) / min(c):.2f}) | {', '.join(f'{x:.2f}' for x in each)} |")
