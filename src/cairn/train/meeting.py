"""How the ranks of a learner find each other, and how rank 0 tells the others what is to be done.

Orders go through a key-value store that rank 0 (or torchrun) serves, so that those who follow can wait for hours while
rollouts are played, and still learn within a minute that rank 0 is gone: it leaves a sign of life every few seconds.
What belongs to an order goes through the process group.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, auto

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from cairn.errors import ConfigError, RankError
from cairn.train.ranks import Group, close_group, lost_rank, open_group

LATE = 600.0
"""Seconds that a rank may be late at a collective: the longest pass of another one, and its reading of a model."""

_BEAT = 2.0  # seconds between two signs of life
_PARTING = 5.0  # seconds
_LOOK = 0.02  # seconds between two looks whether an order has come
_ORDER, _PULSE, _FAILED, _HERE, _GONE = "order", "pulse", "failed", "here", "gone"


class Order(StrEnum):
    """What rank 0 tells the others."""

    RECIPE = auto()
    IMITATE = auto()
    IMPROVE = auto()
    PREFER = auto()
    APPRAISE = auto()
    WEIGHTS = auto()  # are to be gathered
    SAVE = auto()
    LOAD = auto()
    END = auto()  # of a run
    BYE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where this process belongs among the ranks, and where they meet."""

    rank: int
    count: int
    local: int = 0  # its number on this machine
    address: str = "127.0.0.1"
    port: int = 0  # 0, of rank 0: any free one

    @classmethod
    def from_environment(cls) -> "Seat | None":
        """As torchrun says it; None where nobody does, or for one process alone."""
        told = os.environ
        if int(told.get("WORLD_SIZE", "1")) < 2:
            return None
        try:
            return cls(
                rank=int(told["RANK"]),
                count=int(told["WORLD_SIZE"]),
                local=int(told.get("LOCAL_RANK", told["RANK"])),
                address=told["MASTER_ADDR"],
                port=int(told["MASTER_PORT"]),
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"WORLD_SIZE is set, but not all of RANK, MASTER_ADDR and MASTER_PORT ({error}): start with torchrun, "
                "or unset it"
            ) from error

    @property
    def device(self) -> torch.device:
        """What this rank computes on."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        if self.local >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {self.rank} has no GPU of its own: this machine has {torch.cuda.device_count()}; start fewer"
            )
        return torch.device("cuda", self.local)


def _await_all(store: Store, count: int, *, late: float, watch: Callable[[], None]) -> None:
    begun = time.monotonic()
    missing = list(range(1, count))
    while missing:
        watch()
        missing = [rank for rank in missing if not store.check([f"{_HERE}/{rank}"])]
        if missing and time.monotonic() - begun > late:
            raise RankError(f"rank {missing[0]} did not come within {late:.0f} seconds")
        time.sleep(_LOOK)


def open_store(seat: Seat, *, patience: float = LATE) -> tuple[Store, int]:
    """The store that all ranks share, and its port; rank 0 serves it, unless torchrun does."""
    longest = timedelta(seconds=patience)
    with lost_rank():
        if "TORCHELASTIC_RUN_ID" in os.environ:
            met = dist.rendezvous(  # pyright: ignore[reportPrivateImportUsage] - as public as the next
                "env://", seat.rank, seat.count, timeout=longest
            )
            store, _, _ = next(met)
            return store, seat.port
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - it is public, says its documentation
            seat.address, seat.port, seat.count, is_master=seat.rank == 0, timeout=longest, wait_for_workers=False
        )
        return store, store.port


class Meeting:
    """The ranks, met. Rank 0 tells; the others hear."""

    def __init__(self, store: Store, group: Group, *, patience: float) -> None:
        """`patience`: seconds without a sign of life of rank 0, after which the others end."""
        self.group = group
        self._store = PrefixStore("meeting", store)
        self._patience = patience
        self._orders = 0
        self._over = threading.Event()
        if group.rank == 0:
            self._store.set(_PULSE, "0")
            threading.Thread(target=self._beat, name="rank 0 lives", daemon=True).start()

    @classmethod
    def join(
        cls,
        seat: Seat,
        store: Store,
        *,
        late: float = LATE,
        patience: float = 60.0,
        watch: Callable[[], None] = lambda: None,
    ) -> "Meeting":
        """Wait for all ranks, `late` seconds at most; rank 0 calls `watch` meanwhile, which may raise."""
        device = seat.device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        with lost_rank():
            store.set(f"{_HERE}/{seat.rank}", "")
            if seat.rank == 0:
                _await_all(store, seat.count, late=late, watch=watch)
        group = open_group(store, rank=seat.rank, count=seat.count, device=device, patience=late)
        return cls(store, group, patience=patience)

    def tell(self, order: Order, payload: bytes = b"") -> None:
        """Rank 0: have all others do `order`; each must then do its part of it."""
        said = json.dumps({"order": order, "size": len(payload)})
        self._orders += 1
        self._store.set(f"{_ORDER}/{self._orders}", said)
        if payload:
            self.group.broadcast(payload, size=len(payload))

    def hear(self) -> tuple[Order, bytes]:
        """The others: wait for the next order, for as long as rank 0 lives."""
        self._orders += 1
        key = f"{_ORDER}/{self._orders}"
        pulse, changed = b"", time.monotonic()
        while not self._store.check([key]):  # its own waiting writes a warning whenever nothing comes
            fresh = self._store.get(_PULSE)
            if fresh != pulse:
                pulse, changed = fresh, time.monotonic()
            elif time.monotonic() - changed > self._patience:
                raise RankError(f"rank 0 has given no sign of life for {self._patience:.0f} seconds")
            time.sleep(_LOOK)
        said = json.loads(self._store.get(key))
        size = int(said["size"])
        return Order(said["order"]), self.group.broadcast(None, size=size) if size else b""

    def fail(self, why: str) -> None:
        """The others: leave word of what ended this rank."""
        self._store.set(f"{_FAILED}/{self.group.rank}", why)

    def failures(self) -> list[str]:
        """Rank 0: what other ranks ended with."""
        keys = {rank: f"{_FAILED}/{rank}" for rank in range(1, self.group.count)}
        return [f"rank {r}: {self._store.get(key).decode()}" for r, key in keys.items() if self._store.check([key])]

    def part(self) -> None:
        """Rank 0: say good-bye, and wait a moment until the others have heard it: they read it from its own store."""
        self.tell(Order.BYE)
        begun = time.monotonic()
        left = [f"{_GONE}/{rank}" for rank in range(1, self.group.count)]
        while not self._store.check(left) and time.monotonic() - begun < _PARTING:
            time.sleep(_LOOK)

    def close(self) -> None:
        """Leave; idempotent."""
        self._over.set()
        close_group()
        if self.group.rank:
            with contextlib.suppress(RuntimeError):  # rank 0 may be gone
                self._store.set(f"{_GONE}/{self.group.rank}", "")

    def _beat(self) -> None:
        number = 0
        while not self._over.wait(_BEAT):
            number += 1
            try:
                self._store.set(_PULSE, str(number))
            except RuntimeError:  # the store has ended, and so has the run
                return
