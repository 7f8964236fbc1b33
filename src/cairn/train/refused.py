"""Batches that an update refused, kept for whoever looks into it: tensors and JSON, never code.

A file holds, for all of its samples one after another, what each token was and was worth; in its header stand why it
was refused, the learner's version, and of each sample its length and the hashes of its images in the run's `blobs`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from cairn.data.sample import CreditedSample


def keep_refused(folder: Path, samples: Sequence[CreditedSample], *, why: str, version: int) -> Path:
    """Write the samples to a file of their own in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"update-{version}.safetensors"
    every = [one.sample for one in samples]
    tensors = {
        "token_ids": [one.token_ids for one in every],
        "sampled": [one.loss_mask.astype(np.uint8) for one in every],
        "logprobs": [one.logprobs for one in every],
        "versions": [one.versions for one in every],
        "positive": [one.positive for one in samples],
        "negative": [one.negative for one in samples],
        "weights": [one.weights for one in samples],
    }
    if all(one.critic is not None for one in samples):
        tensors["values"] = [one.critic.values for one in samples if one.critic is not None]
        tensors["returns"] = [one.critic.returns for one in samples if one.critic is not None]
    told = [{"tokens": int(one.token_ids.shape[0]), "images": list(one.images)} for one in every]
    header = {"why": why, "version": str(version), "samples": json.dumps(told)}
    save_file({name: np.concatenate(parts) for name, parts in tensors.items()}, path, metadata=header)
    return path
