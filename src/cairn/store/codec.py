"""Groups to rows and back, exactly."""

import json
from typing import cast

import numpy as np

from cairn.data.action_json import dump_action, dump_tagged, kind_of, load_action, load_tagged
from cairn.data.history import Deed
from cairn.data.ids import ElementId, GroupId, ImageId, SnapshotId, TemplateId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import FromSnapshot, Purpose, Recorded, RolloutPlan, Root, Split, Start, Task, Template
from cairn.data.trajectory import (
    Completion,
    Ending,
    Evidence,
    LostTrajectory,
    Outcome,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    Seconds,
    Term,
    Trajectory,
    Turn,
)
from cairn.errors import InvariantError, StoreError
from cairn.store.rows import SCHEMA_VERSION, ElementRow, GroupRow, SeenRow, TermRow, TrajectoryRow, TurnRow


def group_to_row(group: ScoredGroup) -> GroupRow:
    """One row for the whole group; members first."""
    plan = group.plan
    if any(result.trajectory.plan != plan for result in (*group.members, *group.lost)):
        raise InvariantError(f"{plan.group_id}: a trajectory of another plan is in this group")
    return GroupRow(
        schema=SCHEMA_VERSION,
        group_id=plan.group_id,
        template=plan.task.template.id,
        max_turns=plan.task.template.max_turns,
        split=plan.task.split,
        index=plan.task.index,
        start=_dump_start(plan.start),
        group_size=plan.group_size,
        depth=plan.depth,
        purpose=plan.purpose,
        seed=plan.seed,
        trajectories=[_dump_result(result) for result in (*group.members, *group.lost)],
    )


def row_to_group(row: GroupRow, *, origin: str) -> ScoredGroup:
    """What `group_to_row` was given; `origin` names the file in the error about another schema."""
    if row["schema"] != SCHEMA_VERSION:
        raise StoreError(f"{origin} has schema {row['schema']}, and this version of Cairn reads {SCHEMA_VERSION}")
    template = Template(id=TemplateId(row["template"]), max_turns=row["max_turns"])
    plan = RolloutPlan(
        group_id=GroupId(row["group_id"]),
        task=Task(template=template, split=Split(row["split"]), index=row["index"]),
        start=_load_start(row["start"]),
        group_size=row["group_size"],
        depth=row["depth"],
        purpose=Purpose(row["purpose"]),
        seed=row["seed"],
    )
    results = [_load_result(plan, one) for one in row["trajectories"]]
    return ScoredGroup(
        plan=plan,
        members=tuple(r for r in results if isinstance(r, ScoredTrajectory)),
        lost=tuple(r for r in results if isinstance(r, LostTrajectory)),
    )


# ── trajectories ──────────────────────────────────────────────────────────────


def _dump_result(result: ScoredTrajectory | LostTrajectory) -> TrajectoryRow:
    trajectory = result.trajectory
    evidence, seconds = trajectory.evidence, trajectory.seconds
    return TrajectoryRow(
        sibling=trajectory.sibling,
        attempt=trajectory.attempt,
        goal=trajectory.goal,
        turns=[_dump_turn(turn) for turn in trajectory.turns],
        ending=trajectory.ending,
        done=evidence.done if evidence else None,
        raw_reward=evidence.raw_reward if evidence else None,
        state=evidence.state if evidence else None,
        error=trajectory.error,
        seconds=[seconds.opening, seconds.environment, seconds.engine, seconds.closing],
        outcome=result.outcome,
        reward=result.reward if isinstance(result, ScoredTrajectory) else None,
        terms=[_dump_term(term) for term in result.terms] if isinstance(result, ScoredTrajectory) else [],
        lost=isinstance(result, LostTrajectory),
        reason=result.reason if isinstance(result, LostTrajectory) else None,
    )


def _load_result(plan: RolloutPlan, row: TrajectoryRow) -> ScoredTrajectory | LostTrajectory:
    opening, environment, engine, closing = row["seconds"]
    trajectory = Trajectory(
        plan=plan,
        sibling=row["sibling"],
        attempt=row["attempt"],
        goal=row["goal"],
        turns=tuple(_load_turn(turn) for turn in row["turns"]),
        ending=Ending(row["ending"]),
        evidence=_load_evidence(row),
        error=row["error"],
        seconds=Seconds(opening=opening, environment=environment, engine=engine, closing=closing),
    )
    outcome = Outcome(row["outcome"])
    if row["lost"]:
        return LostTrajectory(trajectory=trajectory, outcome=outcome, reason=row["reason"] or "")
    terms = tuple(_load_term(term) for term in row.get("terms") or ())  # older runs have none
    return ScoredTrajectory(trajectory=trajectory, outcome=outcome, reward=cast("float", row["reward"]), terms=terms)


