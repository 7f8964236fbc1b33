"""Where to learn and how far to roll out: each task by itself goes from single answers over suffixes to the whole."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from cairn.data.checkpoint import Track
from cairn.data.ids import GroupId
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.orders import Aim, Order, Writer, successes
from cairn.schedule.progress import RANK, Mode, TaskProgress, load_progress
from cairn.schedule.signals import Selection
from cairn.schedule.state import table, whole
from cairn.schedule.survey import Place, Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveOptions:
    """The published values, with `tau_suffix` of the appendix; the main text has 0.75."""

    tau_low: float = 0.25  # estimates below: single answers; up to tau_high: suffixes; above: the whole task
    tau_high: float = 0.75
    tau_suffix: float = 0.5  # a success rate above it moves the frontier towards the root
    answers: int = 8  # in a group at one state
    suffixes: int = 8  # in a group from one pivot
    estimate: int = 4  # root rollouts that say how well a task goes
    probes: int = 2  # root rollouts of a task that is at its root
    local_pivots: int = 4  # of a task that are answered in one visit, drawn by their scores where there are more
    estimate_every: int = 5  # visits of a task that is answered locally
    suffix_window: int = 1  # visits whose success rates are averaged before the frontier moves
    # beyond the paper, all off by default
    rescue_after: int | None = None  # estimates without a gradient between them, after which suffixes begin anyway
    demote_below: float | None = None  # success of the last `probe_window` probes that sends a task back to suffixes
    probe_window: int = 8

    def __post_init__(self) -> None:
        if not 0 <= self.tau_low <= self.tau_high <= 1:
            raise ConfigError(f"0 <= tau_low <= tau_high <= 1 must hold, got {self.tau_low} and {self.tau_high}")
        if not 0 <= self.tau_suffix < 1:
            raise ConfigError(f"tau_suffix must be in [0, 1), or nothing is ever above it; got {self.tau_suffix}")
        sizes = (self.answers, self.suffixes, self.probes)
        if min(sizes) < 2:
            raise ConfigError(f"groups need at least two members to be compared, got {min(sizes)}")
        periods = (self.estimate, self.local_pivots, self.estimate_every, self.suffix_window, self.probe_window)
        if min(periods) < 1 or (self.rescue_after is not None and self.rescue_after < 1):
            raise ConfigError("estimates, pivots, periods and windows are at least 1")

    def route(self, success: float) -> Mode:
        """The mode of a task whose root rollouts succeed that often."""
        if success < self.tau_low:
            return Mode.LOCAL
        return Mode.SUFFIX if success <= self.tau_high else Mode.ROOT


MAIN_TEXT = AdaptiveOptions(tau_suffix=0.75)
APPENDIX = AdaptiveOptions(tau_suffix=0.5)


class Adaptive:
    """Surveys the checkpoints, estimates every task, then visits tasks in turn, each in its own mode.

    A task moves from single answers at its pivots to suffixes from its deepest pivot, and with each success rate above
    `tau_suffix` one pivot towards the root, until whole tasks are rolled out; never back, unless options say so.
    A task that waits for its groups is passed over. Plans depend on the seed and on the groups observed alone.
    """

    def __init__(
        self,
        *,
        tracks: Sequence[Track],
        writer: Writer,
        selection: Selection | None = None,
        options: AdaptiveOptions | None = None,
    ) -> None:
        if not tracks:
            raise ConfigError("the scheduler needs at least one task")
        self._tracks = tuple(tracks)
        self._writer = writer
        self._options = options or AdaptiveOptions()
        self._survey = Survey(tracks=tracks, selection=selection or Selection(), seed=writer.seed)
        self._progress = [TaskProgress() for _ in tracks]
        self._count = 0
        self._drawn = 0  # tasks drawn for a visit, those passed over included
        self._unrouted = 0  # the first track that was not estimated yet
        self._queue: deque[Order] = deque()
        self._orders: dict[GroupId, Order] = {}
        self._turn: tuple[int, tuple[int, ...]] = (-1, ())  # the order of tasks in one round through all of them

    def mode(self, track: int) -> Mode | None:
        """Of a task; None before its first estimate."""
        return self._progress[track].mode

    def frontier(self, track: int) -> int | None:
        """The checkpoint that suffixes of a task start from; None in another mode, and where there is no way in."""
        ways = self._ways(track)
        if self._progress[track].mode is not Mode.SUFFIX or not ways:
            return None
        return ways[min(self._progress[track].frontier, len(ways) - 1)]

    def next_plan(self) -> RolloutPlan:
        if not self._queue:
            self._queue.extend(self._more())
        order = self._queue.popleft()
        track = self._tracks[order.track]
        checkpoint = track.checkpoints[order.checkpoint] if order.checkpoint >= 0 else None
        plan = self._writer.plan(self._count, order, task=track.task, checkpoint=checkpoint)
        self._count += 1
        self._orders[plan.group_id] = order
        self._progress[order.track].waiting += 1
        return plan

    def observe(self, group: ScoredGroup) -> None:
        """Groups that were not ordered here, as by a process that died since, are passed over."""
        order = self._orders.pop(group.plan.group_id, None)
        if order is None:
            return
        progress = self._progress[order.track]
        progress.waiting -= 1
        match order.aim:
            case Aim.SURVEY:
                self._survey.observe(Place(track=order.track, checkpoint=order.checkpoint), group)
            case Aim.ESTIMATE:
                self._estimated(order.track, successes(group))
            case Aim.LOCAL:
                progress.learned |= float(np.ptp(group.rewards)) > 0 if group.members else False
            case Aim.SUFFIX:
                self._advance(order, successes(group))
            case Aim.ROOT:
                self._probed(order.track, successes(group))

    # ── what to order ─────────────────────────────────────────────────────────

    def _more(self) -> Iterator[Order]:
        """At least one order."""
        place = self._survey.next_place()
        if place is not None:
            yield Order(aim=Aim.SURVEY, track=place.track, checkpoint=place.checkpoint, size=self._options.answers)
            return
        track = self._next_unrouted()
        if track is None:
            track = self._draw()
        if self._progress[track].mode is None:
            yield self._estimate(track)
        else:
            yield from self._visit(track)

    def _next_unrouted(self) -> int | None:
        """A task whose first estimate was not ordered yet."""
        while self._unrouted < len(self._tracks):
            self._unrouted += 1
            if self._progress[self._unrouted - 1].mode is None:
                return self._unrouted - 1
        return None

    def _draw(self) -> int:
        """The next task in turn that waits for nothing; where all wait, the next one that is known, or any."""
        size = len(self._tracks)
        passed: int | None = None
        for _ in range(size):
            cycle, index = divmod(self._drawn, size)
            self._drawn += 1
            if self._turn[0] != cycle:
                rng = np.random.default_rng((self._writer.seed, cycle))
                self._turn = (cycle, tuple(int(i) for i in rng.permutation(size)))
            track = self._turn[1][index]
            progress = self._progress[track]
            if not progress.waiting:
                return track
            if passed is None and progress.mode is not None:
                passed = track
        return self._turn[1][0] if passed is None else passed

    def _visit(self, track: int) -> Iterator[Order]:
        progress, options = self._progress[track], self._options
        progress.visits += 1
        if not self._ways(track):  # no checkpoints, or none that a session could go on from
            yield Order(aim=Aim.ROOT, track=track, size=options.suffixes)
        elif progress.mode is Mode.LOCAL:
            for checkpoint in self._answered(track):
                yield Order(aim=Aim.LOCAL, track=track, checkpoint=checkpoint, size=options.answers)
            if progress.visits % options.estimate_every == 0:
                yield self._estimate(track)
        elif (way := self.frontier(track)) is not None:
            yield Order(aim=Aim.SUFFIX, track=track, checkpoint=way, size=options.suffixes)
        else:
            yield Order(aim=Aim.ROOT, track=track, size=options.probes)

    def _estimate(self, track: int) -> Order:
        return Order(aim=Aim.ESTIMATE, track=track, size=self._options.estimate)

    def _answered(self, track: int) -> tuple[int, ...]:
        """The pivots of one visit: all of them, or some drawn by their scores."""
        pivots = self._survey.pivots(track) or self._ways(track)
        if len(pivots) <= self._options.local_pivots:
            return pivots
        scores = np.array([max(self._survey.score(track, pivot), 1e-6) for pivot in pivots])
        rng = np.random.default_rng((self._writer.seed, track, self._progress[track].visits))
        drawn = rng.choice(len(pivots), size=self._options.local_pivots, replace=False, p=scores / scores.sum())
        return tuple(pivots[int(i)] for i in sorted(drawn))

    def _ways(self, track: int) -> tuple[int, ...]:
        """Checkpoints that suffixes may start from, from the root on: the pivots, or one that stands in for them.

        A task without pivots starts in its middle where it succeeds sometimes, and else where the policy hesitates
        most.
        """
        checkpoints = self._tracks[track].checkpoints
        usable = [i for i, c in enumerate(checkpoints) if c.snapshot is not None or c.step == 0]
        pivots = tuple(pivot for pivot in self._survey.pivots(track) if pivot in usable)
        if pivots or not usable:
            return pivots
        if self._progress[track].mode is Mode.LOCAL:
            return (max(usable, key=lambda i: self._survey.score(track, i)),)
        return (usable[len(usable) // 2],)

    # ── what came of it ───────────────────────────────────────────────────────

    def _estimated(self, track: int, tries: Sequence[bool]) -> None:
        """Tries add up until there are enough: some may have been lost outside."""
        progress, options = self._progress[track], self._options
        progress.tries.extend(tries)
        if len(progress.tries) < options.estimate:
            if not progress.waiting:
                self._queue.append(self._estimate(track))
            return
        found = options.route(sum(progress.tries) / len(progress.tries))
        progress.tries.clear()
        progress.idle = 0 if progress.learned else progress.idle + 1
        progress.learned = False
        if found is Mode.LOCAL and options.rescue_after is not None and progress.idle > options.rescue_after:
            found = Mode.SUFFIX
        if progress.mode is None or RANK[found] > RANK[progress.mode]:
            self._enter(track, found)

    def _enter(self, track: int, mode: Mode) -> None:
        progress = self._progress[track]
        progress.mode, progress.idle = mode, 0
        if mode is Mode.SUFFIX:
            progress.frontier = max(0, len(self._ways(track)) - 1)
            progress.rates.clear()

    def _advance(self, order: Order, tries: Sequence[bool]) -> None:
        progress, options = self._progress[order.track], self._options
        if not tries or progress.mode is not Mode.SUFFIX or self.frontier(order.track) != order.checkpoint:
            return  # it was ordered before the frontier moved
        progress.rates.append(sum(tries) / len(tries))
        del progress.rates[: -options.suffix_window]
        if len(progress.rates) < options.suffix_window or float(np.mean(progress.rates)) <= options.tau_suffix:
            return
        progress.rates.clear()
        if progress.frontier:
            progress.frontier -= 1
        else:
            self._enter(order.track, Mode.ROOT)

    def _probed(self, track: int, tries: Sequence[bool]) -> None:
        progress, options = self._progress[track], self._options
        progress.probes.extend(tries)
        del progress.probes[: -options.probe_window]
        if options.demote_below is None or len(progress.probes) < options.probe_window or not self._ways(track):
            return
        if sum(progress.probes) / len(progress.probes) < options.demote_below:
            self._enter(track, Mode.SUFFIX)
            progress.frontier = 0  # it was mastered from there once
            progress.probes.clear()

    # ── to go on elsewhere ────────────────────────────────────────────────────

    def state_dict(self) -> Mapping[str, object]:
        """Orders under way are left out: they are given again."""
        return {
            "count": self._count,
            "drawn": self._drawn,
            "scores": self._survey.state(),
            "queue": [[order.aim, order.track, order.checkpoint, order.size] for order in self._queue],
            "tasks": {
                track.task.id: {**self._progress[i].state(), "at": self.frontier(i)}  # "at" is for readers alone
                for i, track in enumerate(self._tracks)
            },
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Tasks that the state does not know start afresh."""
        self._count, self._drawn = whole(state, "count"), whole(state, "drawn")
        self._survey.load(state, "scores")
        tasks = table(state, "tasks")
        self._progress = [
            load_progress(table(tasks, track.task.id)) if track.task.id in tasks else TaskProgress()
            for track in self._tracks
        ]
        queued = cast("Sequence[tuple[str, int, int, int]]", state.get("queue") or ())
        self._queue = deque(
            Order(aim=Aim(aim), track=track, checkpoint=checkpoint, size=size)
            for aim, track, checkpoint, size in queued
        )
        self._orders.clear()
        self._unrouted = 0
