"""Gymnasium's own checker is content, and an episode is what it is without the wrapper."""

import threading
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Home,
    Hover,
    Invalid,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Type,
    Wait,
)
from cairn.data.ids import ElementId
from cairn.data.task import Split
from cairn.envs.miniwob.environment import MiniwobEnvironment
from cairn.errors import ConfigError, SessionError, SessionTimeoutError
from cairn.gym.actions import VERBS, Verb, action_space, from_action, to_action
from cairn.gym.environment import CairnEnv, GymOptions
from cairn.testing.faults import Call, Fault
from cairn.testing.memory import MemoryBlobs
from cairn.testing.scripted import COUNT, TEMPLATES, ScriptedEnvironment

SCREEN = (160, 210)


def _counter(template: str = COUNT.id, *, faults: tuple[Fault, ...] = (), **arguments) -> CairnEnv:
    return CairnEnv(lambda: ScriptedEnvironment(faults=faults), template, **arguments)


@pytest.mark.parametrize("template", [t.id for t in TEMPLATES])
@pytest.mark.parametrize("screen", [None, SCREEN])
def test_gymnasiums_checker_passes(template: str, screen: tuple[int, int] | None) -> None:
    blobs = MemoryBlobs()

    def made(**arguments) -> CairnEnv:
        options = GymOptions(screen=screen)
        scripted = partial(ScriptedEnvironment, blobs=blobs)
        return CairnEnv(scripted, template, blobs=blobs, options=options, **arguments)

    # With a spec, the checker also wants resets and steps to be deterministic and every render mode to work
    spec = EnvSpec(id="CairnCounter-v0", entry_point=made, kwargs={"render_mode": "rgb_array"})
    with gymnasium.make(spec) as env:
        check_env(env.unwrapped)


@pytest.mark.parametrize("template", [t.id for t in TEMPLATES])
def test_the_expert_wins_through_the_wrapper(template: str) -> None:
    env = _counter(template)
    with env:
        env.reset(seed=5)
        reward, terminated, info = 0.0, False, {}
        while not terminated:
            action = env.expert_action()
            assert action is not None
            assert action in env.action_space
            _, reward, terminated, truncated, info = env.step(action)
            assert not truncated
        assert reward == 1
        assert info["success"] is True


def test_a_turn_limit_truncates_and_is_judged_at_the_cut() -> None:
    with _counter() as env:
        env.reset(seed=0)
        reward, info = 1.0, {}
        for turn in range(1, COUNT.max_turns + 1):
            _, reward, terminated, truncated, info = env.step(from_action(Wait(0.1)))
            assert not terminated
            assert truncated is (turn == COUNT.max_turns)
        assert (reward, info["success"]) == (0.0, False)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(from_action(Wait(0.1)))


@pytest.mark.parametrize("last", [Finish(), Answer("7")])
def test_what_ends_the_episode_terminates_and_never_truncates(last: Action) -> None:
    with _counter() as env:
        env.reset(seed=0)
        _, _, terminated, truncated, _ = env.step(from_action(last))
        assert (terminated, truncated) == (True, False)


def test_a_seed_names_a_task_and_the_stream_goes_on_without_one() -> None:
    with _counter() as env:
        tasks = [env.reset(seed=seed)[1]["task"] for seed in (3, None, None, 3, None)]
        assert tasks[:2] == tasks[3:]
        assert len(set(tasks[:3])) == 3


def test_an_index_opens_that_task_of_the_split() -> None:
    with _counter(split=Split.HELD_OUT) as env:
        assert env.reset(options={"index": 17})[1]["task"] == "scripted/count#1000017"


def test_an_impossible_action_is_a_message_in_info() -> None:
    with _counter() as env:
        env.reset(seed=0)
        _, _, terminated, _, info = env.step(from_action(Click(ElementId(99))))
        assert not terminated
        assert info["message"] == "no element 99"


def test_text_outside_the_space_is_cut_and_replaced() -> None:
    blobs = MemoryBlobs()
    options = GymOptions(max_goal=3, max_page=10)
    with CairnEnv(lambda: ScriptedEnvironment(blobs=blobs), COUNT.id, options=options) as env:
        shown, _ = env.reset(seed=0)
        assert shown["goal"] == "cou"
        assert len(shown["page"]) == 10


