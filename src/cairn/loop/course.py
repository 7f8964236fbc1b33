"""The course of a run: demonstrations, imitation, reinforcement, and if asked a control; measured at every end.

Between two updates the run is a `Progress` and a learner; `save` makes both durable together, so that a run which is
stopped by Ctrl-C goes on where it was, and one that is killed goes on from the last save.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.data.task import Split, Template
from cairn.evaluate.report import EvaluationReport
from cairn.evaluate.run import Examiner
from cairn.loop import events, progress
from cairn.loop.budget import Budget
from cairn.loop.imitation import Curriculum
from cairn.loop.progress import Measured, Phase, Progress
from cairn.loop.sync import SyncLoop, undisturbed
from cairn.ports import LearnerStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What is evaluated, and when."""

    held_out: int  # tasks for each template at the end of a phase
    train: int
    tries: int
    curve: int  # tasks for each template between the ends; 0: none
    curve_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseOptions:
    """How long the phases are, and what is done beside them."""

    imitation: Budget
    reinforcement: Budget
    control: bool
    measuring: Measuring
    save_every: int  # updates
    rehearsal: int = 0  # updates of imitation after each of reinforcement


PROGRESS = "progress.json"
CHECKPOINTS = "checkpoints"
AGAIN = "-again"
"""Ends the name of a checkpoint that is saved while the one of that name is still needed."""

Demonstrate = Callable[[], Awaitable[Curriculum]]
"""Collects the demonstrations that are still missing, and says how to imitate them all."""


