"""Another trainer, in a worker process of the benchmark's virtual environment."""

import contextlib
import json
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Self, cast

from cairn.errors import SetupError

_ANSWER_SECONDS = 900.0
_END_SECONDS = 20.0


class TrlTrainer:
    """TRL's GRPOTrainer, which takes one optimiser step at a time on answers that it is given.

    Raises `SetupError` where its virtual environment lacks TRL, or a step fails.
    """

    def __init__(self, *, python: Path, model: Path, learning_rate: float, threads: int) -> None:
        """Load the model; computes in bfloat16 under autocast, with weights in float32."""
        self._process = subprocess.Popen(  # noqa: S603 - our own file, by the interpreter that was asked for
            [str(python), str(files("cairn.bench.workers").joinpath("trl_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._ask({"op": "load", "model": str(model), "learning_rate": learning_rate, "threads": threads})
        except BaseException:
            self.close()
            raise

    def step(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], advantages: Sequence[float]
    ) -> float:
        """Seconds of one step. All prompts are of one length, and all answers."""
        answer = self._ask({"op": "step", "prompts": prompts, "answers": answers, "advantages": advantages})
        return float(cast("float", answer["seconds"]))

    def close(self) -> None:
        """End the worker. Idempotent."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it is gone, and the last request was not read
                self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: Mapping[str, object]) -> Mapping[str, object]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise SetupError("TRL's worker has no pipes")
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise SetupError(f"TRL's worker is gone: {error}") from error
        with selectors.DefaultSelector() as ready:
            ready.register(stdout, selectors.EVENT_READ)
            if not ready.select(_ANSWER_SECONDS):
                raise SetupError(f"waited {_ANSWER_SECONDS:.0f} s for TRL to answer {request['op']!r}")
        line = stdout.readline()
        if not line:
            raise SetupError(f"TRL's worker ended at {request['op']!r}: try `scripts/bench-setup --trl`")
        answer = cast("Mapping[str, object]", json.loads(line))
        if "error" in answer:
            raise SetupError(f"TRL: {answer['error']}")
        return answer
