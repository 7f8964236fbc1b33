"""The kit passes a sound environment, and finds each defect under its own name."""

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from jaxtyping import Int32
from rich.console import Console

from cairn.data.action import Action, Click, Invalid, Key, Point
from cairn.data.ids import ElementId
from cairn.data.observation import Observation
from cairn.data.trajectory import Evidence, Prompt
from cairn.errors import ConfigError, SessionError
from cairn.ports import Environment, Past, Step
from cairn.testing.calibration_check import NamedCodec
from cairn.testing.environment_check import check_environment
from cairn.testing.environment_report import Check, EnvironmentReport, Verdict, report_json, report_table
from cairn.testing.faults import Call, Fault
from cairn.testing.memory import MemoryBlobs
from cairn.testing.playing import Call as TimedCall
from cairn.testing.scripted import COUNT, ENTER, ScriptedEnvironment
from cairn.testing.template_checks import CheckOptions
from testing.warped import CalibratedScripted, Shift, Warp, WarpedEnvironment

ONE = CheckOptions(templates=(COUNT,), patience_s=5, leak_patience_s=0.1)


def _verdicts(report: EnvironmentReport) -> dict[Check, Verdict]:
    return {r.check: r.finding.verdict for r in report.results}


def _reason(report: EnvironmentReport, check: Check) -> str:
    return next(r.finding.reason for r in report.results if r.check is check)


def _failed(report: EnvironmentReport) -> set[Check]:
    return {r.check for r in report.results if r.finding.verdict is Verdict.FAIL}


async def test_a_sound_environment_conforms() -> None:
    blobs = MemoryBlobs()
    report = await check_environment(ScriptedEnvironment(blobs=blobs), blobs=blobs)
    assert report.ok
    assert _failed(report) == set()
    assert {r.check for r in report.results} == set(Check)
    assert {latency.call for latency in report.latencies} == set(TimedCall) - {TimedCall.SAVE}
    assert all(0 <= each.p50 <= each.p90 <= each.p99 <= each.longest for each in report.latencies)


async def test_progress_hears_of_every_result_in_order() -> None:
    heard: list[Check] = []
    report = await check_environment(ScriptedEnvironment(), options=ONE, progress=lambda r: heard.append(r.check))
    assert heard == [r.check for r in report.results]
    assert heard[-1] is Check.LEAKS


async def test_one_seed_is_too_few() -> None:
    with pytest.raises(ConfigError, match="at least two"):
        await check_environment(ScriptedEnvironment(), options=replace(ONE, indices=(0,)))


def _other_digest(seen: Observation, number: int) -> Observation:
    return replace(seen, digest=f"{seen.digest}{number}")


def _ids_from_zero(seen: Observation, _: int) -> Observation:
    return replace(seen, elements=tuple(replace(e, id=ElementId(e.id - 1)) for e in seen.elements))


def _nothing_is_impossible(action: Action, step: Step) -> Step:
    return Step(done=False) if isinstance(action, Invalid) else step


def _always_solved(evidence: Evidence, _: int) -> Evidence:
    return replace(evidence, raw_reward=1.0)


def _only_once(closes: int) -> None:
    if closes > 1:
        raise SessionError("closed already")


DEFECTS: dict[Check, tuple[Warp, set[Check]]] = {
    Check.PURITY: (Warp(goal=lambda goal, number: f"{goal} ({number})"), {Check.PURITY}),
    Check.DETERMINISM: (Warp(observe=_other_digest), {Check.PURITY, Check.DETERMINISM, Check.ISOLATION}),
    Check.OBSERVATION: (Warp(observe=_ids_from_zero), {Check.OBSERVATION}),
    Check.IMPOSSIBLE: (Warp(act=_nothing_is_impossible), {Check.IMPOSSIBLE}),
    Check.CLOSE: (Warp(on_close=_only_once), {Check.CLOSE}),
    Check.EXPERT: (Warp(expert=lambda _: Key("Enter")), {Check.EXPERT}),
    Check.NOOP: (Warp(evidence=_always_solved), {Check.NOOP}),
}


