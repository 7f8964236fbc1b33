"""Thoughts of a teacher for recorded states, kept where the teacher's own action is the recorded one (InfiGUI-R1)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cairn.app.datasets import write_subset
from cairn.app.recorded import require_states
from cairn.data.action import Invalid
from cairn.data.matching import Matching, PlaceRule, TextRule
from cairn.data.recorded import RecordedState
from cairn.data.task import Split
from cairn.engines.chat import ChatEndpoint
from cairn.engines.teacher import ChatTeacher, ReadingTeacher, load_teacher_prompt
from cairn.errors import ConfigError, EngineError
from cairn.rollout.unwrap import one_error
from cairn.store.recorded import Manifest, RecordedSet, require_no_set
from cairn.teacher_ports import Teacher

RIGHT = Matching(places=PlaceRule.ELEMENT, text=TextRule.EXACT)
"""When a teacher's action is the recorded one: on the same element, with the same text."""
_AT_ONCE = 8
_HOPELESS = 16  # failures in a row, after which the endpoint is given up


class Dropped(StrEnum):
    """Why a state is left out."""

    WRONG = "wrong"  # the teacher would do something else
    UNREADABLE = "unreadable"  # it says no action
    NO_THOUGHT = "no_thought"
    FAILED = "failed"  # the endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherOptions:
    """Who teaches."""

    url: str | None = None  # of an OpenAI-compatible endpoint, up to and with /v1; None: the offline double
    model: str = ""
    key_variable: str = "OPENAI_API_KEY"
    prompt: Path | None = None  # a TOML file in the place of the shipped prompt
    wordy: bool = False  # of the double


def build_teacher(options: TeacherOptions) -> Teacher:
    """The endpoint's, or the one that reads the record aloud. A `ConfigError` says what is missing."""
    if options.url is None:
        return ReadingTeacher(wordy=options.wordy)
    if not options.model:
        raise ConfigError("a teacher's url needs its model, as the endpoint calls it")
    endpoint = ChatEndpoint(
        url=options.url, model=options.model, key_variable=options.key_variable, max_tokens=_TOKENS, seconds=_SECONDS
    )
    return ChatTeacher(endpoint=endpoint, prompt=load_teacher_prompt(options.prompt))


_TOKENS = 2048  # of an answer: models that reason write much of it before what is asked for
_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled:
    """What came of it. States that were not kept are in no part of the new set's training side."""

    manifest: Manifest
    asked: int  # training states
    kept: int
    dropped: tuple[tuple[Dropped, int], ...]  # the most frequent reason first


Told = Callable[[int, int], None]
"""Told at how many states the teacher has been asked, of how many."""


def _silent(done: int, whole: int) -> None:
    del done, whole


async def distil(folder: Path, out: Path, *, teacher: Teacher, progress: Told = _silent) -> Distilled:
    """Ask at every training state of a set, and write those where the teacher is right, with what it thought.

    Held-out states are taken over as they are. Raises `EngineError` where the teacher cannot be asked at all.
    """
    require_no_set(out)
    found = RecordedSet(folder)
    require_states(found, Split.TRAIN)
    states = found.of(Split.TRAIN)
    lesson = _Lesson(teacher=teacher, progress=progress, whole=len(states))
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(state: RecordedState) -> RecordedState | Dropped:
        async with places:
            return await lesson.taught(state)

    with one_error():
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(one(state)) for state in states]
    outcomes = [task.result() for task in asked]
    kept = [outcome for outcome in outcomes if isinstance(outcome, RecordedState)]
    dropped = Counter(outcome for outcome in outcomes if isinstance(outcome, Dropped))
    if not kept:
        why = ", ".join(f"{reason} {count}" for reason, count in dropped.most_common())
        raise ConfigError(
            f"the teacher {teacher.name} was right with a thought at none of {len(states)} states ({why})"
        )
    manifest = write_subset(found, out, kept=kept, origin=f"{folder}, with the thoughts of {teacher.name}")
    return Distilled(manifest=manifest, asked=len(states), kept=len(kept), dropped=tuple(dropped.most_common()))


@dataclass(slots=True, kw_only=True)
class _Lesson:
    """What has been asked so far."""

    teacher: Teacher
    progress: Told
    whole: int
    done: int = 0
    failures: int = 0  # in a row

    async def taught(self, state: RecordedState) -> RecordedState | Dropped:
        start = state.start
        try:
            said = await self.teacher.explain(start)
        except EngineError:
            self.failures += 1
            if self.failures >= min(_HOPELESS, self.whole):
                raise
            return Dropped.FAILED
        self.done, self.failures = self.done + 1, 0
        self.progress(self.done, self.whole)
        if isinstance(said.action, Invalid):
            return Dropped.UNREADABLE
        if not RIGHT.agrees(said.action, start.expert, start.observation):
            return Dropped.WRONG
        if not said.thought:
            return Dropped.NO_THOUGHT
        return replace(state, start=replace(start, thought=said.thought))
