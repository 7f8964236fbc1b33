"""Which store a run gets, what is counted, and a training run whose sessions can be saved."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cairn.app.snapshots import SnapshotCounts, StoreReport, choose, survey, with_snapshots
from cairn.config.tables import SnapshotOptions
from cairn.data.ids import TemplateId
from cairn.data.ledger import Ledger, Quantity
from cairn.data.snapshot import StoreKind
from cairn.data.task import FromSnapshot, Root, Split, Task
from cairn.errors import SetupError
from cairn.ports import Event
from cairn.snapshots.containers.probe import lacking
from cairn.snapshots.containers.usable import Usable
from cairn.snapshots.home import Home
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from cairn.testing.scripted import COUNT, ScriptedEnvironment

WORKS = Usable()
BROKEN = Usable(reason="it is Tuesday", fix="wait a day")


def reporting(**broken: Usable) -> Callable[[StoreKind], Awaitable[StoreReport]]:
    """Every store works but those that are named."""

    async def report(kind: StoreKind) -> StoreReport:
        return StoreReport(kind=kind, usable=broken.get(kind.value, WORKS))

    return report


async def lossy(kind: StoreKind) -> StoreReport:
    """Containers do not work, and the environment's own states leave something out."""
    containers = kind in {StoreKind.CRIU, StoreKind.PODMAN}
    leaves_out = "requests under way" if kind is StoreKind.NATIVE else ""
    return StoreReport(kind=kind, usable=BROKEN if containers else WORKS, leaves_out=leaves_out)


async def test_auto_takes_the_most_exact_store_that_works_with_those_below_it_that_can_open_its_states() -> None:
    assert (await choose("auto", reporting())).kinds == (StoreKind.CRIU, StoreKind.NATIVE, StoreKind.REPLAY)
    second = await choose("auto", reporting(criu=BROKEN))
    assert second.kinds == (StoreKind.PODMAN, StoreKind.NATIVE, StoreKind.REPLAY)
    third = await choose("auto", reporting(criu=BROKEN, podman=BROKEN))
    assert third.kinds == (StoreKind.NATIVE, StoreKind.REPLAY)
    assert third.why == "not criu: it is Tuesday; not podman: it is Tuesday"


async def test_a_store_that_leaves_something_out_is_nobodys_choice_but_the_users() -> None:
    chosen = await choose("auto", lossy)
    assert chosen.kinds == (StoreKind.REPLAY,)
    assert "not native: it leaves out requests under way" in chosen.why
    assert (await choose("native", lossy)).kinds == (StoreKind.NATIVE, StoreKind.REPLAY)


async def test_a_store_that_is_asked_for_is_taken_or_refused_with_the_fix() -> None:
    assert (await choose("native", reporting())).kinds == (StoreKind.NATIVE, StoreKind.REPLAY)
    assert (await choose("criu", reporting(native=BROKEN))).kinds == (StoreKind.CRIU, StoreKind.REPLAY)
    with pytest.raises(SetupError, match="store criu cannot be used: it is Tuesday; wait a day"):
        await choose("criu", reporting(criu=BROKEN))


async def test_an_environment_that_exports_nothing_and_knows_no_containers_is_replayed(tmp_path: Path) -> None:
    environment = ScriptedEnvironment(blobs=MemoryBlobs())
    found = await survey(environment, contained=False)
    assert [report.kind for report in found if report.usable.ok] == [StoreKind.REPLAY]
    events = MemoryEvents()
    home = Home(folder=tmp_path / "kept")
    async with with_snapshots(
        environment, SnapshotOptions(store="auto"), home=home, blobs=MemoryBlobs(), events=events
    ) as saved:
        task = Task(template=COUNT, split=Split.TRAIN, index=2)
        session = await saved.open(task, start=Root())
        await session.observe()
        kept = await session.snapshot()
        assert (await (await saved.open(task, start=FromSnapshot(id=kept))).observe()).digest
    assert events.kinds() == ["snapshot_store", "snapshot_saved"]
    assert "knows no containers" in str(events.events[0].fields["why"])
    assert not home.memory.exists()


def test_what_is_missing_is_said_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "need root" in lacking(prefix=tmp_path).reason
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert lacking(prefix=tmp_path).fix == "run scripts/setup-snapshots"
    for part in ("criu/bin/criu", "rootfs/VERSION"):
        (tmp_path / part).parent.mkdir(parents=True)
        (tmp_path / part).touch()
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")
    assert "MB free" in lacking(prefix=tmp_path, memory=tmp_path / "nowhere").reason
    monkeypatch.setattr("shutil.which", lambda tool: None)
    assert "nsenter is missing" in lacking(prefix=tmp_path).reason
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert "riscv64" in lacking(prefix=tmp_path).reason


def test_saves_failures_and_fallbacks_are_counted_by_template() -> None:
    counted = Ledger()

    def count(more: Ledger) -> None:
        nonlocal counted
        counted = counted + more

    sink = SnapshotCounts(count)
    for kind in ("snapshot_saved", "snapshot_saved", "snapshot_failed", "snapshot_fallback", "update"):
        sink.emit(Event(kind=kind, fields={"template": "scripted/count"}))
    at = TemplateId("scripted/count")
    assert counted.total(Quantity.SAVES, template=at) == 2
    assert counted.total(Quantity.RESTORE_FAILURES, template=at) == 1
    assert counted.total(Quantity.RESTORE_FALLBACKS, template=at) == 1
