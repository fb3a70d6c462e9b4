"""Ratios from `sinter bench model --peer` records: python3 bench/summarise_ratios.py RECORD.json … > table.md

Time: their median ÷ ours (ours over all of its runs around theirs). Memory: our allocator peak ÷ theirs.
"""
import json
import statistics
import sys

ours, theirs = {}, {}
for path in sys.argv[1:]:
    for r in json.load(open(path))["results"]:
        key = (r["size"], r["dtype"], r["pass"])
        engine = r.get("engine", "sinter")
        if engine == "sinter":
            ours.setdefault(key, []).append(r)
        else:
            theirs.setdefault((*key, engine), []).append(r)


def median(runs):
    return statistics.median(ms for r in runs for ms in r["samples_ms"])


def gib(size):
    return "%.2f" % (size / 2**30) if size else "–"


print("| size | dtype | pass | peer | sinter ms | peer ms | theirs ÷ ours | sinter peak GiB | peer peak GiB | memory ours ÷ theirs |")
print("|---|---|---|---|---|---|---|---|---|---|")
for (*key, engine), peers in theirs.items():
    mine = ours[tuple(key)]
    a, b = median(mine), median(peers)
    m, n = max(r["peak_bytes"] for r in mine), peers[0]["peak_bytes"]
    row = [*key, engine, "%.2f" % a, "%.1f" % b, "**%.2f**" % (b / a), gib(m), gib(n), "%.3f" % (m / n) if n else "–"]
    print("| " + " | ".join(row) + " |")
