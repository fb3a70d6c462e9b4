"""PyTorch's side of `sinter bench allreduce --peer torch-gloo` and `sinter bench ddp --peer torch-ddp`: ranks of its
own on this host, over Gloo, or on GPUs over NCCL, as JSON on stdout.

  --what allreduce   all-reduces of fp32 numbers, one thread a rank
  --what ddp         DistributedDataParallel around the model of torch_lm.py, gradients as views of buckets
  --what fsdp        FSDP2 by block: bf16 parameters on the wire, gradients reduced in fp32
  --what none        the same step without communication

Ranks begin each timed call together, after a barrier. A sample is the slowest rank's wall clock; start-up is not in it.
Ranks that share a GPU say that they are on hosts of their own, or NCCL refuses them; they then talk through sockets.
"""
import argparse
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

sys.dont_write_bytecode = True  # no folder of it beside the scripts
import torch_lm
import torch_machine


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def timed(work, args):
    samples = []
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    for i in range(args.warmup + args.steps):
        dist.barrier()
        wait()
        start = time.perf_counter()
        work()
        wait()
        if i >= args.warmup:
            samples.append((time.perf_counter() - start) * 1e3)
    return samples


def all_reduces(args):
    x = torch.ones(args.bytes // 4, device=args.device)
    return timed(lambda: dist.all_reduce(x), args)


def steps(args):
    experiment = torch_lm.Experiment(args)
    if args.what == "ddp":
        # Its masks are bools, which PyTorch's Gloo does not broadcast.
        buffers = [name for name, _ in experiment.net.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(experiment.net, buffers)
        experiment.net = DistributedDataParallel(experiment.net, bucket_cap_mb=args.bucket_mb,
                                                 gradient_as_bucket_view=True)
    elif args.what == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mixed = {"mp_policy": policy} if args.dtype == "bf16" else {}
        for block in experiment.model.blocks:
            fully_shard(block, **mixed)
        fully_shard(experiment.model, **mixed)
        experiment.make_optimizer()  # of the shards
    return timed(experiment.step, args)


def rank_main(rank, args, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(args.threads)
    backend = "gloo"
    if args.device == "cuda":
        backend, gpus = "nccl", torch.cuda.device_count()
        torch.cuda.set_device(rank % gpus)
        if args.ranks > gpus:
            os.environ.update(NCCL_HOSTID="rank %d" % rank, NCCL_SOCKET_IFNAME="lo", NCCL_NET="Socket",
                              NCCL_IB_DISABLE="1")
    dist.init_process_group(backend, rank=rank, world_size=args.ranks)
    samples = all_reduces(args) if args.what == "allreduce" else steps(args)
    queue.put((rank, samples, torch.cuda.max_memory_allocated() if args.device == "cuda" else None))
    dist.barrier()
    dist.destroy_process_group()


def run(args):
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    multiprocessing.spawn(rank_main, (args, free_port(), queue), args.ranks)
    replies = sorted(queue.get() for _ in range(args.ranks))
    samples = [max(of_rank[i] for _, of_rank, _ in replies) for i in range(args.steps)]
    result = {"status": "ok", "samples_ms": samples, "median_ms": statistics.median(samples),
              "by_rank": [{"rank": r, "samples_ms": of_rank} for r, of_rank, _ in replies]}
    if args.device == "cuda":
        result["peak_bytes"] = max(peak for _, _, peak in replies)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", default="allreduce", choices=["allreduce", "ddp", "fsdp", "none"])
    parser.add_argument("--variant", default="torch-best", choices=["torch-plain", "torch-best", "torch-compiled"])
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    for flag, default in (("ranks", 2), ("bytes", 1000000), ("d-model", 256), ("d-ff", 1024), ("layers", 4),
                          ("heads", 8), ("vocab", 10000), ("ctx", 256), ("batch", 4), ("warmup", 2), ("steps", 10),
                          ("seed", 0), ("threads", 1)):
        parser.add_argument("--" + flag, type=int, default=default)
    for flag, default in (("bucket-mb", 25), ("lr", 1e-4), ("clip", 0.0), ("rope-theta", 10000.0), ("norm-eps", 1e-5)):
        parser.add_argument("--" + flag, type=float, default=default)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    args.gpu = 0
    try:
        torch.set_num_threads(args.threads)
        machine = torch_machine.machine(torch, args.device, 0)
        reply = {"torch": torch.__version__, "machine": machine, "results": [run(args)]}
    except Exception as error:  # whatever it is, the other side wants one line
        reply = {"error": "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[-1])}
    print(json.dumps(reply))
    return 0 if "results" in reply else 1


if __name__ == "__main__":
    sys.exit(main())
