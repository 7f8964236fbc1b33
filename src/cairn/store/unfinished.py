"""Trajectories of groups that are not complete yet, so that a kill -9 loses no trajectory that was over.

A group is stored when all of its siblings are over. Until then each of them is kept here, and the file is emptied
whenever no group is open.
"""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from cairn.data.ids import GroupId
from cairn.data.trajectory import LostTrajectory, ScoredGroup, ScoredTrajectory
from cairn.store.codec import group_to_row, row_to_group
from cairn.store.journal import Journal, scan
from cairn.store.rows import GroupRow, TrajectoryRow


class Unfinished:
    """A journal of single trajectories and of the names of completed groups."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        """Open or create; a torn tail is cut off."""
        self._path = path
        self._journal = Journal(path, sync=sync)
        self._open: set[GroupId] = set()

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return self._journal.count > 0

    def note(self, result: ScoredTrajectory | LostTrajectory) -> None:
        """Keep a trajectory; durable on return."""
        group = _alone(result)
        self._open.add(group.plan.group_id)
        self._write(group_to_row(group))

    def complete(self, group: GroupId) -> None:
        """The group is stored elsewhere."""
        self._open.discard(group)
        if self._open:
            self._write(group)
        elif self._journal.count:
            self._journal.clear()

    def recovered(self, last: ScoredGroup | None) -> Sequence[ScoredGroup]:
        """What is left of groups that were never completed. `last` is the newest stored group.

        A process may die after it stored a group and before it said so here; then what is left of it is in `last`.
        """
        left: dict[str, list[GroupRow]] = {}
        for record in scan(self._path).records:
            entry = cast("GroupRow | str", json.loads(zlib.decompress(record)))
            if isinstance(entry, str):
                left.pop(entry, None)
            else:
                left.setdefault(entry["group_id"], []).append(entry)
        newest = group_to_row(last) if last is not None else None
        groups = [_joined(rows) for rows in left.values()]
        return [row_to_group(row, origin=str(self._path)) for row in groups if not _within(row, newest)]

    def clear(self) -> None:
        """Forget everything."""
        self._journal.clear()
        self._open.clear()

    def close(self) -> None:
        """What is kept stays in the file; where nothing is, there is none."""
        self._journal.close()
        if not self:
            self._path.unlink(missing_ok=True)

    def _write(self, entry: GroupRow | str) -> None:
        self._journal.append(zlib.compress(json.dumps(entry).encode(), 1))


def _alone(result: ScoredTrajectory | LostTrajectory) -> ScoredGroup:
    plan = result.trajectory.plan
    if isinstance(result, ScoredTrajectory):
        return ScoredGroup(plan=plan, members=(result,))
    return ScoredGroup(plan=plan, members=(), lost=(result,))


def _joined(rows: Sequence[GroupRow]) -> GroupRow:
    whole = rows[0].copy()
    whole["trajectories"] = [trajectory for row in rows for trajectory in row["trajectories"]]
    return whole


def _within(row: GroupRow, whole: GroupRow | None) -> bool:
    if whole is None:
        return False
    stored = [_played(one) for one in whole["trajectories"]]
    if any(_played(one) not in stored for one in row["trajectories"]):
        return False
    plan = whole.copy()
    plan["trajectories"] = row["trajectories"]
    return row == plan


def _played(row: TrajectoryRow) -> TrajectoryRow:
    """Without what siblings may change of its reward, once all of them are over."""
    bare = row.copy()
    bare["reward"], bare["terms"] = None, []
    return bare
