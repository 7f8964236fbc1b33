"""Identifiers. Distinct types, so that the checker refuses to mix them."""

from typing import NewType

TemplateId = NewType("TemplateId", str)  # "miniwob/click-test": a task without its seed
TaskId = NewType("TaskId", str)  # "miniwob/click-test#17": one instance
SnapshotId = NewType("SnapshotId", str)
GroupId = NewType("GroupId", str)
PolicyVersion = NewType("PolicyVersion", int)
ImageId = NewType("ImageId", str)  # sha256 of the encoded bytes, hex
ElementId = NewType("ElementId", int)  # short number of an element in one observation
