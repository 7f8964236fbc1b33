"""Demonstrations to imitate: what experts show of the first training tasks, ordered into lessons."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.data.ids import TemplateId
from cairn.data.task import Split, Task, Template
from cairn.data.trajectory import Outcome, ScoredGroup
from cairn.errors import ConfigError, SessionError
from cairn.loop import events
from cairn.loop.experts import ExpertPlayer
from cairn.loop.imitation import Curriculum, Weigh, evenly, lessons_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """The first training tasks of every template, played by its expert. A failed one is reported, not hidden."""

    player: ExpertPlayer
    templates: Sequence[Template]  # those that an expert can show
    without: Sequence[Template]  # those that none can
    per_template: int
    batch_size: int
    answers: int
    seed: int
    weigh: Weigh = evenly

    async def curriculum(self) -> Curriculum:
        """Play what the store does not hold yet, and order all of it into lessons."""
        indices = range(self.per_template)
        groups = await self.player.play(
            [
                Task(template=template, split=Split.TRAIN, index=index)
                for index in indices
                for template in self.templates
            ]
        )
        if groups:
            self._report(groups)
        for template in self.without:
            self._tell(f"{template.id} has no expert: it is practised without demonstrations")
        lessons = lessons_from(groups, self.player.codec)
        return Curriculum(lessons, batch_size=self.batch_size, answers=self.answers, seed=self.seed, weigh=self.weigh)

    def _report(self, groups: Sequence[ScoredGroup]) -> None:
        solved = [m for group in groups for m in group.members if m.outcome is Outcome.SUCCESS]
        if not solved:
            causes = [lost.reason for group in groups for lost in group.lost if not group.members]
            if causes:
                raise SessionError(f"no demonstration could be played to its end; the last attempt: {causes[-1]}")
            raise ConfigError("no expert solved anything: there are no demonstrations to imitate")
        self._tell(f"{len(solved)} demonstrations, {sum(len(m.trajectory.turns) for m in solved)} turns")
        for template, count in failures(groups).items():
            self._tell(f"the expert failed {count} of {self.per_template} on {template}")

    def _tell(self, text: str) -> None:
        self.player.events.emit(events.notice(text))


def failures(groups: Sequence[ScoredGroup]) -> Counter[TemplateId]:
    """How many demonstrations of each template came to nothing; those without a failure are left out."""
    return Counter(
        group.plan.task.template.id
        for group in groups
        if not any(member.outcome is Outcome.SUCCESS for member in group.members)
    )
