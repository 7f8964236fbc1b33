"""Scored groups -> one batch: which tokens are trained, in which context, and what each of them is worth."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Float64, Int32

from cairn.algo.returns import moments
from cairn.data.ids import ImageId
from cairn.data.sample import Aggregation, Batch, CreditedSample, NoGradient, Sample
from cairn.data.trajectory import RULES, Outcome, ScoredGroup, ScoredTrajectory, Trajectory, Turn
from cairn.errors import ConfigError
from cairn.rollout.estimators import AdvantageFn


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A group that gives no gradient."""

    group: ScoredGroup
    why: NoGradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """What a round of groups came to."""

    batch: Batch | None  # None where no group gives a gradient
    used: tuple[ScoredGroup, ...]
    dropped: tuple[Dropped, ...]
    sequences: int  # samples before equal ones were merged


def no_gradient(group: ScoredGroup) -> NoGradient | None:
    """Why the group teaches nothing; None where it does."""
    if len(group.members) < 2:
        return NoGradient.TOO_SMALL
    if np.ptp(group.rewards) > 0:
        return None
    solved = sum(member.outcome is Outcome.SUCCESS for member in group.members)
    if solved == len(group.members):
        return NoGradient.ALL_SOLVED
    return NoGradient.EQUAL_REWARDS if solved else NoGradient.ALL_FAILED


def samples_of(trajectory: Trajectory) -> tuple[Sample, ...]:
    """The fewest samples that hold every sampled token exactly once, after exactly its prompt.

    With P a prompt, C a completion and E what the environment showed next::

        turn 0: P0 -> C0,  turn 1: P0+C0+E0 -> C1,  turn 2: P2 -> C2   (an edited history)
        ->  [P0 C0 E0 C1], [P2 C2]

    Turns share a sample only where the next prompt starts with the previous prompt and completion *as ids*, and its
    images start with the previous ones.
    """
    return tuple(piece.sample for piece in _pieces(trajectory))


def credit(
    groups: Sequence[ScoredGroup],
    *,
    advantages: AdvantageFn,
    aggregation: Aggregation,
    norm: float | None = None,
    whitened: bool = False,
) -> Credited:
    """Spread each turn's advantage over the tokens that were sampled in it, and merge equal samples.

    Weights carry the denominators of the whole batch, so that its loss is a plain sum in any order and split. For the
    three means over tokens, the weights of a batch sum to 1. `norm` is the constant of SEQ_MEAN_TOKEN_SUM_NORM. Groups
    without a gradient are left out of batch and denominators, and reported. `whitened` gives the advantages of all
    sampled tokens together mean 0 and variance 1 (REINFORCE++, arXiv:2501.03262).
    """
    reasons = [(group, no_gradient(group)) for group in groups]
    used = tuple(group for group, why in reasons if why is None)
    scored = [(member, own) for group in used for member, own in _in_loss(group, advantages(group))]
    rows = [_Row(advantages=own, pieces=tuple(_pieces(member.trajectory))) for member, own in scored]
    if whitened and rows:
        rows = _whitened(rows)
    weigh = _weigher(rows, aggregation, norm)
    merged: dict[_Key, _Sum] = {}
    for row in rows:
        for piece in row.pieces:
            merged.setdefault(_key(piece.sample), _Sum(piece.sample)).add(weigh(piece), row.advantages[piece.turn])
    return Credited(
        batch=Batch(samples=tuple(total.credited() for total in merged.values())) if merged else None,
        used=used,
        dropped=tuple(Dropped(group=group, why=why) for group, why in reasons if why is not None),
        sequences=sum(len(row.pieces) for row in rows),
    )


def _in_loss(
    group: ScoredGroup, advantages: Sequence[Float64[np.ndarray, " _"]]
) -> Iterator[tuple[ScoredTrajectory, Float64[np.ndarray, " _"]]]:
    for member, own in zip(group.members, advantages, strict=True):
        if RULES[member.outcome].in_loss:
            yield member, own


# ── turns to samples ──────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A sample, and which turn of its trajectory each token was sampled in (-1: in none)."""

    sample: Sample
    turn: Int32[np.ndarray, " L"]
    turns: int  # of the whole trajectory


def _pieces(trajectory: Trajectory) -> Iterator[_Piece]:
    run: list[Turn] = []
    first = 0
    for index, turn in enumerate(trajectory.turns):
        if run and not _extends(run[-1], turn):
            yield _join(run, first, len(trajectory.turns))
            run, first = [], index
        run.append(turn)
    if run:
        yield _join(run, first, len(trajectory.turns))


def _extends(before: Turn, after: Turn) -> bool:
    prompt, prefix = after.prompt.token_ids, before.prompt.token_ids
    known, answered = prefix.shape[0], before.completion.token_ids.shape[0]
    return (
        np.array_equal(prompt[:known], prefix)
        and np.array_equal(prompt[known : known + answered], before.completion.token_ids)
        and after.prompt.images[: len(before.prompt.images)] == before.prompt.images
    )


