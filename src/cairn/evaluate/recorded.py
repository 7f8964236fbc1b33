"""Evaluation without an environment: single answers at recorded states of tasks that training never draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cairn.data.ids import GroupId
from cairn.data.recorded import RecordedState
from cairn.data.task import Purpose, RolloutPlan, Split, Template
from cairn.evaluate.report import EvaluationReport, summarise
from cairn.evaluate.run import Play, seed_of
from cairn.ports import Sampling

StatesOf = Callable[[Split, Template], Sequence[RecordedState]]
"""The states of one template on one side of the split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvaluator:
    """Asks at the same states every time, spread evenly over those that there are. Implements `Examiner`."""

    play: Play
    states: StatesOf
    sampling: Sampling
    seed: int

    async def run(
        self, templates: Sequence[Template], *, split: Split, per_template: int, tries: int, greedy: bool
    ) -> EvaluationReport:
        """Ask at `per_template` states of each template, or at all where there are fewer."""
        tries = 1 if greedy else tries
        chosen = [state for template in templates for state in spread(self.states(split, template), per_template)]
        plans = [self._plan(state, place, tries=tries) for place, state in enumerate(chosen)]
        sampling = replace(self.sampling, temperature=0.0) if greedy else self.sampling
        return summarise(await self.play(plans, sampling), split=split, greedy=greedy, tries=tries)

    def _plan(self, state: RecordedState, place: int, *, tries: int) -> RolloutPlan:
        return RolloutPlan(
            group_id=GroupId(f"evaluate/{state.task.id}/{state.name}"),
            task=state.task,
            start=state.start,
            group_size=tries,
            depth=1,
            purpose=Purpose.EVALUATE,
            seed=seed_of(self.seed, place),
        )


def spread(states: Sequence[RecordedState], size: int) -> list[RecordedState]:
    """So many of them at even distances; all where there are not more."""
    if len(states) <= size:
        return list(states)
    return [states[int(place)] for place in np.arange(size) * len(states) // size]