@pytest.mark.parametrize("check", DEFECTS)
async def test_a_defect_fails_its_own_check(check: Check) -> None:
    warp, failing = DEFECTS[check]
    assert _failed(await check_environment(WarpedEnvironment(warp), options=ONE)) == failing


async def test_the_environments_own_randomness_is_found_by_replay() -> None:
    def luck(evidence: Evidence, number: int) -> Evidence:
        return replace(evidence, raw_reward=0.1 * number)

    report = await check_environment(WarpedEnvironment(Warp(evidence=luck)), options=ONE)
    assert Check.DETERMINISM in _failed(report)
    assert "ended otherwise" in _reason(report, Check.DETERMINISM)


async def test_a_seed_that_changes_nothing_is_a_warning() -> None:
    report = await check_environment(WarpedEnvironment(Warp(), same_seed=True), options=ONE)
    assert report.ok
    assert _verdicts(report)[Check.SEEDS] is Verdict.WARN


async def test_a_task_that_blind_clicking_solves_is_a_warning() -> None:
    report = await check_environment(ScriptedEnvironment(), options=replace(ONE, random_bound=-1.0))
    assert report.ok
    assert _verdicts(report)[Check.RANDOM] is Verdict.WARN


async def test_sessions_that_share_their_state_fail_isolation() -> None:
    acts = 0

    def count(_: Action, step: Step) -> Step:
        nonlocal acts
        acts += 1
        return step

    shared = Warp(act=count, observe=lambda seen, _: replace(seen, digest=str(acts)))
    assert Check.ISOLATION in _failed(await check_environment(WarpedEnvironment(shared), options=ONE))


async def test_isolation_needs_two_places() -> None:
    report = await check_environment(ScriptedEnvironment(capacity=1), options=ONE)
    assert report.ok
    assert _verdicts(report)[Check.ISOLATION] is Verdict.SKIP


async def test_an_outside_failure_is_a_finding_and_the_checks_go_on() -> None:
    faults = (Fault(call=Call.OPEN, session=0, error=SessionError("gone")),)
    report = await check_environment(ScriptedEnvironment(faults=faults), options=ONE)
    assert _failed(report) == {Check.PURITY}
    assert "SessionError" in _reason(report, Check.PURITY)


async def test_a_bug_of_the_environment_passes_through_after_closing_it() -> None:
    def bug(_: Action, __: Step) -> Step:
        raise ZeroDivisionError

    environment = WarpedEnvironment(Warp(act=bug))
    with pytest.raises(ZeroDivisionError):
        await check_environment(environment, options=ONE)
    assert environment.live == 0


async def test_a_call_that_never_returns_is_named() -> None:
    class Stuck(ScriptedEnvironment):
        async def open(self, task, *, start):
            await asyncio.Event().wait()
            raise AssertionError

    report = await check_environment(Stuck(), options=replace(ONE, patience_s=0.01))
    assert Check.PURITY in _failed(report)
    assert "open of scripted/count#0 did not return in 0.01 s" in _reason(report, Check.PURITY)


class Leaky(ScriptedEnvironment):
    """Leaves something behind when it is first closed."""

    def __init__(self, leave: Callable[[], object]) -> None:
        super().__init__()
        self._leave: Callable[[], object] | None = leave
        self.left: object = None

    async def close(self) -> None:
        await super().close()
        if self._leave is not None:
            self.left = self._leave()
            self._leave = None


