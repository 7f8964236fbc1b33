"""A run whose learner is several processes: rank 0 leads it, and the others compute along."""

import contextlib
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.errors import CairnError, ConfigError, RankError
from cairn.models.loading import configure_torch

if TYPE_CHECKING:
    from cairn.train.meeting import Meeting, Seat

_ENDING_SECONDS = 20.0


def follows() -> bool:
    """Whether this process is a rank that follows, as its environment says."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"


class Company:
    """The other processes of the learners that this one leads; by itself it has none. They come with the first run."""

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self._started = False  # by torchrun, rather than here
        self._meeting: Meeting | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    @classmethod
    @contextmanager
    def of(cls, count: int) -> "Generator[Company]":
        """`count` - 1 processes that are started here, or those that torchrun has started; they end with the block."""
        company = cls(count)
        told = int(os.environ.get("WORLD_SIZE", "1"))
        if told > 1:
            if count > 1:
                raise ConfigError("--ranks is for runs without torchrun, which has said already how many there are")
            company._count, company._started = told, True
        try:
            yield company
        finally:
            company._end()

    @contextmanager
    def leading(self, config: RunConfig) -> Generator["Meeting | None"]:
        """Have the others follow a run of this recipe; None where there are no others."""
        if self._count == 1:
            yield None
            return
        _require_plain(config)
        meeting = self._meeting = self._meeting or self._meet(config)
        from cairn.train.meeting import Order

        meeting.tell(Order.RECIPE, configuration.to_toml(config).encode())
        try:
            yield meeting
        finally:
            with contextlib.suppress(RuntimeError):  # they may be gone
                meeting.tell(Order.END)

    def _meet(self, config: RunConfig) -> "Meeting":
        configure_torch(threads=config.policy.threads)  # before torch comes in
        from cairn.train.meeting import Meeting, Seat, open_store

        seat = Seat.from_environment() or Seat(rank=0, count=self._count)
        if not self._started:
            _require_devices(self._count)
        store, port = open_store(seat)
        if not self._started:
            self._processes = [_start(seat, rank, port) for rank in range(1, self._count)]
        return Meeting.join(seat, store, watch=self._require_alive)

    def _require_alive(self) -> None:
        for rank, process in enumerate(self._processes, start=1):
            if process.poll() is not None:
                raise RankError(f"rank {rank} ended with status {process.returncode}; what it wrote says why")

    def _end(self) -> None:
        """Say good-bye, and kill those that do not end by themselves."""
        if self._meeting is not None:
            with contextlib.suppress(RuntimeError):
                self._meeting.part()
            self._meeting.close()
        for process in self._processes:
            try:
                process.wait(_ENDING_SECONDS if self._meeting is not None else 0.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def follow_run() -> None:
    """Be a rank that follows, until rank 0 says good-bye. Signals are rank 0's affair: it saves before it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_torch(threads=1)
    from cairn.train.meeting import Meeting, Order, Seat, open_store

    seat = Seat.from_environment()
    assert seat is not None
    store, _ = open_store(seat)
    meeting = Meeting.join(seat, store)
    try:
        while (heard := meeting.hear())[0] is Order.RECIPE:
            _follow(configuration.parse(tomllib.loads(heard[1].decode()), origin="the recipe of rank 0"), meeting)
    except RankError:
        raise
    except (CairnError, RuntimeError, OSError) as error:
        meeting.fail(f"{type(error).__name__}: {error}")
        raise
    finally:
        meeting.close()


def _follow(config: RunConfig, meeting: "Meeting") -> None:
    configure_torch(threads=config.policy.threads)
    from cairn.app.brain import follow_brain

    follow_brain(config, meeting=meeting)


def _start(seat: "Seat", rank: int, port: int) -> "subprocess.Popen[bytes]":
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": seat.count,
        "MASTER_ADDR": seat.address,
        "MASTER_PORT": port,
    }
    environment = os.environ | {name: str(value) for name, value in place.items()}
    command = [sys.executable, "-m", "cairn.cli.main", "train", "the recipe of rank 0"]
    standard_error = 2  # standard output is rank 0's: its last line is JSON
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=standard_error)  # noqa: S603 - our own


def _require_plain(config: RunConfig) -> None:
    """Raise a `ConfigError` for what one process alone can do."""
    if config.policy.lora_rank:
        raise ConfigError("policy.lora_rank: adapters are trained by one process; set it to 0, or leave out --ranks")
    if config.reinforcement.estimator == "gae":
        raise ConfigError('reinforcement.estimator = "gae": a critic learns in one process; leave out --ranks')
    for name, optimizer in (
        ("imitation", config.imitation.optimizer),
        ("reinforcement", config.reinforcement.optimizer),
    ):
        if optimizer.state != "float32":
            raise ConfigError(
                f'{name}.optimizer.state = "{optimizer.state}" is for one process: several ranks share out moments in '
                'float32; set it to "float32", or leave out --ranks'
            )


def _require_devices(count: int) -> None:
    import torch

    found = torch.cuda.device_count()
    if found and count > found:
        raise ConfigError(f"--ranks {count}: this machine has {found} GPUs, and every rank needs one")
