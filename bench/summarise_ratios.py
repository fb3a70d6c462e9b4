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
        side = theirs if r.get("engine", "sinter") != "sinter" else ours
        side.setdefault(key, []).append(r)

print("| size | dtype | pass | sinter ms | PyTorch plain eager ms | theirs ÷ ours | sinter peak GiB | PyTorch peak GiB | memory ours ÷ theirs |")
print("|---|---|---|---|---|---|---|---|---|")
for key, peers in theirs.items():
    a = statistics.median(ms for r in ours[key] for ms in r["samples_ms"])
    b = statistics.median(ms for r in peers for ms in r["samples_ms"])
    row = [*key, "%.2f" % a, "%.1f" % b, "**%.2f**" % (b / a)]
    m, n = max(r["peak_bytes"] for r in ours[key]), peers[0]["peak_bytes"]
    row += ["%.2f" % (m / 2**30), "%.2f" % (n / 2**30), "%.3f" % (m / n)] if n else ["%.2f" % (m / 2**30), "–", "–"]
    print("| " + " | ".join(row) + " |")
