"""The turn-level table of a run: one row per turn, with what its trajectory and its group came to beside it."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from cairn.store.rows import GroupRow, TrajectoryRow, TurnRow

_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("purpose", pa.string()),
        ("template", pa.string()),
        ("split", pa.string()),
        ("index", pa.int32()),
        ("sibling", pa.int32()),
        ("attempt", pa.int32()),
        ("turn", pa.int32()),
        ("turns", pa.int32()),  # of the trajectory
        ("goal", pa.string()),
        ("outcome", pa.string()),
        ("ending", pa.string()),
        ("reward", pa.float64()),  # null where the trajectory was lost
        ("terms", pa.map_(pa.string(), pa.float64())),  # of a composed reward, unweighted
        ("reason", pa.string()),  # why it was lost
        ("image", pa.string()),
        ("url", pa.string()),
        ("digest", pa.string()),
        ("message", pa.string()),
        ("action_kind", pa.string()),
        ("action", pa.string()),  # JSON of its fields
        ("prompt_ids", pa.list_(pa.int32())),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("version", pa.int32()),  # the oldest that sampled a token of this turn
        ("truncated", pa.bool_()),
    ]
)


def turn_table(groups: Iterable[GroupRow]) -> pa.Table:
    """Explode groups into turns. Trajectories without a turn have no row."""
    rows = [
        _row(group, trajectory, number, turn)
        for group, trajectory in _trajectories(groups)
        for number, turn in enumerate(trajectory["turns"])
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _trajectories(groups: Iterable[GroupRow]) -> Iterator[tuple[GroupRow, TrajectoryRow]]:
    for group in groups:
        for trajectory in group["trajectories"]:
            yield group, trajectory


def _row(group: GroupRow, trajectory: TrajectoryRow, number: int, turn: TurnRow) -> dict[str, object]:
    seen = turn["seen"]
    return {
        "group": group["group_id"],
        "purpose": group["purpose"],
        "template": group["template"],
        "split": group["split"],
        "index": group["index"],
        "sibling": trajectory["sibling"],
        "attempt": trajectory["attempt"],
        "turn": number,
        "turns": len(trajectory["turns"]),
        "goal": trajectory["goal"],
        "outcome": trajectory["outcome"],
        "ending": trajectory["ending"],
        "reward": trajectory["reward"],
        "terms": [(term["name"], term["value"]) for term in trajectory.get("terms") or ()],
        "reason": trajectory["reason"],
        "image": seen["image"],
        "url": seen["url"],
        "digest": seen["digest"],
        "message": seen["message"],
        "action_kind": turn["action_kind"],
        "action": turn["action"],
        "prompt_ids": turn["prompt_ids"],
        "token_ids": turn["token_ids"],
        "logprobs": turn["logprobs"],
        "version": min(turn["versions"]),
        "truncated": turn["truncated"],
    }
