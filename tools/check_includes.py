#!/usr/bin/env python3
"""Who may include whom: the table of docs/architecture.md, held by `make lint`.

The table says exactly what the sources do: a room includes no other than those it lists, and each of those. Beyond it,
the two backends never include each other, no device source reaches a third-party header, which nvcc would have to chew
through (and may not compile), and a compiled step is made only where steps are defined: in train/, and by the attention
experiment.
"""
import pathlib
import re
import sys

TABLE_ROW = re.compile(r"^\| (`src/[a-z]+/`(?:, `src/[a-z]+/`)*) \|[^|]*\| ([^|]*) \|$")
# Headers that device sources include, or may: plain C++ whatever the tree looks like today.
PLAIN = [f"core/{name}.h" for name in ("dtype", "half", "kernel_call", "attrs", "philox", "error", "device")]
THIRD_PARTY = re.compile(r"^(fmt|nlohmann|CLI|gtest|benchmark)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    """(line number, '<' or '"', name) of every include of a file."""
    with open(path, encoding="utf-8") as text:
        return [(number, *match.groups()) for number, line in enumerate(text, 1) if (match := INCLUDE.match(line))]


def table_of(document):
    """Room -> the rooms it may include, as the document's table has them."""
    table = {}
    for line in document.read_text(encoding="utf-8").splitlines():
        if match := TABLE_ROW.match(line):
            allowed = set(re.findall(r"[a-z]+", match[2])) - {"nothing"}
            for room in re.findall(r"src/([a-z]+)/", match[1]):
                table[room] = allowed
    return table


def check_layers(src, table):
    used = {room: set() for room in table}
    for path in sorted(p for p in src.rglob("*") if p.suffix in {".h", ".hpp", ".def", ".cpp", ".cu", ".cuh"}):
        parts = path.relative_to(src).parts
        room = parts[0]
        if room not in table:
            yield f"{path}: the room {room}/ is not in the table of docs/architecture.md"
            continue
        for number, quote, name in includes(path):
            target = name.split("/")[0]
            if quote == "<" and target == "sinter" and room not in {"lab", "cli", "api"}:
                yield f"{path}:{number}: includes <{name}>: the public headers stand above {room}/"
            if quote == "<" or target not in table:
                continue
            used[room].add(target)
            if target != room and target not in table[room]:
                yield f"{path}:{number}: {room}/ may not include {name}: {target}/ is higher than, or beside, it"
            other = {"cpu": "cuda", "cuda": "cpu"}.get(parts[1])
            if room == "backend" and other and name.startswith(f"backend/{other}/"):
                yield f"{path}:{number}: one backend may not include the other's {name}"


    for room, allowed in table.items():
        for target in sorted(allowed - used[room]):
            yield f"docs/architecture.md: {room}/ includes nothing of {target}/, which its row lists"


def check_compiled(src):
    made = re.compile(r"\bcompile::Compiled\b(?!\s*[*&])")
    for path in sorted(p for p in src.rglob("*") if p.suffix in {".h", ".cpp"}):
        parts = path.relative_to(src).parts
        if parts[0] in {"compile", "train"} or parts[:2] == ("lab", "attention"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if made.search(line):
                yield f"{path}:{number}: makes a compile::Compiled; a model's passes are run by train/ (Trainer::run)"


def check_device_sources(src):
    roots = [p for p in src.rglob("*") if p.suffix in {".cu", ".cuh"}]
    roots += [src / name for name in PLAIN] + sorted((src / "backend").glob("*.h"))
    seen = set()
    for root in roots:
        stack = [(root, [root.relative_to(src).as_posix()])]
        while stack:
            path, trail = stack.pop()
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            for number, _, name in includes(path):
                if THIRD_PARTY.match(name):
                    yield f"{path}:{number}: device sources may not reach <{name}> ({' → '.join(trail)})"
                for folder in (src, path.parent):
                    if (folder / name).is_file():
                        stack.append((folder / name, trail + [name]))
                        break


def main():
    src = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src")
    table = table_of(src.parent / "docs" / "architecture.md")
    faults = list(check_layers(src, table)) + list(check_compiled(src)) + list(check_device_sources(src))
    print("\n".join(faults) if faults else "include rule: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
