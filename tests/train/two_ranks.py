"""What one rank of a learner does in a test, as a process: `python two_ranks.py NAMES RANK COUNT PORT FOLDER`.

Each of the names is a learner's life, one after another. Rank 0 writes what came of it into a folder of that name; port
0 is any free one, which rank 0 writes down first.
"""

import json
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from cairn.codecs.pixel import PixelCodec
from cairn.data.action import Click
from cairn.data.coordinates import Point
from cairn.data.pixel_vocabulary import PixelVocabulary
from cairn.data.sample import Batch, Preference
from cairn.data.trajectory import Prompt
from cairn.errors import InvariantError, RankError
from cairn.models.loading import load_vision_model
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.modeling import PixelForCausalLM
from cairn.models.pixel.processing import PixelFeatures, PixelImageProcessor
from cairn.models.policy import Policy
from cairn.models.vision.eyes import VisionEyes
from cairn.models.vision.families import Family
from cairn.models.vision.processing import VisionProcessor
from cairn.ports import BlobStore, LearnerStep
from cairn.train.guard import Bounds
from cairn.train.leading import LeadingLearner, follow
from cairn.train.learner import GradientLearner, Settings
from cairn.train.meeting import Meeting, Order, Seat, open_store
from cairn.train.messages import ReceivedImages
from cairn.train.objective import Objective
from cairn.train.optimisation import Optimisation
from cairn.train.preference import PreferenceObjective
from cairn.train.ranks import Group
from cairn.train.sharding import ShardedPolicy, own_slice
from tiny_policy import batch, credited, policy, prompt
from tiny_vision import BLOBS, answered, directory, mind, screen

LATE = 240.0
FROM = {"resumed": "plain", "from one": "one"}
SAVED = ("plain", "steps")
PLAIN = Optimisation(learning_rate=1e-3, warmup_steps=2, weight_decay=0.1, max_grad_norm=0.05)
SETTINGS = Settings(imitation=PLAIN, improvement=PLAIN, bounds=Bounds(mean=9, token=99), max_tokens=40)
STEPS = Objective(epochs=2, minibatches=3, kl_coefficient=0.1, entropy_coefficient=0.01, correction="token_truncated")


def settings(name: str, blobs: BlobStore = BLOBS) -> Settings:
    match name:
        case "steps" | "improved":
            return replace(SETTINGS, objective=STEPS)
        case "prefer":
            return replace(SETTINGS, preference=PreferenceObjective(loss="kto"))
        case "vision":
            eyes = VisionEyes(seeing(blobs))
            return replace(SETTINGS, placeholder_id=eyes.placeholder_id, image_tokens=eyes.tokens, max_tokens=200)
        case "pixel":
            return replace(SETTINGS, placeholder_id=PixelVocabulary.IMAGE)
        case _:
            return SETTINGS


def seeing(blobs: BlobStore) -> VisionProcessor:
    return VisionProcessor.load(directory(Family.QWEN2_5_VL), family=Family.QWEN2_5_VL, blobs=blobs)


def learner(name: str, group: Group | None = None, blobs: BlobStore = BLOBS) -> GradientLearner:
    own = policy()
    if name == "vision":
        own = Policy(model=load_vision_model(directory(Family.QWEN2_5_VL)), eyes=VisionEyes(seeing(blobs)))
    if name == "pixel":
        own = pointing(blobs)
    if group is None:
        return GradientLearner(policy=own, settings=settings(name, blobs))
    return GradientLearner(policy=ShardedPolicy.of(own, group.mesh), settings=settings(name, blobs), ranks=group)


def data(name: str, version: int) -> Batch:
    if name == "vision":
        return shown(version)
    if name == "pixel":
        return pointed(version)
    return batch(policy(), seed=version, version=version)


def shown(version: int) -> Batch:
    """Answers to one screenshot, and to words alone: a rank may well have none of the first kind."""
    own = mind(Family.QWEN2_5_VL)
    seen = answered(own, [], screen(version), Click(target=Point(x=0.3, y=0.4))).prompt
    words = Prompt(token_ids=np.arange(20, 60, dtype=np.int32), images=())
    samples = [
        credited(where, [50 + i, 60, 70 + i], credit=(i - 1.5) / 4, version=version)
        for where in (seen, words)
        for i in range(4)
    ]
    return Batch(samples=tuple(samples))


