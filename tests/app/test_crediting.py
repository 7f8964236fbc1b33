"""Recipes' estimators, and states that are told apart by their pictures."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cairn.app.crediting import PictureAnchors, build_crediting
from cairn.config.tables import ReinforcementOptions
from cairn.data.ids import ImageId
from cairn.data.observation import Observation
from cairn.rollout.estimators import no_gradient, no_success, nobody_left, not_beside_greedy
from cairn.testing.memory import MemoryBlobs
from rollout.test_samples import SEEN, group, member, turn

BLOBS = MemoryBlobs()


def shown(seed: int, *, url: str = "here", dot: bool = False) -> Observation:
    """A screen of coloured squares; a dot of two pixels changes none of its means by much."""
    squares = np.random.default_rng(seed).integers(0, 255, (16, 17), np.uint8)
    pixels = np.kron(squares, np.ones((10, 10), np.uint8))
    if dot:
        pixels[3, 3:5] = 255 - pixels[3, 3:5]
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return replace(SEEN, image=BLOBS.put(written.getvalue()), url=url, digest=f"{seed}{dot}")


def test_screens_that_differ_by_a_dot_are_one_state_and_those_of_other_addresses_are_not() -> None:
    anchors = PictureAnchors(blobs=BLOBS, bits=4)
    one, dotted, other, elsewhere = shown(0), shown(0, dot=True), shown(1), shown(0, url="there")
    found = anchors([one, other, dotted, elsewhere, one])
    assert found[0] == found[2] == found[4]
    assert len(set(found)) == 3


def test_without_a_picture_states_are_told_apart_by_their_structure() -> None:
    blank = [replace(SEEN, digest=digest) for digest in "aba"]
    found = PictureAnchors(blobs=BLOBS, bits=256)([*blank, shown(0)])
    assert found[0] == found[2]
    assert len(set(found)) == 3


def test_a_missing_picture_is_an_error_and_not_a_state() -> None:
    with pytest.raises(KeyError):
        PictureAnchors(blobs=BLOBS, bits=0)([replace(SEEN, image=ImageId("nowhere"))])


@pytest.mark.parametrize(
    ("keys", "worth"),
    [
        ({"estimator": "grpo"}, [1.5, -0.5, -0.5, -0.5]),
        ({"estimator": "grpo", "deviation": "population"}, [1.7321, -0.5774, -0.5774, -0.5774]),
        ({"estimator": "grpo", "deviation": "none"}, [0.75, -0.25, -0.25, -0.25]),
        ({"estimator": "dr_grpo"}, [0.75, -0.25, -0.25, -0.25]),
        ({"estimator": "rloo"}, [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ({"estimator": "grpo", "negative_scale": 0.5}, [1.5, -0.25, -0.25, -0.25]),
        ({"estimator": "grpo", "negative_scale": 0.2, "negative_slope": 1.0}, [1.5, -0.225, -0.225, -0.225]),
        ({"estimator": "gigpo"}, [0.75, -0.25, -0.25, -0.25]),
        ({"estimator": "gigpo", "deviation": "unbiased", "step_weight": 0.0}, [1.5, -0.5, -0.5, -0.5]),
    ],
)
def test_golden_advantages_of_recipes(keys: dict[str, object], worth: list[float]) -> None:
    crediting = build_crediting(ReinforcementOptions.model_validate(keys), blobs=BLOBS)
    tries = group(*[member([turn([i], [7])], float(i == 1)) for i in range(1, 5)])
    states = [
        replace(m.trajectory.turns[0], observation=replace(SEEN, digest=str(i))) for i, m in enumerate(tries.members)
    ]
    apart = replace(
        tries,
        members=tuple(
            replace(m, trajectory=replace(m.trajectory, turns=(t,))) for m, t in zip(tries.members, states, strict=True)
        ),
    )
    assert [float(a[0]) for a in crediting.advantages(apart) if a is not None] == pytest.approx(worth, abs=1e-4)


def test_an_estimator_says_which_groups_teach_it_nothing_and_whether_it_asks_the_learner() -> None:
    def made(**keys: object):
        return build_crediting(ReinforcementOptions.model_validate(keys), blobs=BLOBS)

    assert made(estimator="rloo").idle is no_gradient
    assert made(estimator="rft").idle is no_success
    assert made(estimator="remax").idle is not_beside_greedy
    assert made(estimator="gae").idle is made(estimator="reinforce_pp").idle is nobody_left
    assert made(estimator="gae", loss="dpo").idle is no_gradient
    asked = [made(estimator=e).appraised for e in ("grpo", "reinforce_pp", "remax", "gae")]
    assert asked == [False, False, False, True]
    assert made(kl=0.1).kl == 0.0
    charged = made(kl=0.1, kl_in="reward")
    assert (charged.kl, charged.appraised) == (0.1, True)
