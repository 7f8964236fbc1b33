"""Single answers at pivots, and nothing executed: stage I of "Where to Learn and How Far to Roll Out"."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.data.checkpoint import Track
from cairn.data.ids import GroupId
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.orders import Aim, Order, Writer
from cairn.schedule.signals import Selection
from cairn.schedule.state import whole
from cairn.schedule.survey import Place, Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class PivotOptions:
    """The published way by default."""

    answers: int = 8
    survey_every: int | None = None  # rounds through all pivots, after which every checkpoint is measured again
    weighted: bool = False  # beyond the paper: checkpoints are drawn by their scores, without a threshold

    def __post_init__(self) -> None:
        if self.answers < 2 or (self.survey_every is not None and self.survey_every < 1):
            raise ConfigError("pivots need at least two answers to compare, and at least one round between two surveys")


class PivotRounds:
    """Measures every checkpoint, then asks for answers at every pivot once in a round, in an order shuffled anew.

    Where no checkpoint of any task is a pivot, the ones with the highest score of each task stand in.
    """

    def __init__(
        self,
        *,
        tracks: Sequence[Track],
        writer: Writer,
        selection: Selection | None = None,
        options: PivotOptions | None = None,
    ) -> None:
        if not any(track.checkpoints for track in tracks):
            raise ConfigError("there is no checkpoint to learn at: no expert solved any of the tasks")
        self._tracks = tuple(tracks)
        self._writer = writer
        self._selection = selection or Selection()
        self._options = options or PivotOptions()
        self._survey = Survey(tracks=tracks, selection=self._selection, seed=writer.seed)
        self._count = 0
        self._round = 0
        self._turn: list[Place] = []  # what is left of this round
        self._orders: dict[GroupId, Order] = {}

    @property
    def pivots(self) -> tuple[Place, ...]:
        """Of all tracks, as far as they are known."""
        places = [
            Place(track=track, checkpoint=checkpoint)
            for track in range(len(self._tracks))
            for checkpoint in self._survey.pivots(track)
        ]
        return tuple(places) or tuple(self._hesitant())

    def next_plan(self) -> RolloutPlan:
        place = self._survey.next_place()
        aim = Aim.LOCAL if place is None else Aim.SURVEY
        if place is None:
            place = self._next_pivot()
        order = Order(aim=aim, track=place.track, checkpoint=place.checkpoint, size=self._options.answers)
        track = self._tracks[place.track]
        plan = self._writer.plan(self._count, order, task=track.task, checkpoint=track.checkpoints[place.checkpoint])
        self._count += 1
        self._orders[plan.group_id] = order
        return plan

    def observe(self, group: ScoredGroup) -> None:
        """Groups that were not ordered here are passed over."""
        order = self._orders.pop(group.plan.group_id, None)
        if order is not None and order.aim is Aim.SURVEY:
            self._survey.observe(Place(track=order.track, checkpoint=order.checkpoint), group)

    def state_dict(self) -> Mapping[str, object]:
        """A round that is begun is left where it is."""
        return {
            "count": self._count,
            "round": self._round,
            "left": len(self._turn),
            "to_measure": self._survey.left,
            "scores": self._survey.state(),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """The rest of the round is the same where the pivots are."""
        self._count, self._round = whole(state, "count"), whole(state, "round")
        self._survey.load(state, "scores")
        if not self._survey.left:  # all were measured once: it was stopped in a later survey, or in none
            self._survey.renew(left=whole(state, "to_measure"))
        left = whole(state, "left")
        self._turn = self._drawn(self._round)[-left:] if left else []
        self._orders.clear()

    def _next_pivot(self) -> Place:
        if not self._turn:
            self._round += 1
            self._turn = self._drawn(self._round)
        place = self._turn.pop(0)
        every = self._options.survey_every
        if not self._turn and every is not None and self._round % every == 0:
            self._survey.renew()  # before the next round is drawn
        return place

    def _drawn(self, number: int) -> list[Place]:
        """The places of one round; a function of the seed, the number and the scores."""
        rng = np.random.default_rng((self._writer.seed, number))
        if not self._options.weighted:
            pivots = self.pivots
            return [pivots[int(i)] for i in rng.permutation(len(pivots))]
        places = [
            Place(track=t, checkpoint=c) for t, track in enumerate(self._tracks) for c in range(len(track.checkpoints))
        ]
        scores = np.array([self._survey.score(place.track, place.checkpoint) for place in places]) + 1e-6
        size = max(1, int((scores > 0.05).sum()))
        drawn = rng.choice(len(places), size=size, p=scores / scores.sum())
        return [places[int(i)] for i in drawn]

    def _hesitant(self) -> list[Place]:
        """The checkpoint of each track where the policy hesitates most."""
        return [
            Place(track=t, checkpoint=max(range(len(track.checkpoints)), key=lambda c, t=t: self._survey.score(t, c)))
            for t, track in enumerate(self._tracks)
            if track.checkpoints
        ]
