"""Recorded states as lines of JSON, and back. A line holds states of one way, with each page on it written once."""

import json
from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

from cairn.data.action_json import dump_tagged, load_tagged
from cairn.data.history import Deed
from cairn.data.ids import TemplateId
from cairn.data.observation import Observation
from cairn.data.recorded import RecordedState
from cairn.data.task import Recorded, Split, Task, Template
from cairn.store.codec import dump_box, dump_seen, load_box, load_seen
from cairn.store.rows import SeenRow


class StateRow(TypedDict):
    """A state; `at` and the first of each deed are places in the line's pages."""

    step: int
    goal: str
    history: list[tuple[int, str]]  # page and action of each deed
    at: int
    expert: str
    target: list[float] | None
    sub_goal: str
    thought: NotRequired[str]  # where there is one


class WayRow(TypedDict):
    """States of one way, in the order of recording."""

    template: str
    max_turns: int
    index: int
    episode: str
    source: str
    pages: list[SeenRow]
    states: list[StateRow]


def dump_way(states: Sequence[RecordedState]) -> str:
    """A line without its end. The states are of one task, episode and source."""
    pages: dict[Observation, int] = {}
    rows = [_dump_state(state, pages) for state in states]
    first = states[0]
    return json.dumps(
        WayRow(
            template=first.task.template.id,
            max_turns=first.task.template.max_turns,
            index=first.task.index,
            episode=first.episode,
            source=first.source,
            pages=[dump_seen(page) for page in pages],
            states=rows,
        )
    )


def load_way(line: str, *, split: Split) -> tuple[RecordedState, ...]:
    """What `dump_way` was given, on that side of the split. A damaged line raises whatever it is that went wrong."""
    row = cast("WayRow", json.loads(line))
    pages = [load_seen(page) for page in row["pages"]]
    template = Template(id=TemplateId(row["template"]), max_turns=row["max_turns"])
    return tuple(
        RecordedState(
            task=Task(template=template, split=split, index=row["index"]),
            episode=row["episode"],
            step=state["step"],
            source=row["source"],
            start=_load_start(state, pages),
        )
        for state in row["states"]
    )


def _dump_state(state: RecordedState, pages: dict[Observation, int]) -> StateRow:
    def place(page: Observation) -> int:
        return pages.setdefault(page, len(pages))

    start = state.start
    row = StateRow(
        step=state.step,
        goal=start.goal,
        history=[(place(deed.observation), dump_tagged(deed.action)) for deed in start.history],
        at=place(start.observation),
        expert=dump_tagged(start.expert),
        target=dump_box(start.target),
        sub_goal=start.sub_goal,
    )
    if start.thought:
        row["thought"] = start.thought
    return row


def _load_start(row: StateRow, pages: Sequence[Observation]) -> Recorded:
    return Recorded(
        goal=row["goal"],
        history=tuple(Deed(observation=pages[at], action=load_tagged(action)) for at, action in row["history"]),
        observation=pages[row["at"]],
        expert=load_tagged(row["expert"]),
        target=load_box(row["target"]),
        sub_goal=row["sub_goal"],
        thought=row.get("thought", ""),
    )
