"""Keys of `[reinforcement]` that say what an answer was worth."""

from typing import Literal

from pydantic import Field

from cairn.config.table import Table

Estimator = Literal[
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "remax",
    "gpg",
    "gae",
    "gigpo",
    "rft",
]

SchedulerName = Literal["round_robin", "variance", "tasks", "adaptive", "pivots", "progress", "recorded", "stored"]


class EstimationOptions(Table):
    """What an answer was worth, and the shapes of some losses."""

    estimator: Estimator = "grpo"
    """`reinforce_pp` is REINFORCE++, whose only baseline is the mean of the batch; `reinforce_pp_baseline` takes off
    the group's mean first. `remax` plays a greedy rollout beside every group. `gpg` wants `loss = "reinforce"`. `gae`
    has a critic. `gigpo` compares a turn also with the group's other turns in the same state. `rft` imitates what
    succeeded, and wants `loss = "reinforce"`."""
    deviation: Literal["auto", "unbiased", "population", "none"] = "auto"
    """Of `grpo` and `gigpo`: what advantages are divided by; `auto`: the unbiased deviation, and nothing for `gigpo`,
    which knows no `population`."""
    gamma: float | None = Field(default=None, gt=0, le=1)
    """What a reward is worth one turn earlier (`gigpo`, 0.95), or one token (`reinforce_pp`, `remax`, `gae`, 1)."""
    step_weight: float = Field(default=1.0, ge=0)
    """Of `gigpo`: of the comparison in the same state, beside that of whole episodes."""
    episodes_by_step: bool = False
    """Of `gigpo`: an episode counts in its group's mean once for every step of it, as in the released code."""
    anchors: Literal["structure", "picture"] = "structure"
    """Of `gigpo`: whether states are equal by their structure, or by address and a hash of the screenshot."""
    anchor_bits: int = Field(default=0, ge=0, le=256)
    """Of the hash's 256 bits, those in which two pictures of one state may differ."""
    successes_per_group: int | None = Field(default=None, ge=1)
    """Of `rft`: how many different successes of a group are imitated; default: all."""
    negative_scale: float = Field(default=1.0, ge=0, le=1)
    """What negative advantages are multiplied with. Below 1, failures push less than successes pull, so that a small
    policy that is trained fast does not unlearn what it knows."""
    negative_slope: float = Field(default=0.0, ge=0)
    """Added to `negative_scale`, times the group's success, up to 1 (GUI-Libra, arXiv:2602.22190)."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where `reinforcement.kl` acts: as a cost of its own, or taken from the reward, token by token where the
    estimator knows tokens (`reinforce_pp`, `remax`, `gae`), else from the whole trajectory's."""
    kl_estimator: Literal["auto", "k1", "k2", "k3"] = "auto"
    """Default: k3 in the loss, k1 in the reward. As a loss, k2 has the gradient of the KL, k3 that of the reverse one,
    and k1 none but noise."""
    gate_temperature: float = Field(default=1.0, gt=0)
    """Of `loss = "sapo"`: how sharply its gate closes for successes, and for failures."""
    negative_gate_temperature: float = Field(default=1.05, gt=0)
    desirable_weight: float = Field(default=1.0, gt=0)
    """Of `loss = "kto"`: what the better and the worse answers of pairs count."""
    undesirable_weight: float = Field(default=1.0, gt=0)

    @property
    def by_token(self) -> bool:
        """Whether the estimator compares no siblings, so that a group of one teaches something."""
        return self.estimator in {"reinforce_pp", "remax", "gae"}

    @property
    def whitens(self) -> bool:
        """Whether advantages are whitened over the batch."""
        return self.estimator in {"reinforce_pp", "reinforce_pp_baseline", "gae"}