async def test_a_process_left_behind_is_a_leak() -> None:
    environment = Leaky(lambda: subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
    report = await check_environment(environment, options=ONE)
    assert isinstance(environment.left, subprocess.Popen)
    environment.left.communicate(b"\n")
    assert _failed(report) == {Check.LEAKS}
    assert f"1 processes ({environment.left.pid})" in _reason(report, Check.LEAKS)


async def test_a_temporary_entry_left_behind_is_a_leak() -> None:
    environment = Leaky(tempfile.mkdtemp)
    report = await check_environment(environment, options=ONE)
    assert _failed(report) == {Check.LEAKS}


async def test_an_asyncio_task_left_behind_is_a_leak() -> None:
    environment = Leaky(lambda: asyncio.create_task(asyncio.Event().wait()))
    report = await check_environment(environment, options=ONE)
    assert isinstance(environment.left, asyncio.Task)
    environment.left.cancel()
    assert "1 asyncio tasks" in _reason(report, Check.LEAKS)


async def test_descriptors_left_behind_are_a_leak() -> None:
    environment = Leaky(lambda: [os.pipe() for _ in range(4)])
    report = await check_environment(environment, options=ONE)
    assert isinstance(environment.left, list)
    for pipe in environment.left:
        for end in pipe:
            os.close(end)
    assert "8 file descriptors" in _reason(report, Check.LEAKS)


class GridCodec:
    """Answers a click with the number of a cell, `cells` to a side; `shift` cells beside where it should."""

    stop_ids = frozenset({0})
    forbidden_ids: frozenset[int] = frozenset()
    max_answer_tokens = 1

    def __init__(self, *, cells: int, shift: int = 0) -> None:
        self._cells = cells
        self._shift = shift

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        raise NotImplementedError

    def primitive(self, action: Action, seen: Observation) -> Action:
        assert isinstance(action, Click)
        assert not isinstance(action.target, Point)
        element = seen.element(action.target)
        assert element is not None
        return Click(element.box.center)

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        assert isinstance(action, Click)
        assert isinstance(action.target, Point)
        column, row = int(action.target.x * self._cells), int(action.target.y * self._cells)
        return [np.array([row * self._cells + column], np.int32)]

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        row, column = divmod(int(token_ids[0]), self._cells)
        return Click(Point((column + 0.5 + self._shift) / self._cells, (row + 0.5) / self._cells))


async def _calibrated(shift: Shift, *codecs: NamedCodec) -> EnvironmentReport:
    blobs = MemoryBlobs()
    return await check_environment(
        CalibratedScripted(shift=shift, blobs=blobs), options=ONE, blobs=blobs, codecs=codecs
    )


async def test_a_drawn_target_is_hit_by_point_by_element_and_through_a_codec() -> None:
    report = await _calibrated(Shift(), NamedCodec(name="grid", codec=GridCodec(cells=40)))
    assert _verdicts(report)[Check.COORDINATES] is Verdict.OK
    assert _reason(report, Check.COORDINATES) == "5 targets by points, elements, codec grid, screenshot"


@pytest.mark.parametrize(
    ("shift", "complaint"),
    [
        (Shift(drawn=0.02), "is drawn at"),
        (Shift(listed=0.02), "is observed at"),
        (Shift(hit=0.11), "a click on its middle missed"),
        (Shift(hit=-0.05), "a click on beside it hit"),
    ],
)
async def test_coordinates_that_are_off_fail(shift: Shift, complaint: str) -> None:
    report = await _calibrated(shift)
    assert _failed(report) == {Check.COORDINATES}
    assert complaint in _reason(report, Check.COORDINATES)


async def test_a_codec_that_is_a_few_cells_off_fails() -> None:
    report = await _calibrated(Shift(), NamedCodec(name="grid", codec=GridCodec(cells=40, shift=5)))
    assert _failed(report) == {Check.COORDINATES}
    assert "codec grid answered a click on" in _reason(report, Check.COORDINATES)


async def test_an_environment_that_draws_no_target_skips_the_coordinates() -> None:
    report = await check_environment(ScriptedEnvironment(), options=ONE)
    assert _verdicts(report)[Check.COORDINATES] is Verdict.SKIP


async def test_a_report_is_a_table_and_one_line_of_json() -> None:
    options = replace(ONE, templates=(COUNT, ENTER), expert_bound=2.0)
    environment: Environment = ScriptedEnvironment()
    report = await check_environment(environment, options=options)
    text = io.StringIO()
    Console(file=text, width=160).print(report_table(report))
    assert "scripted does not conform: " in text.getvalue()
    assert "scripted/enter: expert: the expert solved 100%, below 200%" in text.getvalue()
    line = report_json(report)
    assert "\n" not in line
    data = json.loads(line)
    assert data["ok"] is False
    assert data["results"][0] == {
        "check": "purity",
        "template": "scripted/count",
        "finding": {"verdict": "pass", "reason": ""},
    }