class Course:
    """Runs the phases in order, from wherever `start` is."""

    def __init__(
        self,
        *,
        loop: SyncLoop,
        evaluator: Examiner,
        templates: Sequence[Template],
        demonstrate: Demonstrate,
        options: CourseOptions,
        folder: Path,
    ) -> None:
        """`folder` is the run's directory; it holds progress.json and checkpoints/."""
        self._loop = loop
        self._evaluator = evaluator
        self._templates = tuple(templates)
        self._demonstrate = demonstrate
        self._options = options
        self._folder = folder
        self._now = Progress()
        self._curriculum: Curriculum | None = None
        self._curve_due = options.measuring.curve_seconds

    @property
    def progress_file(self) -> Path:
        """Where the run's progress is kept."""
        return self._folder / PROGRESS

    def checkpoint(self, name: str) -> Path:
        """The directory of a saved learner."""
        return self._folder / CHECKPOINTS / name

    def resume(self) -> None:
        """Go on from the last save; a run that was killed before its first one begins anew, with what it stored."""
        if self.progress_file.exists():
            self._now = progress.read(self.progress_file)
        if self._now.checkpoint is not None:
            self._loop.learner.load(self.checkpoint(self._now.checkpoint))
        if self._now.scheduler:
            self._loop.scheduler.load_state_dict(self._now.scheduler)
        self._curve_due = self._now.seconds + self._options.measuring.curve_seconds

    async def demonstrate(self) -> None:
        """The first phase alone, saved, so that `resume` goes on from it."""
        await self._lessons()
        self._save("start")

    async def run(self) -> Progress:
        """Run to the end. A cancellation saves first, and is raised again."""
        await self._serve()
        try:
            while self._now.phase is not Phase.DONE or self._owes_control:
                await self._phase()
        except asyncio.CancelledError:
            self._save("latest")
            raise
        return self._now

    async def _phase(self) -> None:
        options = self._options
        match self._now.phase:
            case Phase.DEMONSTRATE:
                self._announce("what is to be imitated is gathered")
                await self._lessons()
                self._save(Phase.DEMONSTRATE)
                await self._begin(Phase.IMITATE)
            case Phase.IMITATE:
                self._announce("behaviour cloning on the demonstrations")
                await self._learn(options.imitation, self._imitate)
                await self._begin(Phase.REINFORCE)
            case Phase.REINFORCE:
                self._announce("rollouts, and policy gradient")
                await self._learn(options.reinforcement, self._reinforce)
                await self._begin(Phase.CONTROL if options.control else Phase.DONE)
            case Phase.CONTROL:
                self._announce("behaviour cloning goes on instead, for as long as reinforcement took")
                minutes = self._now.phase_seconds[Phase.REINFORCE] / 60
                await self._learn(Budget(updates=None, minutes=minutes), self._imitate)
                await self._begin(Phase.DONE)
            case Phase.DONE:
                await self._begin(Phase.CONTROL)

    @property
    def _owes_control(self) -> bool:
        """Whether a run that ended without a control is asked for one now."""
        return self._options.control and Phase.CONTROL not in self._now.phase_seconds

    async def _learn(self, budget: Budget, step: Callable[[int], Awaitable[LearnerStep | None]]) -> None:
        """Steps until the budget is used; then the final evaluation of the phase."""
        if self._now.phase is Phase.IMITATE or self._now.phase is Phase.CONTROL:
            await self._lessons()
        while budget.left(updates=self._now.updates, seconds=self._now.seconds):
            started, version = self._loop.clock.now(), self._loop.learner.version
            try:
                taken = await step(self._now.updates)
            except asyncio.CancelledError:
                if self._loop.learner.version != version:  # it came when the update was under way, which is done now
                    self._count(started)
                raise
            self._count(started)
            self._tell(taken, budget)
            if self._now.updates % self._options.save_every == 0:
                self._save("latest")
            await self._maybe_measure_curve(budget)
        if self._now.checkpoint != self._now.phase:
            self._save(self._now.phase)
        await self._serve()
        await self._measure(final=True)

    async def _imitate(self, number: int) -> LearnerStep:
        curriculum = await self._lessons()
        done = self._updates_before() + number
        return await undisturbed(asyncio.to_thread(self._loop.learner.imitate, curriculum.batch(done)))

    async def _reinforce(self, number: int) -> LearnerStep | None:
        rehearsed = self._options.rehearsal
        if not rehearsed:
            return await self._loop.step(number)
        curriculum = await self._lessons()
        first = self._now.imitated + number * rehearsed
        return await self._loop.step(number, rehearsal=[curriculum.batch(first + i) for i in range(rehearsed)])

    def _updates_before(self) -> int:
        """A control goes on in the lessons where imitation stopped."""
        return self._now.imitated if self._now.phase is Phase.CONTROL else 0

    async def _lessons(self) -> Curriculum:
        if self._curriculum is None:
            self._curriculum = await self._demonstrate()
        return self._curriculum

    def _count(self, started: float) -> None:
        now = self._now
        self._now = replace(
            now,
            updates=now.updates + 1,
            seconds=now.seconds + self._loop.clock.now() - started,
            scheduler=self._loop.scheduler.state_dict(),
        )

    def _tell(self, step: LearnerStep | None, budget: Budget) -> None:
        now = self._now
        if step is not None:
            self._loop.events.emit(
                events.update(
                    now.phase,
                    number=now.updates,
                    minutes=self._minutes(),
                    share=budget.share(updates=now.updates, seconds=now.seconds),
                    step=step,
                )
            )

    async def _begin(self, phase: Phase) -> None:
        """Close the present phase, which has a checkpoint of its own, and open the next one."""
        now = self._now
        self._now = replace(
            now,
            phase=phase,
            updates=0,
            seconds=0.0,
            imitated=now.updates if now.phase is Phase.IMITATE else now.imitated,
            phase_seconds=dict(now.phase_seconds) | ({} if now.phase is Phase.DONE else {now.phase: now.seconds}),
        )
        self._curve_due = self._options.measuring.curve_seconds
        if phase is Phase.CONTROL:
            await undisturbed(asyncio.to_thread(self._loop.learner.load, self.checkpoint(Phase.IMITATE)))
            self._now = replace(self._now, checkpoint=Phase.IMITATE)
            await self._serve()
        progress.write(self._now, self.progress_file)

    def _save(self, name: str) -> None:
        """Save the learner, then the progress that names it: what the last progress names is not overwritten.

        It is removed then, unless a phase ended with it: with the optimiser's moments it is three times the model.
        """
        before = self._now.checkpoint
        name = name if name != before else f"{name}{AGAIN}"
        self._loop.learner.save(self.checkpoint(name))
        self._now = replace(self._now, checkpoint=name)
        progress.write(self._now, self.progress_file)
        if before is not None and before not in list(Phase):
            shutil.rmtree(self.checkpoint(before), ignore_errors=True)

    async def _serve(self) -> None:
        await self._loop.engine.update(self._loop.learner.version)

    # ── measuring ─────────────────────────────────────────────────────────────

    async def _maybe_measure_curve(self, budget: Budget) -> None:
        measuring = self._options.measuring
        more = budget.left(updates=self._now.updates, seconds=self._now.seconds)
        if measuring.curve and more and self._now.seconds >= self._curve_due:
            self._curve_due = self._now.seconds + measuring.curve_seconds
            await self._serve()
            await self._measure(final=False)

    async def _measure(self, *, final: bool) -> None:
        measuring = self._options.measuring
        held_out = measuring.held_out if final else measuring.curve
        wanted = [(Split.HELD_OUT, held_out), (Split.TRAIN, measuring.train if final else 0)]
        for split, per_template in wanted:
            for greedy in (False, True):
                missing = not final or self._now.final(self._now.phase, greedy=greedy, split=split) is None
                if not per_template or not missing or (greedy and not final):
                    continue
                if (same := self._measured_before(split, greedy=greedy)) is not None:
                    self._note(replace(same, phase=self._now.phase, minutes=self._minutes()))
                    continue
                report = await self._evaluator.run(
                    self._templates, split=split, per_template=per_template, tries=measuring.tries, greedy=greedy
                )
                self._note(self._measured(report, final=final))

    def _measured_before(self, split: Split, *, greedy: bool) -> Measured | None:
        """What is known of this very policy: a phase that learns nothing ends as well as the imitation before it."""
        if self._now.phase is Phase.IMITATE or self._now.updates:
            return None
        return self._now.final(Phase.IMITATE, greedy=greedy, split=split)

    def _measured(self, report: EvaluationReport, *, final: bool) -> Measured:
        success = report.success
        return Measured(
            phase=self._now.phase,
            minutes=self._minutes(),
            split=report.split,
            greedy=report.greedy,
            tries=report.tries,
            episodes=report.episodes,
            lost=report.lost,
            mean=success.mean,
            low=success.low,
            high=success.high,
            by_template={s.template: s.success for s in report.scores},
            final=final,
            reward=report.reward,
            answer_tokens=report.answer_tokens,
            by_kind={s.kind: s.accuracy.mean for s in report.kinds},
            by_budget={b.turns: b.success.mean for b in report.budgets},
        )

    def _note(self, measured: Measured) -> None:
        self._now = replace(self._now, measured=(*self._now.measured, measured))
        if measured.final:  # nothing is learned between the phase's checkpoint and this
            progress.write(self._now, self.progress_file)
        self._loop.events.emit(events.evaluation(measured))

    def _minutes(self) -> float:
        """Of learning that led to the present policy."""
        before = self._now.phase_seconds.get(Phase.IMITATE, 0.0) if self._now.phase is not Phase.IMITATE else 0.0
        return (before + self._now.seconds) / 60

    def _announce(self, detail: str) -> None:
        self._loop.events.emit(events.phase(self._now.phase, detail=detail))
