"""Composed rewards in whole runs, and terms that a run's codec, judge or states can never fulfil."""

from dataclasses import replace
from pathlib import Path

import pytest

from cairn import open_run
from cairn.app.rewards import JUDGEMENTS, RewardParts, build_composition, build_judge, check_formats, check_states
from cairn.app.run import TrainRequest, train
from cairn.codecs.text import TextCodec
from cairn.codecs.thinking import ThinkingCodec
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.config.rewards import JudgeOptions, RewardOptions
from cairn.config.tables import PolicyOptions
from cairn.data.action import Action, Back, Click, Point, Type
from cairn.data.task import Purpose, Recorded, Root
from cairn.data.trajectory import Outcome
from cairn.errors import ConfigError
from cairn.loop.progress import Phase
from cairn.ports import Codec
from cairn.rewards.judge_cache import CachedJudge
from cairn.rewards.judged import OverlapJudge
from cairn.testing.scripted_policy import ScriptedCodec
from letter_tokenizer import LetterTokenizer
from rewards.judged_states import FIELD, OKAY, state
from scripted_recipe import SCRIPTED

THINKING = ThinkingCodec(tokenizer=LetterTokenizer())
AT_ONCE = ThinkingCodec(tokenizer=LetterTokenizer(), think=False)
TEXT = TextCodec(tokenizer=LetterTokenizer())


def recipe(tmp_path: Path, reward: str, *settings: str) -> RunConfig:
    path = tmp_path / "recipe.toml"
    path.write_text(
        SCRIPTED
        + """
        [demonstrations]
        per_template = 1
        [imitation]
        updates = 1
        batch_size = 4
        [reinforcement]
        updates = 1
        groups_per_update = 2
        group_size = 4
        scheduler = "pivots"
        [tracks]
        per_template = 2
        [adaptive]
        signal = "all"
        answers = 4
        [rollout]
        invalid_limit = 3
        max_turns = 3
        [evaluation]
        per_template = 1
        """
        + reward
    )
    return configuration.load(path, settings)


async def trained(config: RunConfig, folder: Path) -> None:
    request = TrainRequest(config=config, folder=folder, resume=False, control=False, tensorboard=False)
    assert (await train(request)).phase is Phase.DONE


OWN = """
[reward]
correct = ["action_type", "point"]
[[reward.terms]]
kind = "format"
shape = "parsable"
weight = 0.5
[[reward.terms]]
kind = "action_type"
[[reward.terms]]
kind = "point"
needs = ["action_type"]
[[reward.terms]]
kind = "length"
weight = 0.25
"""


async def test_the_terms_of_every_answer_are_in_the_store_and_their_means_in_the_events(tmp_path: Path) -> None:
    await trained(recipe(tmp_path, OWN), tmp_path / "run")
    run = open_run(tmp_path / "run")
    names = ("format", "action_type", "point", "length")
    answers = [m for g in run if isinstance(g.plan.start, Recorded) for m in g.members]
    assert len(answers) >= 8
    for one in answers:
        assert tuple(t.name for t in one.terms) == names
        values = {t.name: t.value for t in one.terms}
        assert one.reward == pytest.approx(
            0.5 * values["format"] + values["action_type"] + values["point"] + 0.25 * values["length"]
        )
        right = values["action_type"] == values["point"] == 1.0
        assert (one.outcome is Outcome.SUCCESS) == right
        assert values["length"] >= 0.1 if right else values["length"] <= -0.1
        assert values["point"] <= values["action_type"]
    lived = [m for g in run if isinstance(g.plan.start, Root) for m in g.members]
    assert lived
    assert all(m.terms == () for m in lived)  # nothing of it is about live sessions
    rounds = [e.event.fields for e in run.events() if e.event.kind == "round"]
    assert rounds
    assert all(f"term_{name}" in fields for fields in rounds for name in names)
    assert all(0.0 <= float(fields["term_format"] or 0.0) <= 1.0 for fields in rounds)
    rows = run.to_arrow().to_pylist()
    assert {name for row in rows for name, _ in row["terms"]} == set(names)


