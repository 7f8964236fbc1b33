"""Recorded states to imitate."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from jaxtyping import Int32

from cairn.data.checkpoint import Track
from cairn.data.recorded import RecordedState
from cairn.data.task import Recorded, Task
from cairn.loop.imitation import Lesson
from cairn.ports import Codec
from cairn.teacher_ports import ExplainingCodec


class RecordedLessons(Sequence[Lesson]):
    """A lesson for each state, made when it is asked for: its prompt, and every way to say what the expert did."""

    def __init__(self, states: Sequence[RecordedState], codec: Codec) -> None:
        """The codec can say what the expert did at each of the states."""
        self._states = states
        self._codec = codec

    def __len__(self) -> int:
        return len(self._states)

    @overload
    def __getitem__(self, index: int) -> Lesson: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Lesson]: ...

    def __getitem__(self, index: int | slice) -> Lesson | Sequence[Lesson]:
        if isinstance(index, slice):
            return RecordedLessons(self._states[index], self._codec)
        state = self._states[index]
        return _lesson(state.task, state.start, self._codec)


def lessons_on(tracks: Sequence[Track], codec: Codec) -> tuple[Lesson, ...]:
    """A lesson for each state on experts' ways through training tasks, where the codec can say what they did."""
    ways = [(track.task, checkpoint.answered()) for track in tracks for checkpoint in track.checkpoints]
    lessons = [_lesson(task, start, codec) for task, start in ways]
    return tuple(lesson for lesson in lessons if lesson.answers)


def _lesson(task: Task, start: Recorded, codec: Codec) -> Lesson:
    goal = start.observation.instruction(start.goal)
    return Lesson(
        template=task.template.id,
        prompt=codec.prompt(goal, start.history, start.observation),
        answers=_answers(goal, start, codec),
    )


def _answers(goal: str, start: Recorded, codec: Codec) -> Sequence[Int32[np.ndarray, " C"]]:
    """With the thought, where there is one and the codec has thoughts."""
    if start.thought and isinstance(codec, ExplainingCodec):
        return codec.explained(goal, start.thought, start.expert, start.observation)
    return codec.answers(goal, start.expert, start.observation)
