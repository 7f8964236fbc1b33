"""What stands in the place of an environment where there are records alone: templates, and nothing to open."""

from collections.abc import Sequence

from cairn.data.task import Start, Task, Template
from cairn.errors import ConfigError
from cairn.ports import Session

NAME = "recorded"


class RecordedEnvironment:
    """Implements `Environment`. Answers at recorded states need no session, so `capacity` bounds nothing but them."""

    def __init__(self, *, templates: Sequence[Template], capacity: int = 64) -> None:
        self._templates = tuple(templates)
        self._capacity = capacity

    @property
    def name(self) -> str:
        return NAME

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def templates(self) -> Sequence[Template]:
        return self._templates

    def has_expert(self, template: Template) -> bool:
        """What the expert did is in the records."""
        del template
        return False

    async def open(self, task: Task, *, start: Start) -> Session:
        """Always raises."""
        del start
        raise ConfigError(f"{task.id} is only known from a record: there is nothing to open")

    async def close(self) -> None:
        """Nothing is open."""
