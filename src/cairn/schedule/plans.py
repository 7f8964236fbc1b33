"""What every scheduler of whole tasks orders: a group of siblings from a training task's root to its end."""

from dataclasses import dataclass

import numpy as np

from cairn.data.ids import GroupId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.errors import ConfigError

_TRAIN_SEEDS = 1_000_000


def seed_of(seed: int, number: int) -> int:
    """Of the `number`-th plan of a run with that seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class RootPlans:
    """Writes plans that start at the root. Training indices wrap around at the end of their split."""

    group_size: int
    seed: int
    start_index: int = 0  # training indices below it are left to others, such as demonstrations
    max_turns: int | None = None  # a limit below the template's own

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.seed < 0 or not 0 <= self.start_index < _TRAIN_SEEDS:
            raise ConfigError("a scheduler needs group_size >= 1, seed >= 0 and start_index in [0, 1000000)")

    def plan(self, number: int, template: Template, *, visit: int) -> RolloutPlan:
        """The `number`-th plan of the run, which is the `visit`-th of its template."""
        usable = _TRAIN_SEEDS - self.start_index
        return RolloutPlan(
            group_id=GroupId(f"train-{number:06d}"),
            task=Task(template=template, split=Split.TRAIN, index=self.start_index + visit % usable),
            start=Root(),
            group_size=self.group_size,
            depth=template.depth(self.max_turns),
            purpose=Purpose.TRAIN,
            seed=seed_of(self.seed, number),
        )
