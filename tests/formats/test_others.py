"""GUI-R1-3K, OmniACT and LLaVA-style conversations."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    Hover,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Type,
    Wait,
)
from cairn.data.recorded import Grid
from cairn.formats import gui_r1, llava, omniact
from cairn.testing.memory import MemoryBlobs
from formats.made import apart, picture, png, rows


def row(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "image": "a.png", "instruction": "open settings", "history": "None", "gt_action": "click",
        "gt_bbox": [0.1, 0.25, 0.3, 0.75], "gt_input_text": "no input text", "group": "web",
    }  # fmt: skip
    return plain | changes


def gui(path: Path):
    return apart(list(gui_r1.read(path, blobs=MemoryBlobs())))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Click(Point(0.2, 0.5))),
        ({"gt_bbox": [0.25, 0.5]}, Click(Point(0.25, 0.5))),
        ({"gt_bbox": [100, 100]}, Click(Point(0.5, 0.25))),
        ({"gt_action": "long_press", "gt_bbox": [0.25, 0.5]}, LongPress(Point(0.25, 0.5))),
        ({"gt_action": "type", "gt_bbox": [-100, -100], "gt_input_text": "ada"}, Type("ada")),
        ({"gt_action": "select", "gt_input_text": "blue"}, Type("blue")),
        ({"gt_action": "scroll", "gt_bbox": [-100, -100], "gt_input_text": "UP"}, Scroll(None, 0.0, -0.5)),
        ({"gt_action": "open_app", "gt_bbox": None, "gt_input_text": "Clock"}, Open("Clock")),
        ({"gt_action": "press_back"}, Back()),
        ({"gt_action": "enter"}, Key("Enter")),
        ({"gt_action": "wait"}, Wait(1.0)),
        ({"gt_action": "complete"}, Finish()),
    ],
)
def test_gui_r1s_actions_become_cairns(tmp_path: Path, changes: dict[str, object], expected: Action) -> None:
    picture(tmp_path, "a.png")
    states, damaged = gui(rows(tmp_path / "train.json", [row(**changes)]))
    assert not damaged
    assert states[0].start.expert == expected


def test_gui_r1s_parquet_holds_pictures_and_its_history_becomes_part_of_the_goal(tmp_path: Path) -> None:
    own = [row(image={"bytes": png(), "path": None}, history="step 1: click", group="mobile/a")] * 2
    pq.write_table(pa.Table.from_pylist(own), tmp_path / "train.parquet")
    states, damaged = gui(tmp_path)
    assert not damaged
    assert [(s.task.template.id, s.task.index) for s in states] == [("recorded/gui-r1/mobile-a", n) for n in range(2)]
    assert states[0].start.goal == "open settings\nDone before: step 1: click"
    target = states[0].start.target
    assert target is not None
    assert (target.left, target.width) == (0.1, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gt_action": "fly"}, "unknown gt_action 'fly'"),
        ({"gt_bbox": [-100, -100]}, "gt_action click needs a place, and gt_bbox has none"),
        ({"gt_bbox": [0.1, 0.2, 0.3]}, "gt_bbox must hold 0 or 2 or 4 numbers, got 3"),
        ({"gt_bbox": [0.3, 0.2, 0.1, 0.4]}, "before its left or top one"),
        ({"gt_action": "type"}, "gt_action type needs a text, and gt_input_text has none"),
        ({"gt_bbox": [0.1, 0.2, 0.1, 0.4]}, "a box without width or height"),
        ({"gt_action": "scroll", "gt_input_text": "in"}, "unknown direction 'in'"),
        ({"image": None}, "image holds neither bytes nor the name of a file"),
        ({"instruction": ""}, "instruction is empty"),
    ],
)
def test_a_damaged_row_of_gui_r1_is_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    picture(tmp_path, "a.png")
    path = rows(tmp_path / "train.jsonl", [row(), row(**changes), row()])
    states, damaged = gui(path)
    assert [state.task.index for state in states] == [0, 1]
    assert [one.where for one in damaged] == [f"{path}:2"]
    assert said in damaged[0].reason


def test_a_parquet_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1 and no more")
    states, damaged = gui(tmp_path)
    assert not states
    assert "is not Parquet, or damaged" in damaged[0].reason


def test_a_damaged_row_of_a_parquet_file_is_named_by_its_number(tmp_path: Path) -> None:
    own = [row(image={"bytes": png()}), row(image={"bytes": b"no picture"})]
    pq.write_table(pa.Table.from_pylist(own), tmp_path / "train.parquet")
    states, damaged = gui(tmp_path)
    assert len(states) == 1
    assert damaged[0].where == f"{tmp_path}/train.parquet, row 2"
    assert damaged[0].reason == "the picture in the row is damaged: it does not begin as a picture does"


def test_a_parquet_file_that_is_missing_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").symlink_to(tmp_path / "nowhere")
    _, damaged = gui(tmp_path)
    assert [one.reason for one in damaged] == ["cannot be read: No such file or directory"]


# ── OmniACT ───────────────────────────────────────────────────────────────────


def omni(tmp_path: Path, *scripts: str, boxes: object = None):
    picture(tmp_path, "data/web/asics/screen_1.png")
    index: dict[str, dict[str, str]] = {}
    for number, script in enumerate(scripts):
        (tmp_path / f"task_{number}.txt").write_text(script)
        index[str(number)] = {"task": f"task_{number}.txt", "image": "data/web/asics/screen_1.png"}
        if boxes is not None:
            (tmp_path / "boxes").mkdir(exist_ok=True)
            (tmp_path / "boxes" / "screen_1.txt").write_text(json.dumps(boxes))
            index[str(number)]["box"] = "boxes/screen_1.txt"
    path = tmp_path / "train.json"
    path.write_text(json.dumps(index, indent=1))
    return *apart(list(omniact.read(path, blobs=MemoryBlobs()))), path


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("pyautogui.click(100, 100)", Click(Point(0.5, 0.25))),
        ("pyautogui.click(x=100, y=100)\npyautogui.write('ada')", Click(Point(0.5, 0.25))),
        ("pyautogui.doubleClick(100,100)", DoubleClick(Point(0.5, 0.25))),
        ("pyautogui.rightClick(100,100)", RightClick(Point(0.5, 0.25))),
        ("pyautogui.moveTo(100,100)", Hover(Point(0.5, 0.25))),
        ("pyautogui.moveTo(100,100)\npyautogui.dragTo(0, 400)", Drag(Point(0.5, 0.25), Point(0.0, 1.0))),
        ("pyautogui.scroll(-10)", Scroll(None, 0.0, 0.5)),
        ("pyautogui.hscroll(10)", Scroll(None, 0.5, 0.0)),
        ("pyautogui.typewrite('ada')", Type("ada")),
        ("pyautogui.press('enter')", Key("Enter")),
        ("pyautogui.hotkey('ctrl', 'c')", Key("Control+c")),
        ("pyautogui.click(y=100, x=50)", Click(Point(0.25, 0.25))),
        ("pyautogui.click((50, 100))", Click(Point(0.25, 0.25))),
        ("pyautogui.click(50, 100, clicks=2, interval=0.1)", DoubleClick(Point(0.25, 0.25))),
        ("pyautogui.click(50, 100, 2)", DoubleClick(Point(0.25, 0.25))),
        ("pyautogui.click(50, 100, button='right')", RightClick(Point(0.25, 0.25))),
        (
            "pyautogui.moveTo(y=100, x=50, duration=1)\npyautogui.dragTo(y=0, x=200)",
            Drag(Point(0.25, 0.25), Point(1.0, 0.0)),
        ),
        ("pyautogui.scroll(-10, x=50, y=100)", Scroll(Point(0.25, 0.25), 0.0, 0.5)),
        ("pyautogui.press(keys=['tab'], presses=1)", Key("Tab")),
        ("import pyautogui\npyautogui.write(interval=0.1, message='ada')", Type("ada")),
    ],
)
def test_the_first_action_of_a_script_is_recorded(tmp_path: Path, script: str, expected: Action) -> None:
    states, damaged, _ = omni(tmp_path, f"Task: find shoes\nOutput Script:\n{script}\n")
    assert not damaged
    assert (states[0].start.goal, states[0].start.expert) == ("find shoes", expected)
    assert states[0].task.template.id == "recorded/omniact/web/asics"


SHOES = {"top_left": [80, 80], "bottom_right": [120, 120], "label": "shoes", "valid": 1}


@pytest.mark.parametrize("boxes", [[SHOES], {"0": SHOES}])
def test_a_click_aims_at_the_annotated_box(tmp_path: Path, boxes: object) -> None:
    script = "Task: a\nOutput Script:\npyautogui.click(100,100)"
    states, _, _ = omni(tmp_path, script, boxes=boxes)
    target = states[0].start.target
    assert target is not None
    assert [target.left, target.top, target.width, target.height] == pytest.approx([0.4, 0.2, 0.2, 0.1])


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("nothing here", "holds no `Task:` with an `Output Script:`"),
        ("Task: a\nOutput Script:\nimport os", "calls nothing"),
        ("Task: a\nOutput Script:\nos.remove('x')", "does more than to call pyautogui"),
        ("Task: a\nOutput Script:\npyautogui.click(open('x'), 1)", "no plain value"),
        ("Task: a\nOutput Script:\npyautogui.click(", "is not Python"),
        ("Task: a\nOutput Script:\npyautogui.click('a', 1)", "a place is two numbers"),
        ("Task: a\nOutput Script:\npyautogui.click(900, 1)", "x lies off the screen"),
        ("Task: a\nOutput Script:\npyautogui.beep()", "no action that is known here"),
        ("Task: a\nOutput Script:\npyautogui.click(30, 40, button='middle')", "is no single action"),
        ("Task: a\nOutput Script:\npyautogui.click(30, 40, 3)", "is no single action"),
        ("Task: a\nOutput Script:\npyautogui.rightClick(30, 40, button='left')", "has no button"),
        ("Task: a\nOutput Script:\npyautogui.click(True, 20)", "a place is two numbers"),
        ("Task: a\nOutput Script:\npyautogui.click()", "depends on where the pointer is"),
        ("Task: a\nOutput Script:\npyautogui.click(0x" + "f" * 9999 + ", 1)", "no plain value"),
        ("Task: a\nOutput Script:\npyautogui.press('tab', presses=3)", "the script presses it 3 times"),
        ("Task: a\nOutput Script:\npyautogui.press(['a', 'b'])", "the script presses 2, one by one"),
        ("Task: a\nOutput Script:\npyautogui.write({[1]: 2})", "no plain value"),
        ("Task: a\nOutput Script:\npyautogui.write('\\ud800')", "half a surrogate pair"),
        ("Task: a\nOutput Script:\npyautogui.click(" + "-" * 100_000 + "1, 1)", "nested too deep"),
        ("Task: a\nOutput Script:\nfor _ in range(2):\n  pyautogui.click(1, 1)", "does more than to call pyautogui"),
    ],
)
def test_a_script_that_says_no_action_is_named_with_its_line_and_never_run(
    tmp_path: Path, task: str, said: str
) -> None:
    good = "Task: a\nOutput Script:\npyautogui.press('tab')"
    states, damaged, path = omni(tmp_path, good, task)
    assert len(states) == 1
    (one,) = damaged
    number = int(one.where.removeprefix(f"{path}:"))
    assert '"1": {' in path.read_text().splitlines()[number - 1]
    assert said in one.reason


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (None, "the box file {path} cannot be read: No such file or directory"),
        (b"[" * 100_000, "the box file {path} is JSON that is nested too deep to be read"),
        (b'{"label": "\xf6"}', "the box file {path} is not UTF-8: save it as UTF-8"),
    ],
)
def test_a_box_file_that_cannot_be_read_is_damage_of_its_row(tmp_path: Path, box: bytes | None, said: str) -> None:
    omni(tmp_path, "Task: a\nOutput Script:\npyautogui.click(100,100)", boxes=[])
    path = tmp_path / "boxes" / "screen_1.txt"
    path.unlink()
    if box is not None:
        path.write_bytes(box)
    states, damaged = apart(list(omniact.read(tmp_path / "train.json", blobs=MemoryBlobs())))
    assert not states
    assert [str(one) for one in damaged] == [f"{tmp_path}/train.json:2: {said.format(path=path)}"]


# ── LLaVA ─────────────────────────────────────────────────────────────────────


def talk(*said: str, image: object = "a.png") -> dict[str, object]:
    speakers = ("human", "gpt")
    return {
        "id": "1",
        "image": image,
        "conversations": [{"from": speakers[n % 2], "value": value} for n, value in enumerate(said)],
    }


def talked(tmp_path: Path, *found: object, grid: Grid = Grid.AUTO):
    for name in ("a.png", "b.png"):
        picture(tmp_path, name, shade=ord(name[0]))
    path = rows(tmp_path / "talk.jsonl", list(found))
    return *apart(list(llava.read(path, blobs=MemoryBlobs(), grid=grid))), path


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("click (500, 250)", Click(Point(0.5, 0.25))),
        ('type "ada"', Type("ada")),
        ("(0.5, 0.25)", Click(Point(0.5, 0.25))),
        ("It is at [500, 250].", Click(Point(0.5, 0.25))),
        (
            '<think>(1, 2)</think><answer>{"action": "click", "coordinate": [500, 250]}</answer>',
            Click(Point(0.5, 0.25)),
        ),
        (
            '{"name": "computer", "arguments": {"action": "left_click", "coordinate": [500, 250]}}',
            Click(Point(0.5, 0.25)),
        ),
        ('{"action_type": "click", "x": 0.5, "y": 0.25}', Click(Point(0.5, 0.25))),
        ('{"action": "type", "text": "ada"}', Type("ada")),
        ('{"action": "scroll", "direction": "down"}', Scroll(None, 0.0, 0.5)),
        ('{"action": "key", "text": "Enter"}', Key("Enter")),
        ('{"action": "open_app", "text": "Clock"}', Open("Clock")),
        ('{"action": "answer", "text": "42"}', Answer("42")),
        ('{"action": "terminate"}', Finish()),
        ('[{"action": "click", "point": [500, 250]}]', Click(Point(0.5, 0.25))),
        ('{"name": "gui", "arguments": "{\\"action\\": \\"type\\", \\"text\\": \\"{a}\\"}"}', Type("{a}")),
        ('{"action": "wait", "time": 5}', Wait(5.0)),
        ('{"action": "wait"}', Wait(1.0)),
        ('type "{a} [1, 2]"', Type("{a} [1, 2]")),
        ('I type it.\ntype "call (1, 2)"', Type("call (1, 2)")),
        ("At (500, 250): (500, 250)", Click(Point(0.5, 0.25))),
    ],
)
def test_answers_in_the_forms_that_are_about_are_read(tmp_path: Path, answer: str, expected: Action) -> None:
    states, damaged, _ = talked(tmp_path, talk("<image>\nfind shoes", answer))
    assert not damaged
    assert (states[0].start.goal, states[0].start.expert) == ("find shoes", expected)


@pytest.mark.parametrize(
    "answer",
    [
        "[100, 200, 300, 400]",
        "<box>(100,200),(300,400)</box>",
        '{"action": "click", "bbox": [100, 200, 300, 400]}',
    ],
)
def test_a_box_is_a_target_and_a_click_in_its_middle(tmp_path: Path, answer: str) -> None:
    states, damaged, _ = talked(tmp_path, talk("<image>\nfind shoes", answer))
    assert not damaged
    target = states[0].start.target
    assert target is not None
    assert [target.left, target.top, target.width, target.height] == pytest.approx([0.1, 0.2, 0.2, 0.2])
    assert states[0].start.expert == Click(target.center)


@pytest.mark.parametrize(("grid", "x"), [(Grid.PIXELS, 0.5), (Grid.THOUSANDTHS, 0.1), (Grid.AUTO, 0.1)])
def test_what_numbers_count_can_be_said(tmp_path: Path, grid: Grid, x: float) -> None:
    states, _, _ = talked(tmp_path, talk("<image>\nfind", "(100, 100)"), grid=grid)
    action = states[0].start.expert
    assert isinstance(action, Click)
    assert isinstance(action.target, Point)
    assert action.target.x == x


def test_a_conversation_goes_on_with_its_history_and_its_newest_picture(tmp_path: Path) -> None:
    row = talk("<image>\nfirst", "(1, 1)", "and now", "(2, 2)", "<image> last", "(3, 3)", image=["a.png", "b.png"])
    states, damaged, _ = talked(tmp_path, row)
    assert not damaged
    assert [(s.start.goal, len(s.start.history), s.step) for s in states] == [
        ("first", 0, 0),
        ("and now", 1, 1),
        ("last", 2, 2),
    ]
    shown = [s.start.observation.image for s in states]
    assert shown[0] == shown[1] != shown[2]


def test_messages_with_roles_are_read_too(tmp_path: Path) -> None:
    said = (("system", "x"), ("user", "<image>go"), ("assistant", "(1, 1)"))
    messages = [{"role": role, "content": content} for role, content in said]
    states, damaged, _ = talked(tmp_path, {"images": ["a.png"], "messages": messages})
    assert not damaged
    assert states[0].start.goal == "go"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (talk("<image><image>go", "(1, 1)"), "more <image> than pictures"),
        (talk("go", "(1, 1)"), "an answer comes before the first <image>"),
        (talk("<image>go", "I cannot tell"), "says no action that is known here"),
        (talk("<image>go", '{"action": "fly"}'), "unknown action 'fly'"),
        (
            talk("<image>go", '[{"action": "type", "text": "a"}, {"action": "click", "point": [30, 40]}]'),
            "more than one action",
        ),
        (
            talk("<image>go", '{"action": "type", "text": "call [1, 2]"} {"action": "enter"}'),
            "more than one action",
        ),
        (
            talk("<image>go", '{"action": "click", "point": [1, 2]} or {"action": "click", "point": [3, 4]}'),
            "more than one action",
        ),
        (talk("<image>go", '{"action": "enter"} {oops [1, 2]'), "more than one action"),
        (talk("<image>go", "{'action': 'type', 'text': 'call [1, 2]'}"), "holds braces, and no action in JSON"),
        (talk("<image>go", 'type "a"\nclick (30, 40)'), "more than one action"),
        (talk("<image>go", "(1, 2) or (3, 4)"), "more than one place"),
        (talk("<image>go", '{"name": "gui", "arguments": "{oops"}'), "arguments: is not JSON"),
        (talk("<image>go", '{"action": "wait", "time": -1}'), "time must be above 0"),
        (talk("<image>go", '{"action": "type", "text": "\\ud800"}'), "half a surrogate pair"),
        (talk("<image>go", '{"a":' * 100_000), "no action in JSON"),
        (talk("<image>go", "(2000, 1)"), "x lies off the screen"),
        (talk("<image>go"), "holds no answer"),
        (talk("<image>go", "(1, 1)", image=5), "image must be the name of a picture"),
        (talk("<image>go", "(1, 1)", image="none.png"), "cannot be read"),
        ({"image": "a.png"}, "messages is missing"),
    ],
)
def test_a_damaged_conversation_is_named_with_its_line(tmp_path: Path, row: dict[str, object], said: str) -> None:
    good = talk("<image>go", "(1, 1)")
    states, damaged, path = talked(tmp_path, good, row, good)
    assert [state.task.index for state in states] == [0, 2]
    assert [one.where for one in damaged] == [f"{path}:2"]
    assert said in damaged[0].reason


def test_a_line_that_is_no_json_is_named_and_the_next_ones_are_read(tmp_path: Path) -> None:
    picture(tmp_path, "a.png")
    path = tmp_path / "talk.jsonl"
    good = json.dumps(talk("<image>go", "(1, 1)"))
    path.write_text(f"{good}\n{{oops\n\n{good}\n")
    states, damaged = apart(list(llava.read(path, blobs=MemoryBlobs())))
    assert len(states) == 2
    assert damaged[0].where == f"{path}:2"
