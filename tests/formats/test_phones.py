"""AndroidControl and Android in the Wild: episodes with histories, actions in one language, damage with its line."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import (
    Action,
    Back,
    Click,
    Finish,
    FinishStatus,
    Home,
    Key,
    LongPress,
    Open,
    Point,
    Scroll,
    Type,
    Wait,
)
from cairn.data.observation import Box
from cairn.formats import aitw, android_control, tfrecord
from cairn.formats.rows import DamageError
from cairn.testing.memory import MemoryBlobs
from formats.made import apart, example, picture, png, records, rows, varint

ACTIONS: list[tuple[dict[str, object], Action]] = [
    ({"action_type": "open_app", "app_name": "Clock"}, Open("Clock")),
    ({"action_type": "click", "x": 100, "y": 100}, Click(Point(0.5, 0.25))),
    ({"action_type": "long_press", "x": 50, "y": 400}, LongPress(Point(0.25, 1.0))),
    ({"action_type": "input_text", "text": "seven"}, Type("seven")),
    ({"action_type": "type", "text": "seven", "x": 100, "y": 0}, Type("seven", Point(0.5, 0.0))),
    ({"action_type": "scroll", "direction": "down"}, Scroll(None, 0.0, 0.5)),
    ({"action_type": "scroll", "direction": "left"}, Scroll(None, -0.5, 0.0)),
    ({"action_type": "navigate_back"}, Back()),
    ({"action_type": "navigate_home"}, Home()),
    ({"action_type": "wait"}, Wait(1.0)),
    ({"action_type": "status", "goal_status": "infeasible"}, Finish(FinishStatus.INFEASIBLE)),
]


def episode(folder: Path, actions: list[object], **changes: object) -> dict[str, object]:
    shots = [picture(folder, f"shot{n}.png", shade=n) for n in range(len(actions) + 1)]
    plain: dict[str, object] = {
        "episode_id": 7, "goal": "set an alarm", "screenshots": shots, "actions": actions,
        "step_instructions": [f"step {n}" for n in range(len(actions))],
    }  # fmt: skip
    return plain | changes


def control(path: Path):
    return apart(list(android_control.read(path, blobs=MemoryBlobs())))


@pytest.mark.parametrize("spelled", [dict, json.dumps])
def test_every_action_of_an_episode_is_a_state_with_what_was_done_before(tmp_path: Path, spelled) -> None:
    path = rows(tmp_path / "episodes.jsonl", [episode(tmp_path, [spelled(told) for told, _ in ACTIONS])])
    states, damaged = control(path)
    assert not damaged
    assert [state.start.expert for state in states] == [action for _, action in ACTIONS]
    assert [deed.action for deed in states[-1].start.history] == [action for _, action in ACTIONS[:-1]]
    assert len({deed.observation.image for deed in states[-1].start.history}) == len(ACTIONS) - 1
    assert [(s.step, s.episode, s.start.goal, s.start.sub_goal) for s in states[:2]] == [
        (0, "7", "set an alarm", "step 0"),
        (1, "7", "set an alarm", "step 1"),
    ]
    assert {state.task.id for state in states} == {"recorded/androidcontrol#0"}


@pytest.mark.parametrize("packed", [{"packed": True}, {"packed": False}])
def test_the_published_files_are_read_without_tensorflow(tmp_path: Path, packed: dict[str, bool]) -> None:
    told = [json.dumps(action).encode() for action, _ in ACTIONS[:2]]
    one = example(
        {
            "episode_id": [12],
            "goal": ["öffne die Uhr".encode()],
            "screenshots": [png(shade=n) for n in range(3)],
            "screenshot_widths": [200, 200, 200],
            "screenshot_heights": [400, 400, 400],
            "actions": list(told),
            "step_instructions": [b"open it", b"press it"],
        }
    )
    records(tmp_path / "android_control-00000-of-00001", [one, one], **packed)
    states, damaged = control(tmp_path)
    assert not damaged
    assert [(s.task.index, s.step, s.start.expert) for s in states] == [
        (n, step, action) for n in range(2) for step, (_, action) in enumerate(ACTIONS[:2])
    ]
    assert (states[0].episode, states[0].start.goal, states[1].start.sub_goal) == ("12", "öffne die Uhr", "press it")


@pytest.mark.parametrize("lost", [1, 5, 14, 200])
def test_a_record_that_is_cut_off_is_named_and_those_before_are_read(tmp_path: Path, lost: int) -> None:
    one = example({"episode_id": [1], "goal": [b"go"], "screenshots": [png()], "actions": [b'{"action_type": "wait"}']})
    path = records(tmp_path / "a-00000-of-00001", [one, one], packed=False)
    path.write_bytes(path.read_bytes()[:-lost])
    states, damaged = control(path)
    assert len(states) == 1
    assert [one.where for one in damaged] == [f"{path}, record 2"]


@given(
    st.dictionaries(st.text(max_size=5), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4), max_size=3)
)
def test_whole_numbers_survive_a_protocol_buffer(features: dict[str, list[int]]) -> None:
    assert tfrecord.example(example(dict(features))) == features


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_damage(data: bytes) -> None:
    with contextlib.suppress(DamageError, UnicodeDecodeError):
        tfrecord.example(data)


def test_a_number_without_an_end_is_damage() -> None:
    with pytest.raises(DamageError):
        tfrecord.example(varint(1 << 70)[:-1])


@pytest.mark.parametrize(
    ("actions", "changes", "said"),
    [
        ([{"action_type": "fly"}], {}, "episode 7, step 0: unknown action_type 'fly'"),
        ([{"action_type": "click", "x": 3}], {}, "step 0: y is missing"),
        ([{"action_type": "click", "x": 300, "y": 3}], {}, "x lies off the screen, at 1.5 of it"),
        ([{"action_type": "scroll", "direction": "in"}], {}, "unknown direction 'in'"),
        (["{oops"], {}, "an action is not JSON"),
        (["[" * 100_000], {}, "an action is JSON that is nested too deep"),
        ([{"action_type": "wait"}], {"screenshots": []}, "1 actions, 0 screenshots"),
        ([{"action_type": "wait"}], {"step_instructions": []}, "0 instructions"),
        ([{"action_type": "wait"}], {"goal": None}, "goal must be a string"),
        ([{"action_type": "wait"}], {"screenshots": [5, 6]}, "a screenshot is the name of a file"),
    ],
)
def test_a_damaged_episode_is_named_with_its_line_and_gives_no_state(
    tmp_path: Path, actions: list[object], changes: dict[str, object], said: str
) -> None:
    good = episode(tmp_path, [{"action_type": "wait"}])
    path = rows(tmp_path / "episodes.json", [good, episode(tmp_path, actions, **changes), good])
    states, damaged = control(path)
    assert [state.task.index for state in states] == [0, 2]
    (one,) = damaged
    assert one.where == f"{path}:3"
    assert said in one.reason


# ── Android in the Wild ───────────────────────────────────────────────────────


def step(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "ep_id": "e1", "goal": "buy milk", "img_filename": "a", "action_type_id": 4, "action_type_text": "click",
        "touch": [0.5, 0.25], "lift": [0.5, 0.25], "type_text": "", "annot_position": [],
    }  # fmt: skip
    return plain | changes


def wild(tmp_path: Path, subsets: dict[str, list[list[object]]]):
    picture(tmp_path, "a.png")
    path = tmp_path / "aitw.json"
    path.write_text(json.dumps(subsets, indent=0))
    return *apart(list(aitw.read(path, blobs=MemoryBlobs()))), path


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Click(Point(0.5, 0.25))),
        ({"lift": [0.52, 0.25]}, Click(Point(0.51, 0.25))),
        ({"action_type_text": "scroll down"}, Scroll(None, 0.0, 0.5)),
        ({"action_type_text": "scroll left"}, Scroll(None, -0.5, 0.0)),
        ({"action_type_text": "", "touch": [0.5, 0.8], "lift": [0.5, 0.2]}, Scroll(None, 0.0, 0.5)),
        ({"action_type_text": "", "touch": [0.2, 0.5], "lift": [0.8, 0.5]}, Scroll(None, -0.5, 0.0)),
        ({"action_type_id": 3, "type_text": "milk"}, Type("milk")),
        ({"action_type_id": 5}, Back()),
        ({"action_type_id": 6}, Home()),
        ({"action_type_id": 7}, Key("Enter")),
        ({"action_type_id": 10}, Finish()),
        ({"action_type_id": 11}, Finish(FinishStatus.INFEASIBLE)),
    ],
)
def test_touches_lifts_and_buttons_become_actions(tmp_path: Path, changes: dict[str, object], expected: Action) -> None:
    states, damaged, _ = wild(tmp_path, {"general": [[step(**changes)]]})
    assert not damaged
    assert states[0].start.expert == expected


def test_a_click_aims_at_the_smallest_annotated_box_that_holds_it(tmp_path: Path) -> None:
    boxes = [0.25, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.2, 0.4, 0.1, 0.2, 0.7, 0.7, 0.1, 0.1]
    states, _, _ = wild(tmp_path, {"general": [[step(annot_position=boxes)]]})
    assert states[0].start.target == Box(top=0.2, left=0.4, height=0.1, width=0.2)


def test_subsets_are_templates_and_episodes_tasks(tmp_path: Path) -> None:
    states, _, _ = wild(tmp_path, {"general": [[step(), step()], [step()]], "install": [[step()]]})
    assert [(s.task.template.id, s.task.index, s.step, len(s.start.history)) for s in states] == [
        ("recorded/aitw/general", 0, 0, 0),
        ("recorded/aitw/general", 0, 1, 1),
        ("recorded/aitw/general", 1, 0, 0),
        ("recorded/aitw/install", 0, 0, 0),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"action_type_id": 4.7}, "step 1: unknown action_type_id 4.7"),
        ({"action_type_id": 99}, "step 1: unknown action_type_id 99"),
        ({"action_type_text": "scroll in"}, "unknown action_type_text 'scroll in'"),
        ({"touch": [0.5]}, "touch must hold 2 numbers"),
        ({"touch": [1.5, 0.5], "lift": [1.5, 0.5]}, "x lies off the screen"),
        ({"annot_position": [0.1, 0.2]}, "not four for each box"),
        ({"img_filename": "b"}, "cannot be read"),
    ],
)
def test_a_damaged_step_is_named_with_the_line_of_its_episode(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    states, damaged, path = wild(tmp_path, {"general": [[step()], [step(), step(**changes)]]})
    assert len(states) == 1
    (one,) = damaged
    number = int(one.where.removeprefix(f"{path}:"))
    before = path.read_text().splitlines()[: number - 1]
    assert json.loads("\n".join(before).rstrip(",") + "\n]}") == {"general": [[step()]]}
    assert said in one.reason
