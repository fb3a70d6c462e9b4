"""Loads a pickled snapshot as PyTorch's tools do and compares it with the JSON of the same program."""
import json
import pickle
import pickletools
import sys


def timeless(snapshot):
    """Two runs of a program differ in when, not in what."""
    for trace in snapshot["device_traces"]:
        for event in trace:
            event.pop("time_us")
    return snapshot


def with_lists(value):
    """JSON has no tuples."""
    if isinstance(value, dict):
        return {key: with_lists(item) for key, item in value.items()}
    return [with_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def check_types(snapshot):
    for segment in snapshot["segments"]:
        assert segment["segment_pool_id"] == (0, 0), "PyTorch has a tuple here"
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
    assert all(trace for trace in snapshot["device_traces"]), "no events"


def try_viewer(snapshot):
    """Every function of the viewer that this version has. Their plots are text until a browser opens them."""
    try:
        from torch.cuda import _memory_viz as viewer
    except ImportError as reason:
        return f"no viewer ({reason})"
    old = not hasattr(viewer, "trace_plot")  # torch 1.13 knew segments only
    data = snapshot["segments"] if old else snapshot
    lines = {name: getattr(viewer, name)(data, format_flamegraph=lambda text: text) for name in ("segments", "memory")}
    for name in ("stats", "segsum", "trace", "trace_plot", "segment_plot"):
        if hasattr(viewer, name):
            lines[name] = str(getattr(viewer, name)(data))
    for name, text in lines.items():
        assert text, f"{name} says nothing"
    stated = sum(int(line.rsplit(" ", 1)[1]) for line in lines["segments"].splitlines())
    assert stated == sum(segment["total_size"] for segment in snapshot["segments"]), "flame graph and segments differ"
    return "viewer: " + ", ".join(lines)


def main(pickled, text):
    with open(pickled, "rb") as file:
        data = file.read()
    snapshot = pickle.loads(data)
    check_types(snapshot)
    report = try_viewer(snapshot)
    with open(text, encoding="utf-8") as file:
        other = json.load(file)
    assert timeless(with_lists(snapshot)) == timeless(other), "the pickle and the JSON differ"
    known = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "BININT", "LONG1",
             "TUPLE2", "NEWTRUE", "NEWFALSE", "STOP", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"}
    used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert used <= known, f"the browser's reader does not know {used - known}"
    events = sum(len(trace) for trace in snapshot["device_traces"])
    print(f"{events} events, {len(snapshot['segments'])} segments; {report}")


main(*sys.argv[1:])
