from pathlib import Path

import pytest
from PIL import Image

from cairn.dashboard.adaptive import Slice, TaskRow, draw_adaptive
from cairn.dashboard.curve import EvaluationPoint, TrainingPoint, draw_curve
from cairn.dashboard.seeds import SeedCurve, draw_seeds


def point(phase: str, minutes: float, mean: float, *, greedy: bool = False) -> EvaluationPoint:
    return EvaluationPoint(
        phase=phase, minutes=minutes, greedy=greedy, mean=mean, low=max(0.0, mean - 0.1), high=min(1.0, mean + 0.1)
    )


def colours(path: Path) -> set[tuple[int, ...]]:
    with Image.open(path) as image:
        found = image.convert("RGB").getcolors(1 << 24)
    assert found is not None
    return {colour for _, colour in found if isinstance(colour, tuple)}


IMITATION, REINFORCEMENT, CONTROL = (0x6B, 0x72, 0x80), (0x0F, 0x76, 0x6E), (0xB4, 0x53, 0x09)


def test_every_phase_has_a_line_of_its_own_colour(tmp_path: Path) -> None:
    points = [
        point("imitation", 2.0, 0.3),
        point("reinforcement", 6.0, 0.6),
        point("reinforcement", 11.0, 0.8),
        point("control", 11.0, 0.4, greedy=True),
    ]
    draw_curve(points, [TrainingPoint(minutes=3.0, success=0.4)], tmp_path / "new" / "curve.png", title="run")
    assert {IMITATION, REINFORCEMENT, CONTROL} <= colours(tmp_path / "new" / "curve.png")


def test_seeds_are_drawn_with_their_mean(tmp_path: Path) -> None:
    seeds = [
        SeedCurve(
            evaluations=[
                point("imitation", 0.3, start, greedy=greedy) for greedy in (False, True)
            ] + [point("reinforcement", 9.0, start + 0.3, greedy=greedy) for greedy in (False, True)],
            rounds=[TrainingPoint(minutes=3.0, success=start)],
        )
        for start in (0.2, 0.4)
    ]  # fmt: skip
    draw_seeds([*seeds, SeedCurve(evaluations=[], rounds=[])], tmp_path / "seeds.png", title="two")
    assert {IMITATION, REINFORCEMENT} <= colours(tmp_path / "seeds.png")
    assert CONTROL not in colours(tmp_path / "seeds.png")


@pytest.mark.parametrize("points", [[], [point("imitation", 0.0, 0.0)], [point("reinforcement", 1.0, 1.0)]])
def test_a_run_that_is_hardly_begun_can_be_drawn(tmp_path: Path, points: list[EvaluationPoint]) -> None:
    draw_curve(points, [], tmp_path / "curve.png", title="run")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size == (1080, 630)


def test_adaptive_training_is_drawn_by_mode(tmp_path: Path) -> None:
    slices = [Slice(steps=10, local=3, suffix=1, root=0), Slice(steps=40, local=1, suffix=2, root=2)]
    tasks = [
        TaskRow(mode="local", frontier=None, scores=(0.1, 0.6)),
        TaskRow(mode="suffix", frontier=1, scores=(0.2, 0.5, 0.9)),
        TaskRow(mode="root", frontier=None, scores=(0.0,)),
        TaskRow(mode="", frontier=None, scores=()),
    ]
    draw_adaptive(slices, tasks, tmp_path / "starts.png", title="run")
    draw_adaptive([], [], tmp_path / "nothing.png", title="nothing yet")
    assert len(colours(tmp_path / "starts.png")) > len(colours(tmp_path / "nothing.png"))
