#!/usr/bin/env python3
"""What people and programs see of a sinter binary, as text to compare:

    python3 tools/interface_dump.py build/sinter > before.txt
    ... change something, build again ...
    python3 tools/interface_dump.py build/sinter | diff before.txt -

Three parts: the --help of every command; the exit code of a fixed list of command lines, good and bad; and the fields
of the records that small runs on the CPU write, each as a path with its JSON types, list positions collapsed:
`results[].phases.forward.mean_ms float`. Values, times and the order of fields are left out, so that only a change of
the interface makes a difference. GPUs are hidden from the binary, and its caches are a folder of their own, so that the
same binary gives the same text everywhere (`sinter doctor` measures the machine once, which takes a few seconds). A
command line that takes longer than a minute is reported as such and fails the dump.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TINY = "--device cpu --d-model 32 --d-ff 64 --layers 2 --heads 4 --vocab 61 --ctx 16 --batch 2"
RUN = "--warmup 1 --steps 2"
ATTENTION = "--device cpu --batch 1 --heads 2 --ctx 32 --head-dim 8"

# Commands whose records are looked at. WORK is a folder that exists for as long as the dump takes.
RECORDS = [
    f"bench model {TINY} {RUN}",
    f"bench model {TINY} {RUN} --mode compiled",
    f"bench model {TINY} {RUN} --mode compiled --memory-budget 1",
    f"bench model {TINY} {RUN} --accumulate 2",
    f"bench model {TINY} {RUN} --accumulate 2 --mode compiled",
    f"bench model {TINY} {RUN} --pass forward",
    f"bench model {TINY} {RUN} --pass forward-backward",
    f"bench model {TINY} {RUN} --dtype fp32,bf16 --attention naive,flash",
    f"bench model {TINY} {RUN} --published",
    f"bench model {TINY} --warmup 0,1 --steps 2",
    f"bench model {TINY} --dry-run",
    f"bench model {TINY} --dry-run --mode compiled",
    f"bench attention {ATTENTION} {RUN}",
    f"bench attention {ATTENTION} {RUN} --attention naive,flash,tiled --mode eager,compiled",
    f"bench attention {ATTENTION} {RUN} --pass forward --deterministic --attention flash",
    f"profile model {TINY} {RUN}",
    f"profile model {TINY} {RUN} --mode compiled",
    f"profile attention {ATTENTION} {RUN}",
    f"memory model {TINY}",
    f"memory model {TINY} --mode compiled",
    f"memory model {TINY} --predict",
    f"memory model {TINY.replace('cpu', 'cuda')} --predict",
    f"memory model {TINY.replace('cpu', 'cuda')} --predict --card T4-16",
    f"compile model {TINY}",
    f"compile model {TINY} --explain",
    f"compile model {TINY.replace('cpu', 'cuda')} --dtype bf16",
    f"compile model {TINY} --dump WORK/graph.json",
    "precision --device cpu",
    "doctor",
]
# Files that a command above writes besides its record.
FILES = {"graph.json": "compile model --dump x.json"}

# Command lines of which only the exit code is looked at.
GOOD = [
    "",
    "--version",
    f"bench model {TINY} {RUN}",
    f"bench model {TINY} {RUN} --table WORK/t.md --plot WORK/p.svg",
    f"bench model {TINY} {RUN} --table WORK/t.csv --plot WORK/p.html --json WORK/r.json",
    "show WORK/r.json",
    "show WORK/r.json --table WORK/t.tex",
    f"bench model {RUN} --config WORK/r.json",
    f"profile model {TINY} {RUN} --trace WORK/trace.json",
    f"memory model {TINY} --snapshot WORK/s.pickle",
    f"memory model {TINY} --snapshot WORK/s.json --plot WORK/m.html",
    f"compile model {TINY} --dump WORK/g.dot",
    f"compile model {TINY} --dump WORK/g.txt",
    "bench model --device cpu --size tiny --batch 1000000",
    "bench model --device cpu --size tiny --batch 1000000 --dry-run",
    "memory model --predict --size 2.7B --card T4-16",
    "compile model --device cpu --size tiny --accumulate 2",
    "memory model --predict --device cpu --size tiny --mode compiled --memory-budget 0.000001",
]
CPU, SIZED, SMALL = "bench model --device cpu", "bench model --device cpu --size tiny", "--device cpu --size tiny"
BAD = [
    "nosuch", "bench", "profile", "memory", "compile", "show", "show WORK/none.json", "show WORK/broken.json",
    "--nosuch",
    f"{CPU} --size huge", f"{SIZED} --heads 7", f"{CPU} --d-model 36 --d-ff 64 --layers 1 --heads 4",
    f"{SIZED} --ctx 0",
    f"{SIZED} --ctx abc", f"{SIZED} --ctx 1,,2", f"{SIZED} --batch 0", f"{SIZED} --vocab 0", f"{SIZED} --layers -1",
    f"{SIZED} --dtype fp8", f"{SIZED} --dtype tf32", f"{SIZED} --pass sideways", f"{SIZED} --attention sparse",
    f"{SIZED} --attention portable", f"{SIZED} --kv-heads 3", f"{SIZED} --kv-heads 0", f"{SIZED} --steps 0",
    f"{SIZED} --warmup -1", f"{SIZED} --threads 0", f"{SIZED} --accumulate 0", f"{SIZED} --accumulate 2 --pass forward",
    f"{SIZED} --no-tune", f"{SIZED} --peer flax", f"{SIZED} --peer torch-best --accumulate 2", f"{SIZED} --mode lazy",
    f"{SIZED} --passes none", f"{SIZED} --mode compiled --passes nosuch", f"{SIZED} --memory-budget 1",
    f"{SIZED} --mode compiled --memory-budget -1", f"{SIZED} --lr -1", f"{SIZED} --lr nan", f"{SIZED} --clip -1",
    f"{SIZED} --seed -1", f"{SIZED} --ablate --mode eager", f"{SIZED} --no-such-flag",
    f"{SIZED} --json WORK/none/r.json",
    f"{SIZED} --json WORK", f"{SIZED} --table WORK/t.docx", f"{SIZED} --plot WORK/p.bmp",
    f"{SIZED} --dry-run --plot WORK/p.svg",
    f"{SIZED} --json WORK/a.csv --table WORK/./a.csv", f"{CPU} --config WORK/none.json",
    f"{CPU} --config WORK/broken.json",
    "bench model --device tpu", "bench model --device cuda", "bench model --device cuda:",
    "bench model --device cuda:x",
    "bench model --device cuda:-1", "bench model --device cpu:1",
    f"profile model {SMALL} --profiler nsys", f"profile model {SMALL} --profiler cupti",
    f"profile model {SMALL} --top 0",
    f"profile model {SMALL} --ctx 8,16 --trace WORK/t.json", f"profile model {SMALL} --trace WORK/t.svg",
    f"profile model {SMALL} --warmup 0,1", "profile attention --device cpu --pass step",
    "profile attention --device cpu --heads 3 --kv-heads 2",
    "profile attention --device cpu --attention flash --tile 64",
    "profile attention --device cpu --head-dim 0", "bench attention --device cpu --sweep --leaderboard",
    "bench attention --device cpu --peer flash3", "bench attention --device cpu --tile 64",
    "bench attention --device cpu --seconds -1", "bench attention --device cpu --dtype tf32",
    f"memory model {SMALL} --snapshot WORK/s.txt", f"memory model {SMALL} --ctx 8,16 --snapshot WORK/s.pickle",
    "memory model --predict --card GTX", "memory model --predict --device cpu --card T4-16",
    f"memory model {SMALL} --largest 0", "memory model --predict --size tiny,mini --plot WORK/p.svg",
    f"compile model {SMALL} --mode eager", f"compile model {SMALL} --dump WORK/none/g.txt",
    "precision --device tpu", "precision --seed x", "doctor --plot WORK/p.svg", "doctor --nosuch",
]


class Binary:
    def __init__(self, path, work):
        self.path, self.work, self.slow = os.path.abspath(path), work, []
        self.environment = dict(os.environ, SINTER_CACHE_DIR=os.path.join(work, "cache"), SINTER_THREADS="2",
                                CUDA_VISIBLE_DEVICES="-1", NO_COLOR="1")

    def run(self, line):
        """(exit code, stdout) of a command line."""
        words = line.replace("WORK", self.work).split()
        try:
            done = subprocess.run([self.path] + words, env=self.environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            self.slow.append(line)
            return "more than a minute", ""
        return done.returncode, done.stdout.decode(errors="replace")


def helps(binary, command=""):
    """--help of a command and of all below it, each as lines."""
    _, text = binary.run(f"{command} --help")
    yield f"--- sinter {command}".rstrip()
    yield from (line.rstrip() for line in text.replace(binary.path, "sinter").splitlines())
    below = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE | re.IGNORECASE)
    for name in sorted(re.findall(r"^  (\S+)", below.group(1), re.MULTILINE) if below else []):
        yield from helps(binary, f"{command} {name}".strip())


def type_of(value):
    names = {dict: "object", list: "list", str: "text", bool: "bool", int: "int", float: "float", type(None): "null"}
    return names[type(value)]


def paths(value, at, found):
    """Adds the types at every path of a JSON value."""
    found.setdefault(at, set()).add(type_of(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            paths(inner, f"{at}.{key}".lstrip("."), found)
    elif isinstance(value, list):
        for inner in value:
            paths(inner, f"{at}[]", found)


def fields(text):
    try:
        value = json.loads(text)
    except ValueError:
        return ["(not JSON)"]
    found = {}
    paths(value, "", found)
    return [f"{at or '.'} {'|'.join(sorted(types))}" for at, types in sorted(found.items())]


def dump(binary):
    yield "=== help"
    yield from helps(binary)
    yield "=== exit codes"
    for line in GOOD + BAD:
        code, _ = binary.run(line)
        yield f"{code} sinter {line}".rstrip()
    for line in RECORDS:
        code, text = binary.run(f"{line} --json -")
        yield f"=== record ({code}): sinter {line}"
        yield from fields(text)
    for name, what in FILES.items():
        yield f"=== file: {what}"
        with open(os.path.join(binary.work, name), encoding="utf-8") as file:
            yield from fields(file.read())


def main():
    if len(sys.argv) != 2:
        print("usage: interface_dump.py SINTER", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "broken.json"), "w", encoding="utf-8") as broken:
            broken.write('{"hidden_size": 64, "intermediate')
        binary = Binary(sys.argv[1], work)
        for line in dump(binary):
            print(line, flush=True)
    for line in binary.slow:
        print(f"interface_dump.py: more than a minute: sinter {line}", file=sys.stderr)
    return 1 if binary.slow else 0


if __name__ == "__main__":
    sys.exit(main())
