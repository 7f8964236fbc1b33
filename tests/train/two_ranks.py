"""What the ranks of a learner do in a test, as processes of their own: `python two_ranks.py NAME RANK COUNT FOLDER`."""

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from cairn.data.sample import Batch
from cairn.ports import LearnerStep
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner, Settings
from cairn.train.objective import Objective
from cairn.train.optimisation import Optimisation
from cairn.train.ranks import Group, close_group, open_group
from cairn.train.sharding import ShardedPolicy, whole_weights
from tiny_policy import batch, policy

PATIENCE = 120.0
PLAIN = Optimisation(learning_rate=1e-3, warmup_steps=2, weight_decay=0.1, max_grad_norm=0.05)
SETTINGS = Settings(imitation=PLAIN, improvement=PLAIN, bounds=Bounds(mean=9, token=99))


def settings(name: str) -> Settings:
    match name:
        case "plain":
            return replace(SETTINGS, max_tokens=40)
        case "steps":
            objective = Objective(
                epochs=2, minibatches=3, kl_coefficient=0.1, entropy_coefficient=0.01, correction="token_truncated"
            )
            return replace(SETTINGS, objective=objective)
        case _:
            return SETTINGS


def learner(name: str, group: Group | None) -> GradientLearner:
    own = policy()
    if group is None:
        return GradientLearner(policy=own, settings=settings(name))
    return GradientLearner(policy=ShardedPolicy.of(own, group.mesh), settings=settings(name), ranks=group)


def updates(trained: GradientLearner, *, count: int = 2) -> list[LearnerStep]:
    """Imitation and improvement in turn, on batches that a policy at its start sampled."""
    steps: list[LearnerStep] = []
    for _ in range(count):
        steps.append(trained.imitate(data(trained)))
        steps.append(trained.improve(data(trained)))
    return steps


def data(trained: GradientLearner) -> Batch:
    return batch(policy(), seed=trained.version, version=trained.version)


def told(step: LearnerStep) -> dict[str, float]:
    names = ("version", "loss", "grad_norm", "entropy", "kl", "clipped", "effective", "mismatch_mean", "mismatch_max")
    return {name: float(getattr(step, name)) for name in names}


def main(name: str, rank: int, count: int, folder: Path) -> None:
    store = dist.FileStore(str(folder / "store"), count)
    group = open_group(store, rank=rank, count=count, device=torch.device("cpu"), patience=PATIENCE)
    trained = learner(name, group)
    steps = [told(step) for step in updates(trained)]
    weights = dict(whole_weights(trained.policy.model, keep=True))
    if rank == 0:
        save_file({n: t.clone() for n, t in weights.items()}, folder / "weights.safetensors")
        (folder / "steps.json").write_text(json.dumps(steps))
    close_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
