"""Several processes that are one learner: each computes a part of every batch, and sums are those of all of them."""

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from jaxtyping import Float64
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import Store

from cairn.errors import RankError

_ENDS = ("gloo", "nccl", "connection", "process group", "processgroup", "timed out", "timeout")
"""Words of the errors that collectives raise once a rank is gone or late."""


class Ranks(Protocol):
    """The processes of a learner, as each of them sees them."""

    @property
    def rank(self) -> int:
        """This process's number; 0 has rollouts, engine and store."""
        ...

    @property
    def count(self) -> int: ...

    def total(self, values: Float64[Tensor, " N"]) -> Float64[Tensor, " N"]:
        """Sums over all ranks, the same on each."""
        ...

    def gathered(self, values: Float64[Tensor, " N"]) -> Float64[Tensor, "R N"]:
        """The values of every rank."""
        ...


class Alone:
    """The usual learner: one process."""

    rank = 0
    count = 1

    def total(self, values: Float64[Tensor, " N"]) -> Float64[Tensor, " N"]:
        """They are its own."""
        return values

    def gathered(self, values: Float64[Tensor, " N"]) -> Float64[Tensor, "R N"]:
        """They are its own."""
        return values[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks of a process group. Measurements go over the CPU, weights and gradients over `mesh`."""

    rank: int
    count: int
    mesh: DeviceMesh

    def total(self, values: Float64[Tensor, " N"]) -> Float64[Tensor, " N"]:
        """Sums over all ranks, the same on each."""
        summed = values.cpu().clone()
        dist.all_reduce(summed)
        return summed

    def gathered(self, values: Float64[Tensor, " N"]) -> Float64[Tensor, "R N"]:
        """The values of every rank."""
        own = values.cpu().contiguous()
        found = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(found, own)
        return torch.stack(found)

    def broadcast(self, data: bytes | None, *, size: int) -> bytes:
        """What rank 0 holds as `data`, whose `size` every rank knows."""
        held = torch.empty(size, dtype=torch.uint8)
        if data is not None:
            held.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        dist.broadcast(held, 0)
        return held.numpy().tobytes()

    def meet(self) -> None:
        """Wait until every rank is here."""
        dist.all_reduce(torch.zeros(1))


def open_group(store: Store, *, rank: int, count: int, device: torch.device, patience: float) -> Group:
    """Join the ranks that meet at `store`; a rank that is `patience` seconds late ends the others."""
    # what comes out of a sharded model may be a view, which is never written to here
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with lost_rank():
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=timedelta(seconds=patience))
        return Group(rank=rank, count=count, mesh=init_device_mesh(device.type, (count,)))


def close_group() -> None:
    """Leave; idempotent."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def lost_rank() -> Generator[None]:
    """Turn what a collective raises where another rank is gone into a `RankError`."""
    try:
        yield
    except RuntimeError as error:
        told = str(error)
        if isinstance(error, dist.DistError) or any(word in told.lower() for word in _ENDS):
            raise RankError(
                "another process of this learner has ended, or did not answer in time: what it wrote says why, and "
                f"--resume goes on from the last save ({told.splitlines()[0]})"
            ) from error
        raise


def shares(parts: Sequence[list[int]], sizes: Sequence[int], *, count: int) -> list[list[list[int]]]:
    """Which of the parts each rank computes, in order; heavy ones first, so that what runs side by side is alike.

    Ranks may have one part fewer than others.
    """
    order = sorted(range(len(parts)), key=lambda i: (-sum(sizes[j] for j in parts[i]), i))
    return [[parts[i] for i in order[rank::count]] for rank in range(count)]
