"""Learning from recorded states: made by experts, imitated, answered and evaluated, with no environment at all."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cairn import open_run
from cairn.app.datasets import ImportRequest, collect_recorded, describe_set, import_set, record_run
from cairn.app.distillation import TeacherOptions, build_teacher, distil
from cairn.app.recorded import Recording
from cairn.app.run import EvaluateRequest, TrainRequest, check_ready, evaluate, saved_policy, train
from cairn.app.selection import Rule, SelectRequest, select
from cairn.codecs.pixel import PixelCodec
from cairn.codecs.text import TextCodec
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.action import Action, Click, Scroll, Type
from cairn.data.ids import ElementId, GroupId, ImageId
from cairn.data.ledger import Quantity
from cairn.data.observation import Box, Element, Observation
from cairn.data.pixel_vocabulary import Crop, PixelVocabulary
from cairn.data.recorded import RecordedState, RecordFormat, recorded_task
from cairn.data.task import Purpose, Recorded, RolloutPlan, Root, Split, Task
from cairn.data.trajectory import Outcome
from cairn.errors import ConfigError, StoreError
from cairn.loop.course import PROGRESS
from cairn.loop.progress import Phase, read
from cairn.store.recorded import Division, RecordedSet, RecordedWriter
from cairn.store.run import RunWriter
from cairn.testing.groups import played_group
from cairn.testing.scripted import COUNT, ScriptedEnvironment
from formats.made import picture, png, rows
from letter_tokenizer import LetterTokenizer

BUTTON = Element(
    id=ElementId(1),
    role="button",
    label="go",
    value="",
    states=(),
    interactive=True,
    box=Box(left=0.1, top=0.3, width=0.2, height=0.1),
)
HEAD = """
[environment]
name = "scripted"
templates = ["choose", "count"]
[policy]
threads = 1
dtype = "float32"
[demonstrations]
per_template = 6
"""
OFFLINE = """
[policy]
threads = 1
dtype = "float32"
[recorded]
path = "{path}"
[imitation]
updates = 2
batch_size = 4
[reinforcement]
updates = 2
groups_per_update = 3
groups_at_most = 24
group_size = 8
scheduler = "recorded"
[adaptive]
places = "element"
[evaluation]
per_template = 4
tries = 2
"""


def recipe(tmp_path: Path, text: str, *settings: str) -> RunConfig:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return configuration.load(path, settings)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set that experts played."""
    folder = tmp_path_factory.mktemp("recorded")
    division = Division(held_out=0.34, seed=1)
    asyncio.run(collect_recorded(recipe(folder, HEAD), folder / "set", division=division))
    return folder / "set"


def offline(tmp_path: Path, recorded: Path, *settings: str) -> RunConfig:
    return recipe(tmp_path, OFFLINE.format(path=recorded), *settings)


def shown(state: RecordedState) -> ImageId:
    image = state.start.observation.image
    assert image is not None
    return image


async def trained(config: RunConfig, folder: Path, *, resume: bool = False) -> None:
    request = TrainRequest(config=config, folder=folder, resume=resume, control=False, tensorboard=False)
    assert (await train(request)).phase is Phase.DONE


@pytest.fixture
def nothing_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a session was opened")

    monkeypatch.setattr(ScriptedEnvironment, "open", refuse)


def test_what_experts_play_becomes_a_set_that_is_divided_by_task(recorded: Path) -> None:
    manifest, rows = describe_set(recorded)
    assert [row.template for row in rows] == ["scripted/choose", "scripted/count"]
    assert [(row.tasks, row.source) for row in rows] == [(6, "cairn"), (6, "cairn")]
    assert manifest.held_out_tasks == 4
    found = RecordedSet(recorded)
    sides = {split: {state.task.index for state in found.of(split)} for split in Split}
    one = {state.task.template.id: set[int]() for state in found.everything()}
    assert len(one) == 2
    for template in one:
        train, held_out = (
            {state.task.index for state in found.of(split, templates=[template])}
            for split in (Split.TRAIN, Split.HELD_OUT)
        )
        assert not train & held_out
        assert train | held_out == set(range(6))
    assert sides[Split.TRAIN]
    assert not (recorded / "played").exists()
    assert all(found.blobs.get(shown(state)) for state in found.everything())


