"""What every trajectory store must do: parametrise one test over `STORE_CONTRACT`; `make` gives an empty store."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cairn.data.ids import GroupId, TemplateId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import ScoredGroup
from cairn.ports import TrajectoryStore
from cairn.testing.groups import played_group
from cairn.testing.same import same_groups

Make = Callable[[], TrajectoryStore]
Check = Callable[[Make], None]

_PLAN = RolloutPlan(
    group_id=GroupId("g"),
    task=Task(template=Template(id=TemplateId("made-up/task"), max_turns=1), split=Split.TRAIN, index=0),
    start=Root(),
    group_size=2,
    depth=1,
    purpose=Purpose.TRAIN,
    seed=0,
)


def made_up(count: int) -> list[ScoredGroup]:
    """Groups that differ in name and rewards."""
    return [
        played_group(replace(_PLAN, group_id=GroupId(f"g{i}")), [float(i % 2), float(i // 2 % 2)]) for i in range(count)
    ]


def _fill(store: TrajectoryStore, groups: Sequence[ScoredGroup]) -> None:
    for group in groups:
        store.append(group)


def an_empty_store_reads_as_empty(make: Make) -> None:
    """There is nothing before something was appended."""
    assert list(make().read()) == []


def what_is_appended_is_read_in_order(make: Make) -> None:
    """Everything comes back exactly, oldest first."""
    store, groups = make(), made_up(11)
    _fill(store, groups)
    assert same_groups(store.read(), groups)


def reading_twice_reads_the_same(make: Make) -> None:
    """Reading uses nothing up."""
    store, groups = make(), made_up(3)
    _fill(store, groups)
    assert same_groups(store.read(), groups)
    assert same_groups(store.read(), groups)


def appending_goes_on_after_reading(make: Make) -> None:
    """A reader does not stop a writer."""
    store, groups = make(), made_up(6)
    _fill(store, groups[:3])
    assert same_groups(store.read(), groups[:3])
    _fill(store, groups[3:])
    assert same_groups(store.read(), groups)


def an_empty_group_is_kept(make: Make) -> None:
    """A group that lost every member is a record too."""
    store, empty = make(), played_group(_PLAN, [])
    store.append(empty)
    assert same_groups(store.read(), [empty])


STORE_CONTRACT: tuple[Check, ...] = (
    an_empty_store_reads_as_empty,
    what_is_appended_is_read_in_order,
    reading_twice_reads_the_same,
    appending_goes_on_after_reading,
    an_empty_group_is_kept,
)
