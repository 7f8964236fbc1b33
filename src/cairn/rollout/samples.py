"""Scored groups -> one batch: which tokens are trained, in which context, and what each of them is worth."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Float64, Int32

from cairn.algo.returns import moments
from cairn.data.ids import ImageId
from cairn.data.sample import Aggregation, Appraisal, Batch, CreditedSample, NoGradient, Sample, Targets
from cairn.data.trajectory import RULES, ScoredGroup, Trajectory, Turn
from cairn.errors import ConfigError, InvariantError
from cairn.rollout.estimators import AdvantageFn, Appraised, Idle, TokenFn, Worth, no_gradient, without_costs


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


Appraise: TypeAlias = Callable[[Sequence[Sample]], Sequence[Appraisal]]
"""A learner's word on each of some samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crediting:
    """How a round's rewards become what its tokens are worth."""

    advantages: AdvantageFn
    aggregation: Aggregation
    norm: float | None = None  # the constant of SEQ_MEAN_TOKEN_SUM_NORM
    whitened: bool = False  # advantages of all sampled tokens together have mean 0 and variance 1 (REINFORCE++)
    effective: bool = False  # times trajectories / those whose advantage is not 0 (GPG)
    idle: Idle = no_gradient
    tokens: TokenFn | None = None  # of estimators that tell tokens apart, in the place of `advantages`
    kl: float = 0.0  # weight of the KL to the reference in the reward
    appraised: bool = False  # whether the learner must be asked: there is such a KL, or a critic


def samples_of(trajectory: Trajectory) -> tuple[Sample, ...]:
    """The fewest samples that hold every sampled token exactly once, after exactly its prompt.

    With P a prompt, C a completion and E what the environment showed next::

        turn 0: P0 -> C0,  turn 1: P0+C0+E0 -> C1,  turn 2: P2 -> C2   (an edited history)
        ->  [P0 C0 E0 C1], [P2 C2]

    Turns share a sample only where the next prompt starts with the previous prompt and completion *as ids*, and its
    images start with the previous ones.
    """
    return tuple(piece.sample for piece in _pieces(trajectory))


def credit(groups: Sequence[ScoredGroup], crediting: Crediting, *, appraise: Appraise | None = None) -> Credited:
    """Spread each turn's advantage over the tokens that were sampled in it, and merge equal samples.

    Weights carry the denominators of the whole batch, so that its loss is a plain sum in any order and split. For the
    three means over tokens, the weights of a batch sum to 1. Groups without a gradient are left out of batch and
    denominators, and reported. `appraise` is asked where `crediting` wants it, once, with every sample of the round.
    """
    reasons = [(group, crediting.idle(group)) for group in groups]
    used = tuple(group for group, why in reasons if why is None)
    rows = _rows(used, crediting, appraise)
    if rows and (crediting.whitened or crediting.effective):
        centre, spread = _moments(rows) if crediting.whitened else (0.0, _share_at_work(rows))
        rows = [row.scaled(centre, spread) for row in rows]
    weigh = _weigher(rows, crediting.aggregation, crediting.norm)
    merged: dict[_Key, _Sum] = {}
    for row in rows:
        for piece, worth, targets in zip(row.pieces, row.worth, row.targets, strict=True):
            key = _key(piece.sample, None if targets is None else len(merged))
            merged.setdefault(key, _Sum(piece.sample, targets)).add(weigh(piece), worth)
    return Credited(
        batch=Batch(samples=tuple(total.credited() for total in merged.values())) if merged else None,
        used=used,
        dropped=tuple(Dropped(group=group, why=why) for group, why in reasons if why is not None),
        sequences=sum(len(row.pieces) for row in rows),
    )


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


# ── what they were worth ──────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One trajectory of the batch."""

    pieces: tuple[_Piece, ...]
    worth: tuple[Float64[np.ndarray, " _"], ...]  # advantages of each piece's tokens; 0 where none was sampled
    targets: tuple[Targets | None, ...]

    @property
    def sampled(self) -> Float64[np.ndarray, " T"]:
        """The advantages of its sampled tokens."""
        found = [own[piece.sample.loss_mask] for piece, own in zip(self.pieces, self.worth, strict=True)]
        return np.concatenate(found) if found else np.empty(0)

    def scaled(self, centre: float, spread: float) -> "_Row":
        masks = [piece.sample.loss_mask for piece in self.pieces]
        worth = [np.where(mask, (own - centre) / spread, 0.0) for mask, own in zip(masks, self.worth, strict=True)]
        return replace(self, worth=tuple(worth))


