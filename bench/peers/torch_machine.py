"""What a peer's reply says about where it ran, as sinter's records say it: versions, date, threads, GPU and clocks."""
import datetime
import subprocess
import time

CLOCKS = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "sm_max_mhz": "clocks.max.sm",
          "memory_max_mhz": "clocks.max.mem", "power_w": "power.draw", "power_limit_w": "power.limit",
          "temperature_c": "temperature.gpu"}


def uuid_of(torch, gpu):
    """As nvidia-smi writes it; None where this torch does not tell (before 2.4)."""
    uuid = getattr(torch.cuda.get_device_properties(gpu), "uuid", None)
    return None if uuid is None else "GPU-" + str(uuid).replace("GPU-", "")


def clocks(uuid, work=None):
    """From nvidia-smi, while `work` is called again and again; None where it is not there or does not know the GPU."""
    if uuid is None:
        return None
    command = ["nvidia-smi", "--id=" + uuid, "--query-gpu=" + ",".join(CLOCKS.values()),
               "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return None
    until = time.monotonic() + 10
    while time.monotonic() < until:
        work() if work else time.sleep(0.01)
        if asked.poll() is not None:
            break
    if asked.poll() is None:
        asked.kill()
    answers = asked.communicate()[0].strip().split(",")
    if asked.returncode or len(answers) != len(CLOCKS):
        return None
    return {name: number(answer) for name, answer in zip(CLOCKS, answers)}


def number(text):
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return None


def machine(torch, device, gpu):
    """The object `machine` of a reply; made before the passes, so its clocks are those of an idle GPU."""
    cuda = device == "cuda"
    uuid = uuid_of(torch, gpu) if cuda else None
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "threads": torch.get_num_threads(),
        "gpu": {"name": torch.cuda.get_device_name(gpu), "uuid": uuid, "clocks": clocks(uuid)} if cuda else None,
    }