def test_closing_twice_is_closing_once_and_ends_the_thread() -> None:
    before = set(threading.enumerate())
    env = _counter()
    env.reset(seed=0)
    env.close()
    env.close()
    assert set(threading.enumerate()) == before


def test_an_unknown_template_names_the_nearest_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="did you mean \\['scripted/count'\\]"):
        _counter("scripted/cuont")
    assert set(threading.enumerate()) == before


def test_a_wrong_screen_size_says_both() -> None:
    blobs = MemoryBlobs()
    options = GymOptions(screen=(10, 10))
    env = CairnEnv(lambda: ScriptedEnvironment(blobs=blobs), COUNT.id, blobs=blobs, options=options)
    with env, pytest.raises(ConfigError, match=r"\(160, 210\).*\(10, 10\)"):
        env.reset(seed=0)


def test_screenshots_need_a_blob_store() -> None:
    with pytest.raises(ConfigError, match="pass blobs="):
        _counter(options=GymOptions(screen=SCREEN))


def test_an_outside_failure_reaches_the_caller_and_the_next_reset_works() -> None:
    with _counter(faults=(Fault(call=Call.ACT, session=0, error=SessionError("gone")),)) as env:
        env.reset(seed=0)
        with pytest.raises(SessionError, match="gone"):
            env.step(from_action(Wait(0.1)))
        env.reset(seed=0)
        env.step(from_action(Wait(0.1)))


def test_a_call_that_hangs_is_named() -> None:
    faults = (Fault(call=Call.OBSERVE, session=0, delay=float("inf")),)
    with (
        _counter(faults=faults, options=GymOptions(patience_s=0.05)) as env,
        pytest.raises(SessionTimeoutError, match=r"observing did not end in 0\.05 s"),
    ):
        env.reset(seed=0)


TARGETS = st.one_of(
    st.integers(1, 200).map(ElementId),
    st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)).map(lambda xy: Point(*xy)),
)
WORDS = st.text("abc XYZ123@", max_size=20)
SHARES = st.floats(-1, 1, width=32)
ACTIONS = st.one_of(
    *(TARGETS.map(kind) for kind in (Click, DoubleClick, RightClick, LongPress, Hover)),
    st.tuples(TARGETS, TARGETS).map(lambda pair: Drag(*pair)),
    st.tuples(TARGETS, SHARES, SHARES).map(lambda parts: Scroll(*parts)),
    st.tuples(WORDS, st.one_of(st.none(), st.integers(1, 200).map(ElementId))).map(lambda parts: Type(*parts)),
    *(WORDS.map(kind) for kind in (Key, Open, Answer)),
    st.sampled_from((Back(), Home(), Wait(0.5), Finish(), Finish(FinishStatus.INFEASIBLE))),
)
SPACE = action_space(max_elements=200, max_typed=20)


@given(ACTIONS)
def test_every_action_is_in_the_space_and_comes_back(action: Action) -> None:
    chosen = from_action(action)
    assert chosen in SPACE
    assert to_action(chosen) == action


@given(st.integers(0, 2**32 - 1))
def test_every_sample_of_the_space_is_an_action(seed: int) -> None:
    SPACE.seed(seed)
    chosen = SPACE.sample()
    assert not isinstance(to_action(chosen), Invalid)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_comes_back(verb: Verb) -> None:
    SPACE.seed(0)
    chosen = {**SPACE.sample(), "verb": np.int64(VERBS.index(verb))}
    assert VERBS[from_action(to_action(chosen))["verb"]] is verb


@pytest.mark.parametrize("action", [Invalid("?", "no"), Type("word", Point(0.5, 0.5))])
def test_what_the_space_cannot_say_is_refused(action: Action) -> None:
    with pytest.raises(ConfigError, match="no place for"):
        from_action(action)


@pytest.mark.browser
def test_gymnasiums_checker_passes_on_a_page_in_chromium() -> None:
    blobs = MemoryBlobs()
    env = CairnEnv(
        partial(MiniwobEnvironment, blobs=blobs),
        "miniwob/click-checkboxes",
        blobs=blobs,
        options=GymOptions(screen=(160, 210)),
    )
    with env:
        check_env(env, skip_render_check=True)