def _rows(groups: Sequence[ScoredGroup], crediting: Crediting, appraise: Appraise | None) -> list[_Row]:
    pieces = [[tuple(_pieces(member.trajectory)) for member in group.members] for group in groups]
    said = _appraised(pieces, crediting, appraise)
    rows: list[_Row] = []
    for group, own, words in zip(groups, pieces, said, strict=True):
        if crediting.tokens is not None:
            found = [
                _by_token(parts, crediting.tokens(member, word, group.greedy), word)
                for member, parts, word in zip(group.members, own, words, strict=True)
            ]
        else:
            charged = without_costs(group, words) if crediting.kl else group
            advantages = crediting.advantages(charged)
            found = [_by_turn_of(parts, worth) for parts, worth in zip(own, advantages, strict=True)]
        inside = [RULES[member.outcome].in_loss for member in group.members]
        rows += [row for row, counts in zip(found, inside, strict=True) if counts and row is not None]
    return rows


def _by_turn_of(pieces: tuple[_Piece, ...], advantages: Float64[np.ndarray, " _"] | None) -> _Row | None:
    if advantages is None:
        return None
    worth = tuple(np.where(piece.turn >= 0, advantages[piece.turn], 0.0) for piece in pieces)
    return _Row(pieces=pieces, worth=worth, targets=(None,) * len(pieces))


def _by_token(pieces: tuple[_Piece, ...], worth: Worth, said: Appraised) -> _Row:
    advantages = _spread(pieces, worth.advantages)
    if worth.returns is None:
        return _Row(pieces=pieces, worth=advantages, targets=(None,) * len(pieces))
    both = zip(_spread(pieces, said.values), _spread(pieces, worth.returns), strict=True)
    targets = tuple(Targets(values=v.astype(np.float32), returns=r.astype(np.float32)) for v, r in both)
    return _Row(pieces=pieces, worth=advantages, targets=targets)


def _spread(pieces: Sequence[_Piece], values: Float64[np.ndarray, " T"]) -> tuple[Float64[np.ndarray, " _"], ...]:
    """Values of a trajectory's sampled tokens, put where those tokens are."""
    found: list[Float64[np.ndarray, " _"]] = []
    done = 0
    for piece in pieces:
        mask = piece.sample.loss_mask
        own = np.zeros(mask.shape)
        own[mask] = values[done : done + _sampled(piece)]
        done += _sampled(piece)
        found.append(own)
    return tuple(found)


def _appraised(
    pieces: Sequence[Sequence[tuple[_Piece, ...]]], crediting: Crediting, appraise: Appraise | None
) -> list[list[Appraised]]:
    """What the learner says of every member's sampled tokens; nothing (zeros) where it need not be asked."""
    if not crediting.appraised:
        return [[_unsaid(parts) for parts in own] for own in pieces]
    if appraise is None:
        raise InvariantError("this estimator needs a learner's word on each sample, and there is no learner")
    every = [piece.sample for own in pieces for parts in own for piece in parts]
    different = {_key(sample): sample for sample in every}
    said = dict(zip(different, appraise(list(different.values())) if different else (), strict=True))

    def joined(parts: tuple[_Piece, ...]) -> Appraised:
        words = [(said[_key(piece.sample)], piece.sample.loss_mask) for piece in parts]
        costs = np.concatenate([word.divergence[mask] for word, mask in words]) if words else np.empty(0)
        values = np.concatenate([word.values[mask] for word, mask in words]) if words else np.empty(0)
        return Appraised(costs=crediting.kl * costs.astype(np.float64), values=values.astype(np.float64))

    return [[joined(parts) for parts in own] for own in pieces]


def _unsaid(pieces: Sequence[_Piece]) -> Appraised:
    none = np.zeros(sum(_sampled(piece) for piece in pieces))
    return Appraised(costs=none, values=none)


def _moments(rows: Sequence[_Row]) -> tuple[float, float]:
    """Of all sampled tokens; nothing is taken off where there are none."""
    tokens = np.concatenate([row.sampled for row in rows])
    return moments(tokens) if tokens.size else (0.0, 1.0)


def _share_at_work(rows: Sequence[_Row]) -> float:
    """Trajectories with an advantage among all of them."""
    return sum(bool(row.sampled.any()) for row in rows) / len(rows) or 1.0


# ── weights ───────────────────────────────────────────────────────────────────


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

_Key: TypeAlias = tuple[bytes, bytes, bytes, tuple[ImageId, ...], int | None]


def _key(sample: Sample, alone: int | None = None) -> _Key:
    """Equal for samples that are one to the learner; with a number of its own, a sample is like no other."""
    return (sample.token_ids.tobytes(), sample.loss_mask.tobytes(), sample.versions.tobytes(), sample.images, alone)


class _Sum:
    """The credits of samples that are equal in ids, images and versions.

    Such samples have equal log-probs up to the engine's rounding; those of the first are kept.
    """

    def __init__(self, sample: Sample, targets: Targets | None) -> None:
        self._sample = sample
        self._targets = targets
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
            critic=self._targets,
        )