def _join(run: Sequence[Turn], first: int, turns_in_all: int) -> _Piece:
    ids: list[Int32[np.ndarray, " N"]] = []
    logprobs: list[Float32[np.ndarray, " N"]] = []
    versions: list[Int32[np.ndarray, " N"]] = []
    turns: list[Int32[np.ndarray, " N"]] = []
    seen = 0
    for index, turn in enumerate(run, start=first):
        fresh, done = turn.prompt.token_ids[seen:], turn.completion
        ids += [fresh, done.token_ids]
        logprobs += [np.zeros(fresh.shape, np.float32), done.logprobs]
        versions += [np.full(fresh.shape, -1, np.int32), done.versions]
        turns += [np.full(fresh.shape, -1, np.int32), np.full(done.token_ids.shape, index, np.int32)]
        seen = turn.prompt.token_ids.shape[0] + done.token_ids.shape[0]
    turn_of = np.concatenate(turns)
    sample = Sample(
        token_ids=np.concatenate(ids),
        loss_mask=turn_of >= 0,
        logprobs=np.concatenate(logprobs),
        versions=np.concatenate(versions),
        images=run[-1].prompt.images,
    )
    return _Piece(sample=sample, turn=turn_of, turns=turns_in_all)


# ── weights ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One trajectory of the batch."""

    advantages: Float64[np.ndarray, " _"]  # of its turns
    pieces: tuple[_Piece, ...]


def _whitened(rows: Sequence[_Row]) -> list[_Row]:
    tokens = [row.advantages[piece.turn[piece.turn >= 0]] for row in rows for piece in row.pieces]
    centre, spread = moments(np.concatenate(tokens))
    return [replace(row, advantages=(row.advantages - centre) / spread) for row in rows]


_Weigher: TypeAlias = Callable[[_Piece], Float64[np.ndarray, " L"]]


def _weigher(rows: Sequence[_Row], aggregation: Aggregation, norm: float | None) -> _Weigher:
    sequences = sum(len(row.pieces) for row in rows)
    match aggregation:
        case Aggregation.TOKEN_MEAN:
            tokens = sum(_sampled(piece) for row in rows for piece in row.pieces)
            return lambda piece: _even(piece, 1 / tokens)
        case Aggregation.SEQ_MEAN_TOKEN_SUM:
            return lambda piece: _even(piece, 1 / sequences)
        case Aggregation.SEQ_MEAN_TOKEN_MEAN:
            return lambda piece: _even(piece, 1 / (sequences * _sampled(piece)))
        case Aggregation.SEQ_MEAN_TOKEN_SUM_NORM:
            if norm is None or norm <= 0:
                raise ConfigError(f"{aggregation} divides by a constant: give a positive norm, got {norm}")
            return lambda piece: _even(piece, 1 / norm)
        case Aggregation.TRAJECTORY_MEAN:
            return lambda piece: _by_turn(piece) / len(rows)


def _sampled(piece: _Piece) -> int:
    return int(piece.sample.loss_mask.sum())


def _even(piece: _Piece, weight: float) -> Float64[np.ndarray, " L"]:
    return np.where(piece.sample.loss_mask, weight, 0.0)


def _by_turn(piece: _Piece) -> Float64[np.ndarray, " L"]:
    """Each turn of a trajectory weighs the same, however many tokens it took; sums to 1 over the trajectory."""
    _, place, tokens = np.unique(piece.turn, return_inverse=True, return_counts=True)
    return np.where(piece.turn >= 0, 1.0 / (piece.turns * tokens[place]), 0.0)


# ── merging equal samples ─────────────────────────────────────────────────────

_Key: TypeAlias = tuple[bytes, bytes, bytes, tuple[ImageId, ...]]


def _key(sample: Sample) -> _Key:
    return (sample.token_ids.tobytes(), sample.loss_mask.tobytes(), sample.versions.tobytes(), sample.images)


class _Sum:
    """The credits of samples that are equal in ids, images and versions.

    Such samples have equal log-probs up to the engine's rounding; those of the first are kept.
    """

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._positive = np.zeros(sample.token_ids.shape, np.float64)
        self._negative = np.zeros(sample.token_ids.shape, np.float64)
        self._weights = np.zeros(sample.token_ids.shape, np.float64)

    def add(self, weights: Float64[np.ndarray, " L"], advantages: Float64[np.ndarray, " L"]) -> None:
        """Weights are 0 wherever nothing was sampled, whatever the advantages there are."""
        self._weights += weights
        self._positive += weights * advantages.clip(min=0.0)
        self._negative += weights * advantages.clip(max=0.0)

    def credited(self) -> CreditedSample:
        return CreditedSample(
            sample=self._sample,
            positive=self._positive.astype(np.float32),
            negative=self._negative.astype(np.float32),
            weights=self._weights.astype(np.float32),
        )