@pytest.mark.usefixtures("nothing_opens")
async def test_a_run_learns_from_recorded_states_without_opening_a_session(tmp_path: Path, recorded: Path) -> None:
    await trained(offline(tmp_path, recorded), tmp_path / "run")
    run = open_run(tmp_path / "run")
    groups = list(run)
    assert {type(g.plan.start) for g in groups} == {Recorded}
    assert {g.plan.depth for g in groups} == {1}
    sides = {purpose: {g.plan.task.split for g in groups if g.plan.purpose is purpose} for purpose in Purpose}
    assert sides[Purpose.TRAIN] == {Split.TRAIN}
    assert sides[Purpose.EVALUATE] == {Split.HELD_OUT}
    assert run.ledger.total(Quantity.OPENS) == run.ledger.total(Quantity.ENVIRONMENT_STEPS) == 0
    assert run.ledger.total(Quantity.UPDATES) > 0
    progress = read(tmp_path / "run" / PROGRESS)
    for phase in (Phase.IMITATE, Phase.REINFORCE):
        for greedy in (False, True):
            measured = progress.final(phase, greedy=greedy)
            assert measured is not None
            assert set(measured.by_kind) == {"click"}
            assert set(measured.by_template) == {"recorded/scripted/choose", "recorded/scripted/count"}
            assert measured.reward == pytest.approx(measured.mean, abs=0.3)
            assert measured.low <= measured.mean <= measured.high
    images = {image for g in groups for m in g.members for t in m.trajectory.turns for image in t.prompt.images}
    assert all(run.blobs.get(image) for image in images)  # the run is whole by itself


@pytest.mark.usefixtures("nothing_opens")
async def test_a_resumed_run_goes_on_and_a_saved_policy_is_evaluated_at_the_same_states(
    tmp_path: Path, recorded: Path
) -> None:
    config = offline(tmp_path, recorded)
    await trained(config, tmp_path / "run")
    await trained(config, tmp_path / "run", resume=True)
    ends = read(tmp_path / "run" / PROGRESS)
    request = EvaluateRequest(
        config=configuration.answering(config, recorded),
        saved=saved_policy(tmp_path / "run", "reinforce"),
        split=Split.HELD_OUT,
        per_template=4,
        tries=2,
    )
    for greedy, report in zip((False, True), await evaluate(request), strict=True):
        measured = ends.final(Phase.REINFORCE, greedy=greedy)
        assert measured is not None
        assert report.success.mean == pytest.approx(measured.mean)
        assert [k.kind for k in report.kinds] == ["click"]


@pytest.mark.usefixtures("nothing_opens")
@pytest.mark.parametrize("loss", ["dpo", "kto"])
async def test_right_and_wrong_answers_at_one_state_are_preferences(tmp_path: Path, recorded: Path, loss: str) -> None:
    await trained(offline(tmp_path, recorded, f"reinforcement.loss={loss}"), tmp_path / "run")
    ledger = open_run(tmp_path / "run").ledger
    assert ledger.total(Quantity.GROUPS_IN_UPDATES) > 0
    assert ledger.total(Quantity.SAMPLES_IN_UPDATES) >= 2 * ledger.total(Quantity.GROUPS_IN_UPDATES)


@pytest.mark.usefixtures("nothing_opens")
async def test_a_composed_reward_judges_answers_at_recorded_states(tmp_path: Path, recorded: Path) -> None:
    reward = ("reward.preset=ui-r1", 'reward.without=["format"]')
    await trained(offline(tmp_path, recorded, *reward), tmp_path / "run")
    members = [(g, m) for g in open_run(tmp_path / "run") for m in g.members]
    assert members
    for group, member in members:
        values = {term.name: term.value for term in member.terms}
        assert values.keys() == {"action_type", "point"}
        assert member.reward == sum(values.values())
        assert (member.outcome is Outcome.SUCCESS) == (member.reward == 2)
        assert isinstance(group.plan.start, Recorded)
    assert len({member.reward for _, member in members}) > 1
    measured = read(tmp_path / "run" / PROGRESS).final(Phase.REINFORCE, greedy=False)
    assert measured is not None
    assert 0 <= measured.mean <= measured.reward / 2 <= 1


async def test_recorded_states_are_imitated_before_practice_in_an_environment(tmp_path: Path, recorded: Path) -> None:
    settings = (
        "reinforcement.scheduler=round_robin",
        "environment.name=scripted",
        'environment.templates=["choose"]',
        "evaluation.per_template=1",
        "reinforcement.updates=1",
    )
    await trained(offline(tmp_path, recorded, *settings), tmp_path / "run")
    purposes = {g.plan.purpose for g in open_run(tmp_path / "run")}
    assert Purpose.DEMONSTRATE not in purposes
    assert open_run(tmp_path / "run").ledger.total(Quantity.OPENS) > 0


