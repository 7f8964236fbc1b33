"""A state that was not kept is found, whether or not the environment found it; what was kept is called so."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from cairn.data.action import Action, Click
from cairn.data.ids import ElementId, SnapshotId, TemplateId
from cairn.data.task import FromSnapshot, Root, Split, Start, Task, Template
from cairn.data.trajectory import Evidence
from cairn.errors import ConfigError, SessionError
from cairn.testing.faults import Call, Fault
from cairn.testing.fidelity_report import (
    Cycle,
    Fate,
    FidelityReport,
    fidelity_json,
    fidelity_matrix,
    fidelity_table,
)
from cairn.testing.scripted import CHOOSE, COUNT, ENTER, TEMPLATES, ScriptedEnvironment, ScriptedSession
from cairn.testing.snapshot_fidelity import FidelityOptions, check_fidelity

THREE = FidelityOptions(indices=(0, 1, 2))
TO_THREE = FidelityOptions(templates=(COUNT,), indices=(2,))  # three presses; saved after the first or the second
MINUS = Click(ElementId(2))
ORIGINAL, BRANCH = 1, 2  # by order of opening, after the episode that is played for its length


class Wrong(ScriptedEnvironment):
    """Opens snapshots without complaint, in a state that `spoil` makes of the saved one."""

    def __init__(self, spoil: Callable[[ScriptedSession], object]) -> None:
        super().__init__()
        self._spoil = spoil

    async def open(self, task: Task, *, start: Start) -> ScriptedSession:
        session = await super().open(task, start=start)
        if isinstance(start, FromSnapshot):
            self._spoil(session)
        return session


class Reloading(ScriptedEnvironment):
    """Opens the task's root, whatever was saved."""

    async def open(self, task: Task, *, start: Start) -> ScriptedSession:
        return await super().open(task, start=Root() if isinstance(start, FromSnapshot) else start)


async def fate(environment: ScriptedEnvironment, options: FidelityOptions = TO_THREE) -> Cycle:
    report = await check_fidelity(environment, store="memory", options=options)
    assert environment.live == 0
    (cycle,) = report.cycles
    return cycle


async def fails(_session: ScriptedSession) -> Evidence:
    return Evidence(done=True, raw_reward=0.0, state='{"complaint": "the number was lost"}')


def losing(session: ScriptedSession) -> None:
    session.evidence = lambda: fails(session)


def detouring(session: ScriptedSession) -> None:
    """Its expert goes back one, and then the whole way."""
    straight, gone = session.expert_action, [MINUS]

    async def expert_action() -> Action | None:
        return gone.pop() if gone else await straight()

    session.expert_action = expert_action


async def test_what_is_kept_is_called_so_and_timed() -> None:
    environment = ScriptedEnvironment()
    report = await check_fidelity(environment, store="memory", options=THREE)
    assert report.ok
    assert report.templates == tuple(t.id for t in TEMPLATES)
    assert [cycle.fate for cycle in report.cycles] == [Fate.KEPT] * 9
    assert all(cycle.save_s is not None and cycle.open_s is not None and not cycle.reason for cycle in report.cycles)
    assert environment.live == 0


async def test_states_are_saved_inside_of_episodes_at_steps_that_the_seed_chooses() -> None:
    async def steps(seed: int) -> list[int]:
        options = FidelityOptions(templates=(COUNT,), indices=tuple(range(2, 60, 3)), seed=seed)
        report = await check_fidelity(ScriptedEnvironment(), store="memory", options=options)
        return [cycle.step for cycle in report.cycles]

    first = await steps(0)
    assert set(first) == {1, 2}  # of three presses
    assert await steps(0) == first
    assert await steps(1) != first


async def test_an_episode_of_one_action_is_saved_at_its_root() -> None:
    assert (await fate(ScriptedEnvironment(), FidelityOptions(templates=(CHOOSE,)))).step == 0


async def test_a_page_that_was_only_loaded_again_is_a_wrong_state() -> None:
    report = await check_fidelity(Reloading(), store="reload", options=replace(THREE, templates=(COUNT, ENTER)))
    inside = [cycle for cycle in report.cycles if cycle.step]
    assert inside
    assert {cycle.fate for cycle in inside} == {Fate.ASTRAY}
    assert {cycle.reason for cycle in inside} == {"what was opened shows another state"}
    assert not report.ok


async def test_a_state_that_looks_right_but_fails_is_a_wrong_state() -> None:
    cycle = await fate(Wrong(losing))
    assert cycle.fate is Fate.ASTRAY
    assert cycle.reason == 'what was opened went on to fail: reward 0, {"complaint": "the number was lost"}'


async def test_a_state_that_succeeds_by_another_way_is_a_wrong_state() -> None:
    cycle = await fate(Wrong(detouring))
    assert cycle.fate is Fate.ASTRAY
    assert cycle.reason.startswith("what was opened went on otherwise: action 1 was Click(target=2), not Click")


@pytest.mark.parametrize(
    ("call", "session", "expected"),
    [
        (Call.OPEN, BRANCH, Fate.REFUSED),
        (Call.SNAPSHOT, ORIGINAL, Fate.UNSAVED),
        (Call.EVIDENCE, BRANCH, Fate.ASTRAY),  # the session lives, and yet cannot be played to its end
        (Call.OBSERVE, BRANCH, Fate.FAILED),
        (Call.EVIDENCE, ORIGINAL, Fate.FAILED),
        (Call.EVIDENCE, 0, Fate.UNFIT),
    ],
)
async def test_what_fails_outside_is_told_apart_from_a_wrong_state(call: Call, session: int, expected: Fate) -> None:
    fault = Fault(call=call, session=session, error=SessionError("the browser is gone"))
    cycle = await fate(ScriptedEnvironment(faults=[fault]))
    assert (cycle.fate, cycle.reason) == (expected, "SessionError: the browser is gone")


