"""What ranks are sent is what rank 0 has: every array, every image, every pair."""

from dataclasses import fields, replace

import numpy as np
import pytest

from cairn.data.sample import Batch, CreditedSample, Preference, Sample, Targets
from cairn.errors import InvariantError
from cairn.testing.memory import MemoryBlobs
from cairn.train.messages import ReceivedImages, pack_batch, pack_pairs, unpack
from tiny_policy import batch, credited, policy, prompt


def assert_same(one: Sample | CreditedSample, other: Sample | CreditedSample) -> None:
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, Sample):
            assert_same(ours, theirs)
        elif isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs), field.name
        else:
            assert ours == theirs, field.name


def showing(sample: CreditedSample, blobs: MemoryBlobs, *pictures: bytes) -> CreditedSample:
    return replace(sample, sample=replace(sample.sample, images=tuple(blobs.put(one) for one in pictures)))


def test_a_batch_arrives_whole_with_the_images_that_it_shows_and_no_others() -> None:
    blobs = MemoryBlobs()
    blobs.put(b"of another batch")
    first, second, *rest = batch(policy()).samples
    sent = Batch(samples=(showing(first, blobs, b"one", b"two"), showing(second, blobs, b"two"), *rest))
    found = unpack(pack_batch(sent, blobs))
    assert found.batch is not None
    for ours, theirs in zip(sent.samples, found.batch.samples, strict=True):
        assert_same(ours, theirs)
    assert sorted(found.images.values()) == [b"one", b"two"]
    assert all(blobs.get(image) == data for image, data in found.images.items())


def test_a_critics_targets_are_refused_rather_than_lost() -> None:
    first, *rest = batch(policy()).samples
    none = np.zeros(first.weights.shape, np.float32)
    sent = Batch(samples=(replace(first, critic=Targets(values=none, returns=none)), *rest))
    with pytest.raises(InvariantError, match="critic"):
        pack_batch(sent, MemoryBlobs())


def test_pairs_of_several_samples_arrive_as_they_were() -> None:
    before = policy()
    samples = [credited(prompt(4 + i), [9, 10 + i], policy=before).sample for i in range(6)]
    sent = (
        Preference(chosen=tuple(samples[:1]), rejected=tuple(samples[1:3])),
        Preference(chosen=tuple(samples[3:5]), rejected=tuple(samples[5:])),
    )
    found = unpack(pack_pairs(sent, MemoryBlobs()))
    assert found.batch is None
    for ours, theirs in zip(sent, found.pairs, strict=True):
        for own, other in zip((*ours.chosen, *ours.rejected), (*theirs.chosen, *theirs.rejected), strict=True):
            assert_same(own, other)
        assert len(ours.chosen) == len(theirs.chosen)


def test_a_rank_has_the_images_at_hand_and_its_own() -> None:
    images = ReceivedImages()
    own = images.put(b"own")
    blobs = MemoryBlobs()
    image, later = blobs.put(b"one"), blobs.put(b"two")
    images.take({image: b"one"})
    assert (images.get(image), images.get(own)) == (b"one", b"own")
    images.take({later: b"two"})
    with pytest.raises(KeyError):
        images.get(image)