def test_each_way_to_a_success_counts_once_and_nothing_held_out_is_recorded(tmp_path: Path) -> None:
    def plan(name: str, purpose: Purpose, *, split: Split = Split.TRAIN, size: int = 3) -> RolloutPlan:
        return RolloutPlan(
            group_id=GroupId(name),
            task=Task(template=COUNT, split=split, index=4),
            start=Root(),
            group_size=size,
            depth=2,
            purpose=purpose,
            seed=0,
        )

    with RunWriter.create(tmp_path / "run", recipe="", seed=0) as run:
        run.record(played_group(plan("shown", Purpose.DEMONSTRATE, size=1), [1.0]))
        run.record(played_group(plan("tried", Purpose.TRAIN), [1.0, 0.0, 1.0]))  # siblings click different elements
        run.record(played_group(plan("judged", Purpose.EVALUATE, split=Split.HELD_OUT), [1.0, 1.0, 1.0]))
    record_run(tmp_path / "run", tmp_path / "both", division=Division(held_out=0))
    record_run(tmp_path / "run", tmp_path / "shown", division=Division(held_out=0), experts_only=True)
    both, experts = (
        [(state.episode, state.start.expert) for state in RecordedSet(tmp_path / name).everything()]
        for name in ("both", "shown")
    )
    first = ("scripted/count#4", Click(ElementId(1)))
    assert experts == [first]
    assert both == [first, ("scripted/count#4/1", Click(ElementId(3)))]


async def selected(tmp_path: Path, recorded: Path, rule: Rule, *, size: int | None = None) -> Path:
    config = offline(tmp_path, recorded, "reinforcement.updates=0", "imitation.updates=3")
    await trained(config, tmp_path / "run")
    request = SelectRequest(
        folder=recorded,
        rule=rule,
        config=config,
        saved=saved_policy(tmp_path / "run", "latest"),
        out=tmp_path / "out",
        size=size,
    )
    await select(request)
    return tmp_path / "out"


@pytest.mark.usefixtures("nothing_opens")
async def test_undecided_states_are_kept_with_everything_that_is_held_out(tmp_path: Path, recorded: Path) -> None:
    out = await selected(tmp_path, recorded, Rule.GUI_R1)
    before, after = RecordedSet(recorded), RecordedSet(out)
    assert list(after.of(Split.HELD_OUT)) == list(before.of(Split.HELD_OUT))
    kept = list(after.of(Split.TRAIN))
    assert 0 < len(kept) <= len(before.of(Split.TRAIN))
    assert all(state in list(before.of(Split.TRAIN)) for state in kept)
    assert all(after.blobs.get(shown(state)) for state in kept)


@pytest.mark.usefixtures("nothing_opens")
async def test_difficult_states_are_kept_up_to_a_size(tmp_path: Path, recorded: Path) -> None:
    out = await selected(tmp_path, recorded, Rule.UI_R1, size=3)
    assert 0 < len(RecordedSet(out).of(Split.TRAIN)) <= 3


@pytest.mark.usefixtures("nothing_opens")
async def test_bottlenecks_need_goals_of_steps(tmp_path: Path, recorded: Path) -> None:
    writer = RecordedWriter(tmp_path / "aimless", origin="a test")
    for state in RecordedSet(recorded).everything():
        assert state.start.sub_goal.startswith("click ")
        image = shown(state)
        assert writer.blobs.put(RecordedSet(recorded).blobs.get(image)) == image
        start = replace(state.start, sub_goal="", history=())
        writer.add(replace(state, start=start))
    writer.finish(Division(held_out=0.34))
    with pytest.raises(ConfigError, match="knows no step's own goal"):
        await selected(tmp_path, tmp_path / "aimless", Rule.BOTTLENECK)


# ── bad input ─────────────────────────────────────────────────────────────────


