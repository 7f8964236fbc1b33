"""Whether a state that came back is the one that was saved."""

import io
from dataclasses import fields

from PIL import Image, ImageChops

from cairn.data.ids import ImageId
from cairn.data.observation import Observation
from cairn.ports import BlobStore


def unlikeness(saved: Observation, seen: Observation, *, blobs: BlobStore | None, tolerance: float) -> str:
    """What differs between the two, in words; empty where nothing that matters does.

    The structured states must be equal; the pictures may differ in a share `tolerance` of their pixels.
    """
    if saved.digest != seen.digest:
        return f"its structure differs ({_first_difference(saved, seen)})"
    if saved.image == seen.image:
        return ""
    if saved.image is None or seen.image is None or blobs is None:
        return "one of the two has no picture"
    share = _differing(blobs, saved.image, seen.image)
    return "" if share <= tolerance else f"its picture differs in {share:.1%} of the pixels"


def _first_difference(saved: Observation, seen: Observation) -> str:
    for before, after in zip(saved.elements, seen.elements, strict=False):
        if (before.role, before.label) != (after.role, after.label):
            return f"element {before.id} was {before.role} {before.label!r}, and is {after.role} {after.label!r}"
        if before != after:
            names = [
                field.name for field in fields(before) if getattr(before, field.name) != getattr(after, field.name)
            ]
            return f"element {before.id}, {before.role} {before.label!r}, differs in its {' and '.join(names)}"
    if len(saved.elements) != len(seen.elements):
        return f"{len(saved.elements)} elements then, {len(seen.elements)} now"
    return "the elements are equal"


def _differing(blobs: BlobStore, one: ImageId, other: ImageId) -> float:
    with Image.open(io.BytesIO(blobs.get(one))) as first, Image.open(io.BytesIO(blobs.get(other))) as second:
        if first.size != second.size:
            return 1.0
        bands = ImageChops.difference(first.convert("RGB"), second.convert("RGB")).split()
    largest = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    changed = largest.point([0] + [255] * 255)
    return changed.histogram()[255] / (changed.width * changed.height)
