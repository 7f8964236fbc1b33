"""The shape of what is stored: rows of plain values, and the same as an Arrow schema. One row is one group."""

from typing import NotRequired, TypedDict

import pyarrow as pa

SCHEMA_VERSION = 2
"""Rises whenever a row changes its meaning; older segments are then refused or translated, never misread."""


class ElementRow(TypedDict):
    """An element of the page."""

    id: int
    role: str
    label: str
    value: str
    states: list[str]
    interactive: bool
    box: list[float]  # left, top, width, height


class SeenRow(TypedDict):
    """An observation."""

    image: str | None
    elements: list[ElementRow]
    accessibility: str
    url: str
    digest: str
    message: str
    goal: str


class TurnRow(TypedDict):
    """A turn; `action` is the JSON of the fields of an action of that kind."""

    seen: SeenRow
    prompt_ids: list[int]
    prompt_images: list[str]
    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    truncated: bool
    action_kind: str
    action: str


class TermRow(TypedDict):
    """A part of a composed reward."""

    name: str
    weight: float
    value: float


class TrajectoryRow(TypedDict):
    """A trajectory with its verdict. `lost`: it is no member of its group, and `reason` says why."""

    sibling: int
    attempt: int
    goal: str
    turns: list[TurnRow]
    ending: str
    done: bool | None  # evidence; all three are None where there is none
    raw_reward: float | None
    state: str | None
    error: str | None
    seconds: list[float]  # opening, environment, engine, closing
    outcome: str
    reward: float | None
    terms: NotRequired[list[TermRow]]  # missing in rows of before there were any
    lost: bool
    reason: str | None


class GroupRow(TypedDict):
    """A plan and what it came to."""

    schema: int
    group_id: str
    template: str
    max_turns: int
    split: str
    index: int
    start: str  # JSON
    group_size: int
    depth: int
    purpose: str
    seed: int
    trajectories: list[TrajectoryRow]


_ELEMENT = pa.struct(
    [
        ("id", pa.int32()),
        ("role", pa.string()),
        ("label", pa.string()),
        ("value", pa.string()),
        ("states", pa.list_(pa.string())),
        ("interactive", pa.bool_()),
        ("box", pa.list_(pa.float64())),
    ]
)
_SEEN = pa.struct(
    [
        ("image", pa.string()),
        ("elements", pa.list_(_ELEMENT)),
        ("accessibility", pa.string()),
        ("url", pa.string()),
        ("digest", pa.string()),
        ("message", pa.string()),
        ("goal", pa.string()),
    ]
)
_TURN = pa.struct(
    [
        ("seen", _SEEN),
        ("prompt_ids", pa.list_(pa.int32())),
        ("prompt_images", pa.list_(pa.string())),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("versions", pa.list_(pa.int32())),
        ("truncated", pa.bool_()),
        ("action_kind", pa.string()),
        ("action", pa.string()),
    ]
)
_TERM = pa.struct([("name", pa.string()), ("weight", pa.float64()), ("value", pa.float64())])
_TRAJECTORY = pa.struct(
    [
        ("sibling", pa.int32()),
        ("attempt", pa.int32()),
        ("goal", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("ending", pa.string()),
        ("done", pa.bool_()),
        ("raw_reward", pa.float64()),
        ("state", pa.string()),
        ("error", pa.string()),
        ("seconds", pa.list_(pa.float64())),
        ("outcome", pa.string()),
        ("reward", pa.float64()),
        ("terms", pa.list_(_TERM)),
        ("lost", pa.bool_()),
        ("reason", pa.string()),
    ]
)
GROUP_SCHEMA = pa.schema(
    [
        ("schema", pa.int32()),
        ("group_id", pa.string()),
        ("template", pa.string()),
        ("max_turns", pa.int32()),
        ("split", pa.string()),
        ("index", pa.int32()),
        ("start", pa.string()),
        ("group_size", pa.int32()),
        ("depth", pa.int32()),
        ("purpose", pa.string()),
        ("seed", pa.int64()),
        ("trajectories", pa.list_(_TRAJECTORY)),
    ]
)