async def test_a_call_that_never_returns_is_given_up() -> None:
    environment = ScriptedEnvironment(faults=[Fault(call=Call.OPEN, session=BRANCH, delay=math.inf)])
    cycle = await fate(environment, replace(TO_THREE, patience_s=0.01))
    assert cycle.fate is Fate.REFUSED
    assert cycle.reason == "SessionTimeoutError: open of scripted/count#2 did not return in 0.01 s"


async def test_saving_must_not_disturb_the_session() -> None:
    class Disturbing(ScriptedEnvironment):
        async def open(self, task: Task, *, start: Start) -> ScriptedSession:
            session = await super().open(task, start=start)
            if session.number == ORIGINAL:
                save = session.snapshot

                async def snapshot() -> SnapshotId | None:
                    losing(session)
                    return await save()

                session.snapshot = snapshot
            return session

    assert (await fate(Disturbing())).fate is Fate.DISTURBED


async def test_a_session_that_cannot_be_saved_is_no_wrong_state() -> None:
    class Fixed(ScriptedEnvironment):
        def keep(self, state: object) -> SnapshotId | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            del state
            return None

    cycle = await fate(Fixed())
    assert (cycle.fate, cycle.reason) == (Fate.UNSAVED, "this session cannot be saved")


async def test_where_the_expert_fails_by_itself_nothing_is_said_of_snapshots() -> None:
    options = replace(TO_THREE, succeeded=lambda evidence: evidence.raw_reward > 1)
    report = await check_fidelity(ScriptedEnvironment(), store="memory", options=options)
    assert report.count(Fate.UNFIT) == 1
    assert report.judged == ()
    assert not report.ok


async def test_snapshots_are_forgotten_once_they_have_been_opened() -> None:
    forgotten: list[SnapshotId] = []

    async def forget(snapshot: SnapshotId) -> None:
        forgotten.append(snapshot)

    heard: list[Cycle] = []
    report = await check_fidelity(
        ScriptedEnvironment(), store="memory", options=THREE, progress=heard.append, forget=forget
    )
    assert len(forgotten) == 9
    assert tuple(heard) == report.cycles


async def test_one_place_is_too_few() -> None:
    with pytest.raises(ConfigError, match="two sessions must be open at once"):
        await check_fidelity(ScriptedEnvironment(capacity=1), store="memory")


async def test_a_template_without_an_expert_is_refused() -> None:
    unknown = Template(id=TemplateId("scripted/unknown"), max_turns=3)
    with pytest.raises(ConfigError, match="scripted/unknown: no expert can play on"):
        await check_fidelity(ScriptedEnvironment(), store="memory", options=replace(THREE, templates=(unknown,)))


# ── the report ────────────────────────────────────────────────────────────────


def cycle_of(name: str, fate: Fate, *, save_s: float = 0.2, open_s: float | None = 0.1) -> Cycle:
    template = next(t for t in TEMPLATES if t.id == f"scripted/{name}")
    task = Task(template=template, split=Split.TRAIN, index=0)
    return Cycle(
        template=template.id,
        task=task.id,
        step=1,
        fate=fate,
        reason="" if fate is Fate.KEPT else "lost",
        save_s=save_s,
        open_s=open_s,
    )


def report_of(store: str, *cycles: Cycle) -> FidelityReport:
    return FidelityReport(environment="scripted", store=store, cycles=cycles, seconds=3.2)


def printed(table: object) -> str:
    console = Console(width=120, record=True)
    console.print(table)
    return console.export_text()


def test_the_table_says_what_was_kept_why_the_rest_was_not_and_how_long_it_took() -> None:
    shown = printed(
        fidelity_table(
            report_of(
                "criu",
                cycle_of("count", Fate.KEPT, save_s=0.1),
                cycle_of("count", Fate.ASTRAY, save_s=0.3),
                cycle_of("enter", Fate.REFUSED, open_s=None),
            )
        )
    )
    assert [line.split() for line in shown.splitlines() if line.startswith("scripted/")] == [
        ["scripted/count", "1/2", "200", "100", "1/2", "astray"],
        ["scripted/enter", "0/1", "200", "-", "refused"],
    ]
    assert "astray scripted/count#0 at 1: lost" in shown
    assert "scripted by criu: 1 kept, 1 refused, 1 astray; medians: save 200 ms, open 100 ms; 3 s" in shown


def test_the_matrix_has_a_row_for_each_template_and_a_column_for_each_store() -> None:
    reports: Sequence[FidelityReport] = (
        report_of("criu", cycle_of("count", Fate.KEPT), cycle_of("enter", Fate.KEPT)),
        report_of("native", cycle_of("count", Fate.UNFIT), cycle_of("enter", Fate.ASTRAY)),
    )
    lines = [line.split(maxsplit=2) for line in printed(fidelity_matrix(reports)).splitlines()]
    assert [[part.strip() for part in line] for line in lines] == [
        ["template", "criu", "native"],
        ["scripted/count", "kept", "-"],
        ["scripted/enter", "kept", "not kept: astray"],
    ]


def test_the_json_is_one_line_with_everything() -> None:
    line = fidelity_json(report_of("criu", cycle_of("count", Fate.KEPT), cycle_of("enter", Fate.REFUSED)))
    assert "\n" not in line
    told = json.loads(line)
    assert (told["ok"], told["counts"]["kept"], told["counts"]["refused"], told["save_s"]) == (False, 1, 1, 0.2)
    assert [cycle["fate"] for cycle in told["cycles"]] == ["kept", "refused"]
