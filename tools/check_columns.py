#!/usr/bin/env python3
"""No line of a tracked source is longer than 120 columns: characters, not bytes."""
import pathlib
import subprocess
import sys

LIMIT = 120
FOLDERS = ["src", "include", "tests", "bench", "examples", "tools"]
SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".def", ".sh", ".py"}


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "--", *FOLDERS], stdout=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        print("columns: SKIPPED (no git repository)")
        return 0
    faults = []
    for path in map(pathlib.Path, listed.stdout.decode().split("\0")):
        if path.suffix not in SUFFIXES or not path.is_file() or "fixtures" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LIMIT:
                faults.append(f"{path}:{number}: {len(line)} columns, more than {LIMIT}")
    print("\n".join(faults) if faults else "columns: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
