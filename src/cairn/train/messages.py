"""Batches and pairs as bytes, for ranks in other processes: arrays and JSON alone, with the images that they show.

What a critic is to learn is not among them: it learns in one process.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from cairn.data.ids import ImageId
from cairn.data.sample import Batch, CreditedSample, Preference, Sample
from cairn.errors import InvariantError
from cairn.ports import BlobStore

_SAMPLE = ("token_ids", "loss_mask", "logprobs", "versions")
_CREDIT = ("positive", "negative", "weights")

_Array = Shaped[np.ndarray, "..."]


class ReceivedImages:
    """Implements `BlobStore` with the images of the batch at hand, and what was put in by this process itself."""

    def __init__(self) -> None:
        self._held: Mapping[ImageId, bytes] = {}
        self._own: dict[ImageId, bytes] = {}

    def take(self, images: Mapping[ImageId, bytes]) -> None:
        """Have these, and no more those of an earlier batch."""
        self._held = images

    def put(self, data: bytes) -> ImageId:
        image = ImageId(hashlib.sha256(data).hexdigest())
        self._own[image] = data
        return image

    def get(self, image: ImageId) -> bytes:
        return self._held[image] if image in self._held else self._own[image]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What was sent: one of the two, and its images."""

    batch: Batch | None
    pairs: tuple[Preference, ...]
    images: Mapping[ImageId, bytes]


def pack_batch(batch: Batch, blobs: BlobStore) -> bytes:
    """Without loss; `blobs` has the images. An `InvariantError` where there are targets for a critic."""
    if any(credited.critic is not None for credited in batch.samples):
        raise InvariantError("a batch for several ranks holds targets for a critic, which learns in one process")
    samples = [credited.sample for credited in batch.samples]
    credits_ = {name: np.concatenate([getattr(c, name) for c in batch.samples]) for name in _CREDIT}
    return _pack(samples, blobs, more=credits_, sides=None)


def pack_pairs(pairs: Sequence[Preference], blobs: BlobStore) -> bytes:
    """Without loss; `blobs` has the images."""
    samples = [sample for pair in pairs for sample in (*pair.chosen, *pair.rejected)]
    return _pack(samples, blobs, more={}, sides=[(len(pair.chosen), len(pair.rejected)) for pair in pairs])


def unpack(data: bytes) -> Parcel:
    """What was packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes())
        cuts = np.cumsum(header["lengths"])[:-1]
        parts = {name: np.split(arrays[name], cuts) for name in arrays.files if name in (*_SAMPLE, *_CREDIT)}
        samples = [
            Sample(**{name: parts[name][i] for name in _SAMPLE}, images=tuple(ImageId(one) for one in shown))
            for i, shown in enumerate(header["shown"])
        ]
        images = _images(arrays["images"].tobytes(), header["images"])
    if header["sides"] is not None:
        return Parcel(batch=None, pairs=tuple(_pairs(samples, header["sides"])), images=images)
    credited = (
        CreditedSample(sample=sample, positive=positive, negative=negative, weights=weights)
        for sample, positive, negative, weights in zip(samples, *(parts[name] for name in _CREDIT), strict=True)
    )
    return Parcel(batch=Batch(samples=tuple(credited)), pairs=(), images=images)


def _pack(
    samples: Sequence[Sample], blobs: BlobStore, *, more: Mapping[str, _Array], sides: Sequence[tuple[int, int]] | None
) -> bytes:
    different = dict.fromkeys(image for sample in samples for image in sample.images)
    held = {image: blobs.get(image) for image in different}
    header = {
        "lengths": [sample.token_ids.shape[0] for sample in samples],
        "shown": [sample.images for sample in samples],
        "images": [(image, len(data)) for image, data in held.items()],
        "sides": sides,
    }
    arrays = {name: np.concatenate([getattr(sample, name) for sample in samples]) for name in _SAMPLE}
    out = io.BytesIO()
    np.savez(
        out,
        allow_pickle=False,
        header=_bytes(json.dumps(header).encode()),
        images=_bytes(b"".join(held.values())),
        **arrays,
        **more,
    )
    return out.getvalue()


def _images(data: bytes, sizes: Sequence[tuple[str, int]]) -> Mapping[ImageId, bytes]:
    found: dict[ImageId, bytes] = {}
    at = 0
    for image, size in sizes:
        found[ImageId(image)] = data[at : at + size]
        at += size
    return found


def _pairs(samples: Sequence[Sample], sides: Sequence[tuple[int, int]]) -> list[Preference]:
    found: list[Preference] = []
    at = 0
    for chosen, rejected in sides:
        middle, end = at + chosen, at + chosen + rejected
        found.append(Preference(chosen=tuple(samples[at:middle]), rejected=tuple(samples[middle:end])))
        at = end
    return found


def _bytes(data: bytes) -> _Array:
    return np.frombuffer(data, np.uint8)
