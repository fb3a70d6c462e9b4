#!/usr/bin/env python3
"""Who may include whom: the table of docs/architecture.md, held by `make lint`.

Lower rooms never include higher ones, the two backends never each other, and no device source reaches a third-party
header, which nvcc would have to chew through (and may not compile).
"""
import pathlib
import re
import sys

LOW = {"core", "system", "memory", "backend"}
ENGINE = LOW | {"ops", "autograd"}
MODEL = ENGINE | {"nn", "optim"}
MAY_INCLUDE = {
    "core": set(),
    "system": {"core"},
    "memory": {"core"},
    "backend": {"core", "system"},
    "ops": LOW,
    "autograd": LOW | {"ops"},
    "profile": ENGINE,
    "compile": ENGINE,
    "nn": ENGINE,
    "optim": ENGINE | {"nn"},  # it updates the flat parameter buffers
    "dist": MODEL | {"compile"},
    "train": MODEL | {"compile", "dist"},
    "plan": MODEL | {"compile", "dist", "train", "profile"},
    "lab": MODEL | {"compile", "dist", "train", "profile", "plan"},
    "api": ENGINE,
    "cli": MODEL | {"compile", "dist", "train", "profile", "plan", "lab"},
}
# Headers that device sources include, or may: plain C++ whatever the tree looks like today.
PLAIN = [f"core/{name}.h" for name in ("dtype", "half", "kernel_call", "attrs", "philox", "error", "device")]
THIRD_PARTY = re.compile(r"^(fmt|nlohmann|CLI|gtest|benchmark)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    """(line number, '<' or '"', name) of every include of a file."""
    with open(path, encoding="utf-8") as text:
        return [(number, *match.groups()) for number, line in enumerate(text, 1) if (match := INCLUDE.match(line))]


def check_layers(src):
    for path in sorted(p for p in src.rglob("*") if p.suffix in {".h", ".hpp", ".def", ".cpp", ".cu", ".cuh"}):
        parts = path.relative_to(src).parts
        room = parts[0]
        if room not in MAY_INCLUDE:
            yield f"{path}: the room {room}/ is not in the table of tools/check_includes.py"
            continue
        for number, quote, name in includes(path):
            target = name.split("/")[0]
            if quote == "<" and target == "sinter" and room not in {"lab", "cli", "api"}:
                yield f"{path}:{number}: includes <{name}>: the public headers stand above {room}/"
            if quote == "<" or target not in MAY_INCLUDE:
                continue
            if target != room and target not in MAY_INCLUDE[room]:
                yield f"{path}:{number}: {room}/ may not include {name}: {target}/ is higher than, or beside, it"
            other = {"cpu": "cuda", "cuda": "cpu"}.get(parts[1])
            if room == "backend" and other and name.startswith(f"backend/{other}/"):
                yield f"{path}:{number}: one backend may not include the other's {name}"


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
    faults = list(check_layers(src)) + list(check_device_sources(src))
    print("\n".join(faults) if faults else "include rule: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
