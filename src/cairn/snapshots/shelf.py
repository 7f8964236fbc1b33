"""The catalogue of snapshots: one file each, which outlives the process that saved it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cairn.data.action_json import dump_tagged, load_tagged
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.observation import Observation
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import Split, Task, Template
from cairn.errors import ConfigError, SessionError, StoreError
from cairn.scratch import remove_all, unfinished_name

_SCHEMA = 1
_SEEN = TypeAdapter(Observation)


class Shelf:
    """Snapshots in a folder, by id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, snapshot: Snapshot) -> None:
        """Keep it; whole, or not at all."""
        path = self._path(snapshot.id)
        fresh = self._folder / unfinished_name(path.name)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as file:
                file.write(_dump(snapshot))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            remove_all(fresh)
            raise SessionError(f"the snapshot could not be noted in {self._folder}: {error.strerror}") from error

    def get(self, wanted: SnapshotId) -> Snapshot:
        """The snapshot of that id. Raises `ConfigError` where there is none."""
        path = self._path(wanted)
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, ValueError):
            raise ConfigError(f"there is no snapshot {wanted!r} in {self._folder}") from None
        try:
            return _load(text)
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path} is damaged: remove it with `cairn snapshot rm {wanted}`") from error

    def ids(self) -> list[SnapshotId]:
        """Of all of them, those that cannot be read among them."""
        return [SnapshotId(path.stem) for path in sorted(self._folder.glob("*.json")) if path.stem.isalnum()]

    def __iter__(self) -> Iterator[Snapshot]:
        """All of them, by id. Raises `StoreError` at one that is damaged."""
        for snapshot in self.ids():
            yield self.get(snapshot)

    def __contains__(self, wanted: SnapshotId) -> bool:
        return self._path(wanted).is_file()

    def remove(self, unwanted: SnapshotId) -> None:
        """Forget it. Idempotent."""
        self._path(unwanted).unlink(missing_ok=True)

    def _path(self, wanted: SnapshotId) -> Path:
        if not wanted.isalnum():
            raise ConfigError(f"{wanted!r} is no snapshot's id: ids are letters and digits")
        return self._folder / f"{wanted}.json"


def _dump(snapshot: Snapshot) -> str:
    task = snapshot.task
    return json.dumps(
        {
            "schema": _SCHEMA,
            "id": snapshot.id,
            "template": task.template.id,
            "max_turns": task.template.max_turns,
            "split": task.split,
            "index": task.index,
            "goal": snapshot.goal,
            "history": [[_seen(deed.observation), dump_tagged(deed.action)] for deed in snapshot.history],
            "seen": _seen(snapshot.seen),
            "script_errors": snapshot.script_errors,
            "kind": snapshot.kind,
            "parent": snapshot.parent,
            "size": snapshot.size,
            "build": snapshot.build,
        }
    )


def _load(text: str) -> Snapshot:
    row = json.loads(text)
    if row["schema"] != _SCHEMA:
        raise StoreError(f"snapshot {row['id']} has schema {row['schema']}, and this version of Cairn reads {_SCHEMA}")
    template = Template(id=TemplateId(row["template"]), max_turns=row["max_turns"])
    return Snapshot(
        id=SnapshotId(row["id"]),
        task=Task(template=template, split=Split(row["split"]), index=row["index"]),
        goal=row["goal"],
        history=tuple(
            Deed(observation=_SEEN.validate_python(seen), action=load_tagged(action)) for seen, action in row["history"]
        ),
        seen=_SEEN.validate_python(row["seen"]),
        script_errors=row["script_errors"],
        kind=StoreKind(row["kind"]),
        parent=SnapshotId(row["parent"]) if row["parent"] else None,
        size=row["size"],
        build=row["build"],
    )


def _seen(observation: Observation) -> object:
    return _SEEN.dump_python(observation, mode="json")
