"""Benchmark results: what the figures mean, and workers that fail."""

import asyncio
import json
import sys

import psutil
import pytest

from cairn.bench.competitors import Competitor, Contender
from cairn.bench.environment_report import EnvBench, Run, env_json, env_table, summarise
from cairn.bench.experts import ExpertEpisode, ExpertScore, experts_page, measure_experts
from cairn.bench.traces import play, record
from cairn.data.action import Click, Point
from cairn.data.ids import TemplateId
from cairn.data.task import Split, Task, Template
from cairn.errors import InvariantError, SessionError
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted import ScriptedEnvironment


def _run(contender: Contender, sessions: int, *, step: float, wall: float = 1.0) -> Run:
    return Run(
        contender=contender,
        sessions=sessions,
        wall=wall,
        resets=(0.1, 0.3, 0.2),
        steps=(step,) * 10,
        ends=(9 * step,) * 2,
        pss_mb=100.0 * sessions,
        cpu=0.5,
    )


def _bench() -> EnvBench:
    return summarise(
        [
            _run(Contender.CAIRN, 1, step=0.01),
            _run(Contender.SELENIUM, 1, step=0.1),
            _run(Contender.CAIRN, 4, step=0.02, wall=0.1),
            _run(Contender.CAIRN, 1, step=0.02),
            _run(Contender.SELENIUM, 1, step=0.1),
            _run(Contender.CAIRN, 4, step=0.02, wall=0.1),
        ]
    )


def test_ratios_compare_step_rates_within_a_repetition() -> None:
    assert _bench().vs_selenium == pytest.approx((0.1 / 0.01 + 0.1 / 0.02) / 2)
    assert _bench().vs_browsergym is None


def test_steps_per_second_are_of_one_session_and_best_of_any() -> None:
    assert _bench().steps_per_s == pytest.approx((100 + 50) / 2)
    assert _bench().best_per_s == pytest.approx(120)


def test_memory_is_per_session_and_cpu_per_step() -> None:
    four = next(speed for speed in _bench().speeds if speed.sessions == 4)
    assert four.pss_mb_per_session == pytest.approx(100)
    assert four.cpu_ms == pytest.approx(500 / 12)
    assert four.reset_ms == pytest.approx(200)


def test_nothing_can_be_compared_without_one_session_of_ours() -> None:
    with pytest.raises(InvariantError, match="one session"):
        summarise([_run(Contender.SELENIUM, 1, step=0.1)])


def test_the_json_line_holds_what_it_promises() -> None:
    line = json.loads(env_json(_bench()))
    assert {"steps_per_s", "vs_selenium", "vs_browsergym", "sessions"} <= set(line)
    assert line["sessions"] == {"1": 12.0, "4": 120.0}
    assert env_table(_bench()).row_count == 3


def test_the_experts_page_counts_only_tasks_above_95_percent_as_sure() -> None:
    def score(name: str, successes: int) -> ExpertScore:
        episodes = tuple(ExpertEpisode(success=i < successes, steps=3) for i in range(20))
        return ExpertScore(template=Template(id=TemplateId(f"miniwob/{name}"), max_turns=9), episodes=episodes, lost=0)

    page = experts_page([score("a", 20), score("b", 19), score("c", 18)], day="2026-01-01", browser="Chromium 1")
    assert "3 tasks have an expert; 2 of them" in page
    assert "| c | 18/20 | 3.0 | 3 | 9 |" in page


# ── experts and traces, on a scripted environment ─────────────────────────────


async def test_an_expert_that_never_fails_is_measured_so() -> None:
    scores = await measure_experts(ScriptedEnvironment(), seeds=3)
    assert [score.successes for score in scores] == [3] * len(scores)
    assert all(steps >= 1 for score in scores for steps in score.steps)


async def test_a_session_that_breaks_is_repeated_and_says_nothing_about_the_expert() -> None:
    broken = Fault(call=Call.OBSERVE, session=0, nth=0, error=SessionError("gone"))
    environment = ScriptedEnvironment(faults=[broken])
    scores = await measure_experts(environment, seeds=2)
    assert sum(score.lost for score in scores) == 1
    assert [score.successes for score in scores] == [2] * len(scores)
    assert environment.live == 0


async def test_an_environment_that_breaks_every_time_ends_the_measurement() -> None:
    broken = Fault(call=Call.OPEN, error=SessionError("no browser"))
    with pytest.raises(SessionError, match="no browser"):
        await measure_experts(ScriptedEnvironment(faults=[broken]), seeds=1)


async def test_a_recorded_trace_comes_out_the_same_when_played_again() -> None:
    environment = ScriptedEnvironment()
    task = Task(template=environment.templates[0], split=Split.HELD_OUT, index=4)
    trace = await record(environment, task)
    assert trace.success
    assert await play(environment, trace) == trace
    assert environment.live == 0


# ── workers ───────────────────────────────────────────────────────────────────


async def _worker(code: str) -> Competitor:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    return Competitor(process=process, name="double")


async def test_a_worker_that_answers_with_an_error_is_a_session_error() -> None:
    worker = await _worker('input(); print(\'{"error": "ValueError: no such page"}\', flush=True); input()')
    with pytest.raises(SessionError, match="no such page"):
        await worker.open("click-test", 1)
    await worker.close()


async def test_a_worker_that_ends_is_a_session_error() -> None:
    worker = await _worker("input()")
    with pytest.raises(SessionError, match="ended"):
        await worker.act(Click(Point(0.5, 0.5)))
    await worker.close()


async def test_closing_ends_the_worker_and_what_it_started() -> None:
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    worker = await _worker(f'{child}; input(); print(\'{{"goal": "g", "seconds": 0}}\', flush=True); input()')
    assert (await worker.open("click-test", 1)).goal == "g"
    children = psutil.Process(worker.pid).children()
    assert len(children) == 1
    await worker.close()
    await worker.close()
    assert not psutil.pid_exists(worker.pid)
    assert not children[0].is_running()