def pointing(blobs: BlobStore) -> Policy:
    """A small pixel policy, off its neutral start."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = PixelForCausalLM(PixelConfig(width=16, fine=8, text_width=16, blocks=2, text_layers=1))
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.2)
    return Policy(model=model, image_features=PixelFeatures(blobs=blobs, processor=PixelImageProcessor()))


def pointed(version: int) -> Batch:
    """Answers of two tokens, which some weights are for alone, and of one: a rank may well have none of the first."""
    layout = PixelConfig().vocabulary
    codec = PixelCodec(vocabulary=layout, crop=PixelConfig().crop)
    where = codec.prompt('Enter "ada"', [], screen(version, size=(160, 210)))
    typed, clicked = [layout.start + 1, layout.end + 1], [layout.place + 5]
    samples = [
        credited(where, answer, credit=(i - 1.5) / 4, version=version) for answer in (typed, clicked) for i in range(4)
    ]
    return Batch(samples=tuple(samples))


def pairs(version: int) -> tuple[Preference, ...]:
    before = policy()
    found = [credited(prompt(5 + i), [10 + i, 12, 14 + i], policy=before, version=version).sample for i in range(6)]
    return tuple(Preference(chosen=(a,), rejected=(b,)) for a, b in zip(found[:3], found[3:], strict=True))


def updates(name: str, trained: GradientLearner | LeadingLearner, *, count: int = 2) -> list[LearnerStep]:
    """Imitation and what a name asks for in turn, on batches that a policy at its start sampled."""
    steps: list[LearnerStep] = []
    for _ in range(count):
        if name != "improved":
            steps.append(trained.imitate(data(name, trained.version)))
        if name == "prefer":
            steps.append(trained.prefer(pairs(trained.version)))
        else:
            steps.append(trained.improve(data(name, trained.version)))
    return steps


def told(step: LearnerStep) -> dict[str, float]:
    names = ("version", "loss", "grad_norm", "entropy", "kl", "clipped", "effective", "mismatch_mean", "mismatch_max")
    return {name: float(getattr(step, name)) for name in names}


def lead(name: str, trained: LeadingLearner, folder: Path) -> None:
    match name:
        case "dies":
            updates(name, trained, count=1)
            os.kill(os.getpid(), signal.SIGKILL)
        case "left":  # by the other rank, at the first imitation
            try:
                updates(name, trained)
            except RankError as error:
                (folder / name / "error.txt").write_text(str(error))
        case "infinite":
            refused(name, trained, folder / name)
        case _:
            if name in FROM:
                trained.load(folder / FROM[name] / "saved")
            steps = updates(name, trained)
            keep(folder / name, steps, trained)
            if name in SAVED:
                trained.save(folder / name / "saved")
            if name == "plain":
                keep(folder / name / "later", updates(name, trained), trained)


def refused(name: str, trained: LeadingLearner, folder: Path) -> None:
    samples = data(name, trained.version).samples
    endless = np.where(samples[0].sample.loss_mask, np.float32(np.inf), np.float32(0))
    bad = replace(samples[0], weights=endless)
    with unmoved(trained.policy, folder / "0.txt"):
        trained.imitate(Batch(samples=(bad, *samples[1:])))


@contextmanager
def unmoved(trained: Policy, told: Path) -> Generator[None]:
    """Write down why a step was refused, which must leave this rank's weights as they are."""
    before = [own_slice(weight).detach().clone() for weight in trained.model.parameters()]
    try:
        yield
    except InvariantError as error:
        told.write_text(str(error))
    after = [own_slice(weight).detach() for weight in trained.model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def keep(folder: Path, steps: list[LearnerStep], trained: LeadingLearner) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "steps.json").write_text(json.dumps([told(step) for step in steps]))
    save_file({n: t.clone() for n, t in trained.weights().items()}, folder / "weights.safetensors")


@contextmanager
def meeting(rank: int, count: int, port: int, folder: Path) -> Generator[Meeting]:
    store, port = open_store(Seat(rank=rank, count=count, port=port))
    if rank == 0:
        (folder / "port.new").write_text(str(port))
        (folder / "port.new").rename(folder / "port")
    met = Meeting.join(Seat(rank=rank, count=count, port=port), store, late=LATE, patience=60.0)
    try:
        yield met
        if rank == 0:
            met.part()
    finally:
        met.close()


def main(names: str, rank: int, count: int, port: int, folder: Path) -> None:
    if "vision" in names:
        directory(Family.QWEN2_5_VL)  # transformers writes on rank 0 alone, once there are ranks
    with meeting(rank, count, port, folder) as met:
        for name in names.split(","):
            images = ReceivedImages()
            trained = learner(name, met.group, BLOBS if rank == 0 else images)
            if rank == 0:
                (folder / name).mkdir(exist_ok=True)
                lead(name, LeadingLearner(trained, meeting=met, blobs=BLOBS), folder)
                if name != "infinite":  # in which the others have left already
                    met.tell(Order.END)
            elif name == "left":
                met.hear()
                met.fail("OutOfMemoryError: told before it ended")
                os.kill(os.getpid(), signal.SIGKILL)
            elif name == "infinite":
                with unmoved(trained.policy, folder / name / "1.txt"):
                    follow(trained, meeting=met, images=images)
            else:
                follow(trained, meeting=met, images=images)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