def test_a_run_without_an_environment_needs_a_set(tmp_path: Path, recorded: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs recorded\.path"):
        recipe(tmp_path, '[reinforcement]\nscheduler = "recorded"\n')
    with pytest.raises(ConfigError, match=r"nowhere holds no recorded states"):
        check_ready(offline(tmp_path, tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tracks.per_template=2", r"needs tracks\.per_template = 0"),
        ("snapshots.store=replay", r'needs snapshots\.store = "none"'),
        ("replay.capacity=2", r"needs replay\.capacity = 0"),
    ],
)
def test_what_would_need_an_environment_is_refused(tmp_path: Path, recorded: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        offline(tmp_path, recorded, setting)


def test_a_template_that_the_set_lacks_is_named_with_the_nearest(tmp_path: Path, recorded: Path) -> None:
    with pytest.raises(ConfigError, match=r"no states of 'scripted/chose'; did you mean 'scripted/choose'\?"):
        check_ready(offline(tmp_path, recorded, 'recorded.templates=["scripted/chose"]'))


async def test_a_set_that_holds_out_nothing_cannot_be_evaluated(tmp_path: Path) -> None:
    await collect_recorded(recipe(tmp_path, HEAD), tmp_path / "set", division=Division(held_out=0))
    with pytest.raises(ConfigError, match="holds out no state"):
        await trained(offline(tmp_path, tmp_path / "set"), tmp_path / "run")


def a_page(folder: Path, *, held_out: float, experts: Sequence[Action] = (Click(ElementId(1)),)) -> Path:
    """A set about a page with one button."""
    writer = RecordedWriter(folder, origin="a test")
    image = writer.blobs.put(png(width=160, height=210))
    seen = Observation(image=image, elements=(BUTTON,), accessibility="", url="", digest="")
    for number, expert in enumerate(experts):
        start = Recorded(goal="go", observation=seen, expert=expert)
        task = recorded_task("t", number)
        writer.add(RecordedState(task=task, episode=str(number), step=0, source="made up", start=start))
    writer.finish(Division(held_out=held_out))
    return folder


NO_TRAINING = r"set has no training states: all that it holds are held out; make it again with --held-out below 1"


@pytest.fixture
def no_policy_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """So late nothing needs to be noticed that the set's own list tells."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a policy was made")

    monkeypatch.setattr("cairn.app.run.open_brain", refuse)
    monkeypatch.setattr("cairn.app.selection.open_brain", refuse)


@pytest.mark.usefixtures("no_policy_is_made")
async def test_a_set_without_training_states_teaches_nothing_and_says_so_before_anything_is_made(
    tmp_path: Path,
) -> None:
    config = offline(tmp_path, a_page(tmp_path / "set", held_out=1))
    with pytest.raises(ConfigError, match=NO_TRAINING):
        await trained(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    asked = SelectRequest(folder=tmp_path / "set", rule=Rule.UI_R1, config=config, saved=tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match=NO_TRAINING):
        await select(asked)
    with pytest.raises(ConfigError, match=NO_TRAINING):
        await distil(tmp_path / "set", tmp_path / "out", teacher=build_teacher(TeacherOptions()))


@pytest.mark.usefixtures("no_policy_is_made")
async def test_what_holds_out_nothing_is_noticed_before_anything_is_made(tmp_path: Path) -> None:
    config = offline(tmp_path, a_page(tmp_path / "set", held_out=0))
    with pytest.raises(ConfigError, match="holds out no state"):
        await trained(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    asked = EvaluateRequest(config=config, saved=tmp_path, split=Split.HELD_OUT, per_template=1, tries=1)
    with pytest.raises(ConfigError, match="holds out no state"):
        await evaluate(asked)


def test_a_template_without_training_states_is_named_where_others_have_some(tmp_path: Path) -> None:
    with_two = RecordedWriter(tmp_path / "set", origin="a test")
    seen = Observation(image=None, elements=(BUTTON,), accessibility="", url="", digest="")
    start = Recorded(goal="go", observation=seen, expert=Click(ElementId(1)))
    for name in ("here", "there"):
        with_two.add(RecordedState(task=recorded_task(name, 0), episode=name, step=0, source="made up", start=start))
    with_two.finish(Division(), held_out=[recorded_task("there", 0).id])
    check_ready(offline(tmp_path, tmp_path / "set"))
    with pytest.raises(ConfigError, match="set has no training states of there: "):
        check_ready(offline(tmp_path, tmp_path / "set", 'recorded.templates=["there"]'))


def test_states_that_the_only_codec_cannot_say_are_told_by_what_was_done_there(tmp_path: Path) -> None:
    a_page(tmp_path / "set", held_out=0, experts=(Type("never said before"), Type("nor this")))
    codec = PixelCodec(vocabulary=PixelVocabulary(), crop=Crop())
    found = RecordedSet(tmp_path / "set")
    said = r"at none of them \(type: 2\): choose another policy.model, or another set"
    with pytest.raises(ConfigError, match=said):
        Recording(found, codec=codec, config=offline(tmp_path, found.folder)).learnable()
    with pytest.raises(ConfigError, match=r"choose more of policy.verbs, another policy.model"):
        Recording(found, codec=codec, config=offline(tmp_path, found.folder, "policy.verbs=[]")).learnable()


async def test_pictures_of_another_size_are_the_reason_where_nothing_on_them_can_be_said(tmp_path: Path) -> None:
    config = offline(tmp_path, screens(tmp_path, width=300, height=400, top=5))
    with pytest.raises(ConfigError, match=r"have 300 x 400 pixels, and the pixel policy sees screens of 160 x 210"):
        await trained(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("rule", "options", "said"),
    [
        (Rule.GUI_R1, {"size": 5}, "--size is of --rule ui-r1"),
        (Rule.BOTTLENECK, {"size": 5}, "--size is of --rule ui-r1"),
        (Rule.GUI_R1, {"answers": 1}, "--rule gui-r1 needs --answers 2 or more"),
    ],
)
def test_a_rule_is_not_asked_for_what_it_cannot_do(
    tmp_path: Path, rule: Rule, options: dict[str, int], said: str
) -> None:
    asked = SelectRequest(folder=tmp_path, rule=rule, config=RunConfig(), saved=tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match=said):
        replace(asked, **options)


def screens(tmp_path: Path, *, width: int, height: int, top: int = 100) -> Path:
    """A set of bare screenshots of that size."""
    for name in ("a.png", "b.png"):
        picture(tmp_path, name, width=width, height=height, shade=ord(name[0]))
    row = {"bbox": [10, top, 20, 30], "instruction": "go", "data_type": "icon", "data_source": "web"}
    path = rows(tmp_path / "screenspot_web.json", [row | {"img_filename": name} for name in ("a.png", "b.png")])
    division = Division(held_out=0.5)
    import_set(ImportRequest(format=RecordFormat.SCREENSPOT, path=path, out=tmp_path / "set", division=division))
    return tmp_path / "set"


async def test_the_pixel_policy_is_not_shown_a_corner_of_a_larger_screen(tmp_path: Path) -> None:
    config = offline(tmp_path, screens(tmp_path, width=300, height=400))
    with pytest.raises(ConfigError, match=r"have 300 x 400 pixels, and the pixel policy sees screens of 160 x 210"):
        await trained(config, tmp_path / "run")


def test_a_policy_that_reads_elements_is_not_shown_bare_screenshots(tmp_path: Path) -> None:
    states = RecordedSet(screens(tmp_path, width=160, height=210))
    config = offline(tmp_path, tmp_path / "set", "policy.model=smollm2", "policy.codec=text")
    with pytest.raises(ConfigError, match="knows screenshots without elements, and the policy reads elements alone"):
        Recording(states, codec=TextCodec(tokenizer=LetterTokenizer()), config=config).learnable()


def test_what_the_codec_cannot_say_is_left_out_and_counted(tmp_path: Path) -> None:
    done = (Click(ElementId(1)), Scroll(None, 0.5, 0.5), Scroll(None, 0.2, 0.2))
    a_page(tmp_path / "set", held_out=0, experts=done)
    config = offline(tmp_path, tmp_path / "set", "policy.model=smollm2", "policy.codec=text")
    codec = TextCodec(tokenizer=LetterTokenizer())
    found = Recording(RecordedSet(tmp_path / "set"), codec=codec, config=config).learnable()
    assert found.places == (0,)
    assert str(found) == (
        "1 recorded states to learn from; 2 are left out, for the policy cannot say what was done there (scroll: 2)"
    )


async def test_a_damaged_set_is_named_and_another_is_not_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    await collect_recorded(recipe(tmp_path, HEAD), folder, division=Division(held_out=0.5))
    with pytest.raises(ConfigError, match="holds recorded states already"):
        await collect_recorded(recipe(tmp_path, HEAD), folder, division=Division())
    lines = (folder / "states.jsonl").read_text()
    (folder / "states.jsonl").write_text(lines.replace('"scripted:', '"scrapted:', 1))
    with pytest.raises(StoreError, match=r"states\.jsonl is damaged at byte 0"):
        list(RecordedSet(folder).everything())
    assert json.loads((folder / "set.json").read_text())["schema"] == 1
