"""Rank 0's learner, which has the other ranks compute along; and what those do."""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from cairn.data.ids import PolicyVersion
from cairn.data.sample import Appraisal, Batch, Preference, Sample
from cairn.errors import CairnError, RankError
from cairn.models.policy import Policy
from cairn.ports import BlobStore, LearnerStep
from cairn.train.examples import uncredited
from cairn.train.learner import GradientLearner
from cairn.train.meeting import Meeting, Order
from cairn.train.messages import ReceivedImages, pack_batch, pack_pairs, unpack
from cairn.train.ranks import lost_rank
from cairn.train.sharding import whole_weights

T = TypeVar("T")


class LeadingLearner:
    """Implements `Learner` over all ranks: says what comes next, then does rank 0's part of it."""

    def __init__(self, learner: GradientLearner, *, meeting: Meeting, blobs: BlobStore) -> None:
        """`blobs` has the images of every batch."""
        self._learner = learner
        self._meeting = meeting
        self._blobs = blobs
        self._one_at_a_time = threading.Lock()  # the engine gathers weights in a thread of its own

    @property
    def version(self) -> PolicyVersion:
        return self._learner.version

    @property
    def policy(self) -> Policy:
        """Of which this rank holds a part."""
        return self._learner.policy

    def imitate(self, batch: Batch) -> LearnerStep:
        return self._all(Order.IMITATE, pack_batch(batch, self._blobs), lambda: self._learner.imitate(batch))

    def improve(self, batch: Batch) -> LearnerStep:
        return self._all(Order.IMPROVE, pack_batch(batch, self._blobs), lambda: self._learner.improve(batch))

    def prefer(self, pairs: Sequence[Preference]) -> LearnerStep:
        return self._all(Order.PREFER, pack_pairs(pairs, self._blobs), lambda: self._learner.prefer(pairs))

    def appraise(self, samples: Sequence[Sample]) -> Sequence[Appraisal]:
        batch = Batch(samples=tuple(uncredited(sample, weight=1.0) for sample in samples))
        return self._all(Order.APPRAISE, pack_batch(batch, self._blobs), lambda: self._learner.appraise(samples))

    def save(self, path: Path) -> None:
        self._all(Order.SAVE, _path(path), lambda: self._learner.save(path))

    def load(self, path: Path) -> None:
        self._all(Order.LOAD, _path(path), lambda: self._learner.load(path))

    def weights(self) -> Mapping[str, Tensor]:
        """All weights by name, on the CPU: for an engine."""
        return self._all(Order.WEIGHTS, b"", lambda: whole_weights(self.policy.model, keep=True))

    def _all(self, order: Order, payload: bytes, own: Callable[[], T]) -> T:
        with self._one_at_a_time, self._explained(), lost_rank():
            self._meeting.tell(order, payload)
            return own()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except RankError as error:
            with lost_rank():
                told = self._meeting.failures()
            if told:
                raise RankError(f"{'; '.join(told)} (--resume goes on from the last save)") from error
            raise


def follow(learner: GradientLearner, *, meeting: Meeting, images: ReceivedImages) -> None:
    """Compute along with rank 0 until it says that the run is over; a `RankError` where it is gone."""
    order = None
    try:
        while order is not Order.END:
            with lost_rank():
                order, payload = meeting.hear()
                _obey(order, payload, learner, images)
    except RankError:
        raise
    except (CairnError, RuntimeError, OSError) as error:
        meeting.fail(f"{type(error).__name__}: {error}")
        raise


def _obey(order: Order, payload: bytes, learner: GradientLearner, images: ReceivedImages) -> None:
    match order:
        case Order.IMITATE | Order.IMPROVE | Order.PREFER | Order.APPRAISE:
            _learn(order, payload, learner, images)
        case Order.WEIGHTS:
            whole_weights(learner.policy.model, keep=False)
        case Order.SAVE:
            learner.save(Path(payload.decode()))
        case Order.LOAD:
            learner.load(Path(payload.decode()))
        case Order.RECIPE | Order.END | Order.BYE:
            pass


def _learn(order: Order, payload: bytes, learner: GradientLearner, images: ReceivedImages) -> None:
    parcel = unpack(payload)
    images.take(parcel.images)
    if parcel.batch is None:
        learner.prefer(parcel.pairs)
    elif order is Order.APPRAISE:
        learner.appraise([credited.sample for credited in parcel.batch.samples])
    elif order is Order.IMITATE:
        learner.imitate(parcel.batch)
    else:
        learner.improve(parcel.batch)


def _path(path: Path) -> bytes:
    return str(path.absolute()).encode()