async def test_whole_episodes_are_rewarded_by_their_terms_and_demonstrations_are_not(tmp_path: Path) -> None:
    reward = """
    [reward]
    preset = "mobile-r1-task"
    [reward.judge]
    offline = true
    """
    await trained(recipe(tmp_path, reward, "reinforcement.scheduler=tasks"), tmp_path / "run")
    groups = list(open_run(tmp_path / "run"))
    shown = [m for g in groups if g.plan.purpose is Purpose.DEMONSTRATE for m in g.members]
    practised = [m for g in groups if g.plan.purpose is not Purpose.DEMONSTRATE for m in g.members]
    assert shown
    assert practised
    assert all(m.terms == () for m in shown)
    for one in practised:
        assert [t.name for t in one.terms] == ["judge", "format_balance"]
        won = one.trajectory.evidence is not None and one.trajectory.evidence.raw_reward == 1.0
        assert (one.outcome is Outcome.SUCCESS) == won  # whatever the judge thinks


async def test_a_wrong_term_stops_a_run_before_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"'format' can never .* policy\.codec has no thought before the action.* policy\.codec = .thinking",
    ):
        await trained(recipe(tmp_path, '[reward]\npreset = "ui-r1"'), tmp_path / "run")
    assert not (tmp_path / "run").exists()


async def test_states_without_what_a_term_needs_stop_a_run_before_the_first_update(tmp_path: Path) -> None:
    text = '[[reward.terms]]\nkind = "text"\n'
    with pytest.raises(ConfigError, match="'text' can never be worth anything: no recorded expert action has a text"):
        await trained(recipe(tmp_path, text), tmp_path / "run")
    assert not any(e.event.kind == "update" for e in open_run(tmp_path / "run").events())


# ── codecs and judges ─────────────────────────────────────────────────────────


def options(**fields: object) -> RewardOptions:
    return RewardOptions.model_validate({"judge": {"offline": True}, **fields})


def build(reward: RewardOptions, codec: Codec) -> None:
    build_composition(reward, RewardParts(codec=codec, judge=OverlapJudge(), longest=64))


@pytest.mark.parametrize(
    ("preset", "codec", "said"),
    [
        ("ui-r1", THINKING, None),
        ("ui-r1", TEXT, 'no thought before the action; .* or shape = "answer" for the term'),
        ("ui-r1", AT_ONCE, 'or shape = "answer" for the term'),
        ("ui-r1", ScriptedCodec(), 'or shape = "parsable" for the term'),
        ("nothink", THINKING, None),
        ("nothink", AT_ONCE, None),
        ("nothink", TEXT, None),
        ("nothink", ScriptedCodec(), "no answers that are text"),
        ("infigui-r1", THINKING, None),
        ("mobile-r1-task", ScriptedCodec(), None),
        ("webagent-r1", ScriptedCodec(), None),
    ],
)
def test_a_format_needs_a_codec_that_has_it(preset: str, codec: Codec, said: str | None) -> None:
    if said is None:
        build(options(preset=preset), codec)
        return
    with pytest.raises(ConfigError, match=said):
        build(options(preset=preset), codec)


@pytest.mark.parametrize(
    ("preset", "policy", "right"),
    [
        ("ui-r1", {"codec": "thinking"}, True),
        ("ui-r1", {"codec": "thinking", "think": False}, False),
        ("nothink", {"codec": "thinking", "think": False}, True),
        ("nothink", {"codec": "text"}, True),
        ("infigui-r1", {"codec": "text"}, False),
        ("nothink", {"codec": "pixel"}, False),
        ("mobile-r1-task", {"codec": "pixel"}, True),
    ],
)
def test_what_a_codecs_name_tells_is_known_before_there_is_one(
    preset: str,
    policy: dict[str, object],
    right: bool,  # noqa: FBT001
) -> None:
    if right:
        check_formats(options(preset=preset), PolicyOptions.model_validate(policy))
        return
    with pytest.raises(ConfigError, match="'format' can never be worth anything"):
        check_formats(options(preset=preset), PolicyOptions.model_validate(policy))