def _dump_term(term: Term) -> TermRow:
    return TermRow(name=term.name, weight=term.weight, value=term.value)


def _load_term(row: TermRow) -> Term:
    return Term(name=row["name"], weight=row["weight"], value=row["value"])


def _load_evidence(row: TrajectoryRow) -> Evidence | None:
    done, raw_reward, state = row["done"], row["raw_reward"], row["state"]
    if done is None or raw_reward is None or state is None:
        return None
    return Evidence(done=done, raw_reward=raw_reward, state=state)


def _dump_turn(turn: Turn) -> TurnRow:
    return TurnRow(
        seen=dump_seen(turn.observation),
        prompt_ids=turn.prompt.token_ids.tolist(),
        prompt_images=list(turn.prompt.images),
        token_ids=turn.completion.token_ids.tolist(),
        logprobs=turn.completion.logprobs.tolist(),
        versions=turn.completion.versions.tolist(),
        truncated=turn.completion.truncated,
        action_kind=kind_of(turn.action),
        action=dump_action(turn.action),
    )


def _load_turn(row: TurnRow) -> Turn:
    return Turn(
        observation=load_seen(row["seen"]),
        prompt=Prompt(
            token_ids=np.array(row["prompt_ids"], np.int32),
            images=tuple(ImageId(image) for image in row["prompt_images"]),
        ),
        completion=Completion(
            token_ids=np.array(row["token_ids"], np.int32),
            logprobs=np.array(row["logprobs"], np.float32),
            versions=np.array(row["versions"], np.int32),
            truncated=row["truncated"],
        ),
        action=load_action(row["action_kind"], row["action"]),
    )


# ── observations and starts ───────────────────────────────────────────────────


def dump_seen(seen: Observation) -> SeenRow:
    """An observation as plain values."""
    return SeenRow(
        image=seen.image,
        elements=[_dump_element(element) for element in seen.elements],
        accessibility=seen.accessibility,
        url=seen.url,
        digest=seen.digest,
        message=seen.message,
        goal=seen.goal,
    )


def load_seen(row: SeenRow) -> Observation:
    """What `dump_seen` was given."""
    return Observation(
        image=ImageId(row["image"]) if row["image"] is not None else None,
        elements=tuple(_load_element(element) for element in row["elements"]),
        accessibility=row["accessibility"],
        url=row["url"],
        digest=row["digest"],
        message=row["message"],
        goal=row["goal"],
    )


def _dump_element(element: Element) -> ElementRow:
    return ElementRow(
        id=element.id,
        role=element.role,
        label=element.label,
        value=element.value,
        states=list(element.states),
        interactive=element.interactive,
        box=_edges(element.box),
    )


def _load_element(row: ElementRow) -> Element:
    return Element(
        id=ElementId(row["id"]),
        role=row["role"],
        label=row["label"],
        value=row["value"],
        states=tuple(row["states"]),
        interactive=row["interactive"],
        box=_box(row["box"]),
    )


def dump_box(box: Box | None) -> list[float] | None:
    """Left, top, width and height."""
    return None if box is None else _edges(box)


def load_box(row: list[float] | None) -> Box | None:
    """What `dump_box` was given."""
    return None if row is None else _box(row)


def _edges(box: Box) -> list[float]:
    return [box.left, box.top, box.width, box.height]


def _box(row: list[float]) -> Box:
    left, top, width, height = row
    return Box(left=left, top=top, width=width, height=height)


def _dump_start(start: Start) -> str:
    match start:
        case Root():
            return json.dumps(["root"])
        case FromSnapshot():
            return json.dumps(["snapshot", start.id])
        case Recorded():
            history = [[dump_seen(deed.observation), dump_tagged(deed.action)] for deed in start.history]
            seen = dump_seen(start.observation)
            expert, target = dump_tagged(start.expert), dump_box(start.target)
            told = [start.sub_goal, *([start.thought] if start.thought else [])]
            return json.dumps(["recorded", start.goal, history, seen, expert, target, *told])


def _load_start(text: str) -> Start:
    kind, *rest = json.loads(text)
    match kind:
        case "root":
            return Root()
        case "snapshot":
            return FromSnapshot(id=SnapshotId(rest[0]))
        case _:
            goal, history, seen, expert, *more = rest
            target, sub_goal, thought = (*more, *(None, "", "")[len(more) :])  # earlier versions wrote fewer
            return Recorded(
                goal=goal,
                history=tuple(Deed(observation=load_seen(s), action=load_tagged(a)) for s, a in history),
                observation=load_seen(seen),
                expert=load_tagged(expert),
                target=load_box(cast("list[float] | None", target)),
                sub_goal=sub_goal or "",
                thought=thought or "",
            )
