"""What answers were worth, by a recipe: the estimator that it names, with all that belongs to it."""

import io
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool
from PIL import Image

from cairn.algo import advantages
from cairn.algo.perceptual import BITS, alike, difference_hash
from cairn.config.tables import ReinforcementOptions
from cairn.data.ids import ImageId
from cairn.data.observation import Observation
from cairn.data.sample import Aggregation
from cairn.ports import BlobStore
from cairn.rollout.estimators import (
    AdvantageFn,
    Anchors,
    Idle,
    TokenFn,
    beside_critic,
    beside_greedy,
    by_state,
    by_structure,
    by_trajectory,
    failures_less,
    no_gradient,
    no_success,
    nobody_left,
    not_beside_greedy,
    successes,
    to_the_end,
)
from cairn.rollout.samples import Crediting

_GIGPO_GAMMA = 0.95


def build_crediting(options: ReinforcementOptions, *, blobs: BlobStore) -> Crediting:
    """The recipe's estimator and aggregation. `blobs` holds the screenshots that states may be told apart by."""
    kl = options.kl if options.kl_in == "reward" else 0.0
    return Crediting(
        advantages=failures_less(
            _by_turn(options, blobs=blobs), least=options.negative_scale, slope=options.negative_slope
        ),
        aggregation=Aggregation(options.aggregation),
        norm=options.norm,
        whitened=options.whitens,
        effective=options.estimator == "gpg",
        idle=_idle(options),
        tokens=_by_token(options),
        kl=kl,
        appraised=bool(kl) or options.estimator == "gae",
    )


def _by_turn(options: ReinforcementOptions, *, blobs: BlobStore) -> AdvantageFn:
    match options.estimator:
        case "grpo":
            scale: advantages.Scale = "population" if options.deviation == "population" else "std"
            scale = "none" if options.deviation == "none" else scale
            return by_trajectory(lambda rewards: advantages.group_relative(rewards, scale=scale))
        case "rloo":
            return by_trajectory(advantages.leave_one_out)
        case "gigpo":
            return by_state(
                gamma=options.gamma or _GIGPO_GAMMA,
                weight=options.step_weight,
                scaled=options.deviation == "unbiased",
                by_step=options.episodes_by_step,
                anchors=_anchors(options, blobs=blobs),
            )
        case "rft":
            return successes(limit=options.successes_per_group)
        case "dr_grpo" | "gpg" | "reinforce_pp_baseline" | "reinforce_pp" | "remax" | "gae":
            return by_trajectory(lambda rewards: advantages.group_relative(rewards, scale="none"))


def _by_token(options: ReinforcementOptions) -> TokenFn | None:
    gamma = options.gamma or 1.0
    match options.estimator:
        case "reinforce_pp":
            return to_the_end(gamma=gamma)
        case "remax":
            return beside_greedy(gamma=gamma)
        case "gae":
            return beside_critic(gamma=gamma, lam=options.critic.lam)
        case _:
            return None


def _idle(options: ReinforcementOptions) -> Idle:
    if options.prefers:
        return no_gradient
    match options.estimator:
        case "reinforce_pp" | "gae":
            return nobody_left
        case "remax":
            return not_beside_greedy
        case "rft":
            return no_success
        case _:
            return no_gradient


def _anchors(options: ReinforcementOptions, *, blobs: BlobStore) -> Anchors:
    return by_structure if options.anchors == "structure" else PictureAnchors(blobs=blobs, bits=options.anchor_bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureAnchors:
    """States are equal where address and picture are, but for a few bits of the picture's hash.

    For environments whose structure tells less than their screen, or differs where nothing that matters does.
    """

    blobs: BlobStore
    bits: int
    _known: dict[ImageId, Bool[np.ndarray, " B"]] = field(default_factory=dict[ImageId, Bool[np.ndarray, " B"]])

    def __call__(self, seen: Sequence[Observation]) -> Sequence[Hashable]:
        pages = [(one.url, one.digest if one.image is None else "") for one in seen]
        return alike([self._hash(one.image) for one in seen], bits=self.bits, among=pages)

    def _hash(self, image: ImageId | None) -> Bool[np.ndarray, " B"]:
        if image is None:
            return np.zeros(BITS, np.bool_)
        if image not in self._known:
            with Image.open(io.BytesIO(self.blobs.get(image))) as picture:
                self._known[image] = difference_hash(np.asarray(picture.convert("L"), np.float32))
        return self._known[image]
