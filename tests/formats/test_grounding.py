"""ScreenSpot and its kin: boxes become fractions, pictures become tasks, and damage has a line."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import Click
from cairn.data.ids import ImageId
from cairn.data.observation import Box
from cairn.errors import ConfigError
from cairn.formats import screenspot
from cairn.formats.places import Picture
from cairn.formats.rows import DamageError
from cairn.testing.memory import MemoryBlobs
from formats.made import apart, picture, png, png_header, rows

whole = st.integers(0, 3000)


def row(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "img_filename": "a.png", "bbox": [20, 40, 60, 80], "instruction": "open settings",
        "data_type": "icon", "data_source": "ios",
    }  # fmt: skip
    return plain | changes


def read(path: Path, *, name: str = "screenspot"):
    blobs = MemoryBlobs()
    return *apart(list(screenspot.read(path, blobs=blobs, name=name))), blobs


@pytest.mark.parametrize(
    ("name", "box", "expected"),
    [
        ("screenspot", [20, 40, 60, 80], Box(left=0.1, top=0.1, width=0.3, height=0.2)),
        ("screenspot-v2", [20, 40, 60, 80], Box(left=0.1, top=0.1, width=0.3, height=0.2)),
        ("screenspot-pro", [20, 40, 60, 80], Box(left=0.1, top=0.1, width=0.2, height=0.1)),
        ("screenspot", [0.1, 0.2, 0.3, 0.6], Box(left=0.1, top=0.2, width=0.2, height=0.4)),
    ],
)
def test_a_box_is_read_as_its_benchmark_writes_it(tmp_path: Path, name: str, box: list[float], expected: Box) -> None:
    picture(tmp_path, "a.png")
    states, damaged, _ = read(rows(tmp_path / "screenspot_mobile.json", [row(bbox=box)]), name=name)
    assert not damaged
    target = states[0].start.target
    assert target is not None
    assert [target.left, target.top, target.width, target.height] == pytest.approx(
        [expected.left, expected.top, expected.width, expected.height]
    )
    assert states[0].start.expert == Click(target.center)
    assert (states[0].source, states[0].start.goal) == (name, "open settings")


def test_instructions_of_one_picture_are_one_task_and_the_benchmarks_parts_are_templates(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / "images", name)
    path = rows(
        tmp_path / "screenspot_web.json",
        [row(), row(img_filename="b.png"), row(instruction="go back"), row(data_type="text")],
    )
    states, _, blobs = read(path)
    assert [(s.task.template.id, s.task.index, s.step) for s in states] == [
        ("recorded/screenspot/web-icon", 0, 0),
        ("recorded/screenspot/web-icon", 1, 0),
        ("recorded/screenspot/web-icon", 0, 1),
        ("recorded/screenspot/web-text", 0, 0),
    ]
    assert blobs.get(ImageId(hashlib.sha256(png()).hexdigest())) == png()


def test_pro_is_broken_down_by_field(tmp_path: Path) -> None:
    picture(tmp_path / "images", "dev/a.png")
    own = row(img_filename="dev/a.png", ui_type="text", group="Dev", application="vscode")
    states, _, _ = read(rows(tmp_path / "annotations" / "vscode.json", [own]), name="screenspot-pro")
    assert states[0].task.template.id == "recorded/screenspot-pro/dev-text"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bbox": [20, 40, 60]}, "bbox must hold 4 numbers, got 3"),
        ({"bbox": "20,40"}, "bbox must be a list"),
        ({"bbox": [20, 40, "x", 4]}, "bbox must be a number, got 'x'"),
        ({"bbox": [20, 40, float("nan"), 4]}, "bbox must be a number"),
        ({"bbox": [20, 40, -5, 4]}, "negative width"),
        ({"bbox": [190, 40, 60, 80]}, "x lies off the screen, at 1.25 of it"),
        ({"instruction": " "}, "instruction is empty"),
        ({"instruction": None}, "instruction must be a string"),
        ({"img_filename": "none.png"}, "cannot be read"),
        ({"img_filename": "text.png"}, "is damaged"),
        ({"img_filename": "cut.png"}, "is damaged"),
        ({"img_filename": "old.bmp"}, "only PNG, JPEG and WebP"),
        ({"bbox": [20, 40, 0, 80]}, "a box without width or height"),
        ({"bbox": [10**299, 40, 5, 5]}, "bbox must be a number between"),
        ({"instruction": "half \ud800"}, "half a surrogate pair, which is no text: half \\ud800"),
        ({"img_filename": "a\0.png"}, "no file can have that name"),
        ({"img_filename": "a" * 5000}, "cannot be read: File name too long"),
        ({"img_filename": "huge.png"}, "is too large for a screenshot"),
        ({"img_filename": "/etc/hostname"}, "/etc/hostname lies outside of the data set"),
        ({"img_filename": "../../a.png"}, "../../a.png lies outside of the data set"),
    ],
)
def test_a_damaged_row_is_named_with_its_line_and_the_others_are_read(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    picture(tmp_path, "a.png")
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "cut.png").write_bytes(png()[:-20])
    (tmp_path / "old.bmp").write_bytes(png(kind="BMP"))
    (tmp_path / "huge.png").write_bytes(png_header(60_000, 60_000))
    path = rows(tmp_path / "screenspot_mobile.json", [row(), row(**changes), row()])
    states, damaged, _ = read(path)
    assert len(states) == 2
    (one,) = damaged
    assert one.where == f"{path}:3"
    assert said in one.reason
    assert len(one.reason) < 700
    assert "object at 0x" not in one.reason


def test_pictures_beside_the_annotations_folder_may_be_named_from_it(tmp_path: Path) -> None:
    picture(tmp_path / "images", "a.png")
    path = rows(tmp_path / "annotations" / "web.json", [row(img_filename="../images/a.png")])
    states, damaged, _ = read(path)
    assert (len(states), damaged) == (1, [])


@pytest.mark.parametrize(("ending", "line"), [(".json", 3), (".jsonl", 2)])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"open settings"', b'"\xf6ffnen"', "holds bytes that are not UTF-8"),
        (b'"ios"', b"[" * 100_000, "nested too deep"),
        (b"20,", b"9" * 5000 + b",", "bbox must be a number between"),
    ],
)
def test_json_that_cannot_be_read_is_damage_with_its_line(
    tmp_path: Path, ending: str, line: int, old: bytes, new: bytes, said: str
) -> None:
    picture(tmp_path, "a.png")
    path = rows(tmp_path / f"web{ending}", [row(), row()])
    good, bad = path.read_bytes().rsplit(b'{"img', 1)
    path.write_bytes(good + b'{"img' + bad.replace(old, new))
    states, damaged, _ = read(path)
    assert len(states) == 1
    assert [one.where for one in damaged] == [f"{path}:{line}"]
    assert said in damaged[0].reason


def test_rows_on_one_line_are_named_by_their_number(tmp_path: Path) -> None:
    picture(tmp_path, "a.png")
    path = tmp_path / "web.json"
    path.write_text(json.dumps([row(), row(bbox=[]), row()]))
    states, damaged, _ = read(path)
    assert len(states) == 2
    assert [one.where for one in damaged] == [f"{path}:1, row 2"]


def test_json_of_another_type_is_not_called_broken(tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps(row()))
    _, damaged, _ = read(path)
    assert len(damaged) == 1
    assert damaged[0].reason.startswith("must be a JSON array, and begins with '{")


def test_a_row_that_is_no_object_is_damage(tmp_path: Path) -> None:
    picture(tmp_path, "a.png")
    _, damaged, _ = read(rows(tmp_path / "screenspot_mobile.json", [row(), 7]))
    assert [str(one) for one in damaged] == [
        f"{tmp_path}/screenspot_mobile.json:3: is int, not an object with named fields"
    ]


@pytest.mark.parametrize("cut", ["[\n1, {", '[\n{"a": 1}\n{"b": 2}]', ""])
def test_broken_json_is_named_with_its_line(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "screenspot_mobile.json"
    path.write_text(cut)
    _, damaged, _ = read(path)
    assert damaged
    assert "is not JSON" in damaged[-1].reason
    assert damaged[-1].where.startswith(f"{path}:")


def test_a_folder_without_annotations_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no folder with files that end in \.json"):
        read(tmp_path)


@given(st.integers(1, 3000), st.integers(1, 3000), whole, whole, whole, whole)
def test_pixels_become_fractions_and_back_within_a_hair(
    width: int, height: int, left: int, top: int, right: int, bottom: int
) -> None:
    shot = Picture(image=ImageId("x"), width=width, height=height)
    fits = left < min(right, width) and right <= 1.01 * width and top < min(bottom, height) and bottom <= 1.01 * height
    if not fits:
        with pytest.raises(DamageError):
            shot.box(left, top, right, bottom)
        return
    box = shot.box(left, top, right, bottom)
    assert 0 <= box.left <= box.left + box.width <= 1 + 1e-9
    assert 0 <= box.top <= box.top + box.height <= 1 + 1e-9
    assert box.left * width == pytest.approx(min(left, width), abs=1e-6)
    assert (box.top + box.height) * height == pytest.approx(min(bottom, height), abs=1e-6)
    assert box.left <= box.center.x <= box.left + box.width + 1e-9