def test_thoughts_need_a_codec_that_has_them() -> None:
    with pytest.raises(ConfigError, match=r"'sub_goal' can never .* or leave it out"):
        build(options(terms=[{"kind": "action_type"}, {"kind": "sub_goal"}]), TEXT)


def test_every_kind_of_term_can_be_built() -> None:
    needed = {"overlong": {"limit": 9, "buffer": 3}, "shortest_path": {"alpha": 0.5}}
    kinds = [{"kind": kind, **needed.get(kind, {})} for kind in configuration.TERM_KEYS]
    composed = build_composition(options(terms=kinds), RewardParts(codec=THINKING, judge=OverlapJudge(), longest=64))
    assert composed is not None


def test_a_judge_that_is_asked_over_a_network_is_asked_once(tmp_path: Path) -> None:
    assert build_judge(JudgeOptions(), folder=tmp_path) is None
    assert isinstance(build_judge(JudgeOptions(offline=True), folder=tmp_path), OverlapJudge)
    there = JudgeOptions(url="http://host.invalid/v1", model="m")
    assert isinstance(build_judge(there, folder=tmp_path), CachedJudge)
    assert not isinstance(build_judge(there, folder=None), CachedJudge)
    assert not (tmp_path / JUDGEMENTS).exists()
    with pytest.raises(ConfigError, match=r"the judge's prompt nowhere\.toml: No such file"):
        build_judge(there.model_copy(update={"task_prompt": "nowhere.toml"}), folder=None)


# ── recorded states ───────────────────────────────────────────────────────────

GROUND = state(Click(Point(0.9, 0.9)))


@pytest.mark.parametrize(
    ("term", "expert", "said"),
    [
        ({"kind": "text"}, Click(OKAY), "no recorded expert action has a text"),
        ({"kind": "text"}, Type("bob"), None),
        ({"kind": "point"}, Back(), "no recorded expert action has a place"),
        ({"kind": "point"}, Click(OKAY), None),
        ({"kind": "point"}, Click(Point(0.9, 0.9)), r"'point' needs a box .* 1 of 2 recorded states .* share = 0\.14"),
        ({"kind": "point", "share": 0.14}, Click(Point(0.9, 0.9)), None),
        ({"kind": "parameters"}, Click(Point(0.9, 0.9)), "'parameters' needs a box"),
        ({"kind": "parameters"}, Type("bob", FIELD), None),
        ({"kind": "box"}, Click(OKAY), None),
        ({"kind": "box"}, Back(), "no recorded state has a box"),
        ({"kind": "sub_goal"}, Click(OKAY), "no recorded state has a sub-goal"),
        ({"kind": "action_type"}, Back(), None),
    ],
)
def test_recorded_states_must_hold_what_a_term_looks_for(
    term: dict[str, object], expert: Action, said: str | None
) -> None:
    reward, states = options(terms=[{"kind": "expert_match"}, term]), [state(Back()), state(expert)]
    if said is None:
        check_states(reward, THINKING, states)
        return
    with pytest.raises(ConfigError, match=said):
        check_states(reward, THINKING, states)


def test_a_codec_of_points_alone_names_no_boxes() -> None:
    class Pointing(ScriptedCodec):
        def parse(self, goal, token_ids, seen) -> Action:
            return Click(Point(0.5, 0.5))

    with pytest.raises(ConfigError, match=r"'box' can never be worth anything: policy\.codec names no elements"):
        check_states(options(terms=[{"kind": "box"}]), Pointing(), [state(Click(OKAY))])


def test_a_sub_goal_somewhere_is_enough() -> None:
    reward = options(terms=[{"kind": "action_type"}, {"kind": "sub_goal"}])
    check_states(reward, THINKING, [state(Back()), replace(state(Back()), sub_goal="go back")])
    check_states(reward, THINKING, [])
