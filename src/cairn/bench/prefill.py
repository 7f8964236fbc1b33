"""What it saves that siblings' prompts are read once: the same answers, with prompts that repeat and that do not."""

import asyncio
import io
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cairn.data.ids import ImageId, PolicyVersion
from cairn.data.trajectory import Prompt
from cairn.ports import BlobStore, Engine, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Answers per second with `siblings` at each prompt; medians over the repetitions."""

    prompts: int
    siblings: int
    shared: float
    unshared: float
    speedup: float  # median of the ratios within a repetition
    low: float
    high: float


async def measure_prefill(
    engine: Engine, prompts: Sequence[Prompt], *, blobs: BlobStore, sampling: Sampling, siblings: int, repetitions: int
) -> Prefill:
    """Ask for every prompt `siblings` times at once: alike, and made different without any difference in cost."""
    alike = [prompt for prompt in prompts for _ in range(siblings)]
    apart = [different(prompt, number, blobs=blobs) for prompt in prompts for number in range(siblings)]
    for batch in (alike, apart):
        await _answers_per_second(engine, batch, sampling)  # warms up, and decodes the pictures
    pairs = [
        (await _answers_per_second(engine, alike, sampling), await _answers_per_second(engine, apart, sampling))
        for _ in range(repetitions)
    ]
    ratios = [shared / unshared for shared, unshared in pairs]
    return Prefill(
        prompts=len(prompts),
        siblings=siblings,
        shared=statistics.median(shared for shared, _ in pairs),
        unshared=statistics.median(unshared for _, unshared in pairs),
        speedup=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
    )


def different(prompt: Prompt, number: int, *, blobs: BlobStore) -> Prompt:
    """The prompt again, as long and as costly, but told apart for each `number`; 0 is the prompt itself."""
    if number == 0:
        return prompt
    if prompt.images:
        return replace(prompt, images=(_same_picture(prompt.images[0], number, blobs=blobs), *prompt.images[1:]))
    ids = prompt.token_ids.copy()
    middle = len(ids) // 2
    ids[middle] = (ids[middle] + number) % (int(ids.max()) + 1)
    return Prompt(token_ids=ids.astype(np.int32), images=())


def _same_picture(image: ImageId, number: int, *, blobs: BlobStore) -> ImageId:
    """The same pixels under another hash."""
    noted = PngInfo()
    noted.add_text("number", str(number))
    packed = io.BytesIO()
    Image.open(io.BytesIO(blobs.get(image))).save(packed, "PNG", pnginfo=noted)
    return blobs.put(packed.getvalue())


async def _answers_per_second(engine: Engine, prompts: Sequence[Prompt], sampling: Sampling) -> float:
    await engine.update(PolicyVersion(0))  # what it remembers of prompts is void then
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for seed, prompt in enumerate(prompts):
            tasks.create_task(engine.generate(prompt, sampling=sampling, seed=seed))
    return len(prompts) / (time.perf_counter() - began)
