"""TRL's GRPOTrainer behind a pipe: one JSON request a line in, one JSON answer a line out.

Runs in the benchmark's virtual environment, by path, and so imports nothing of Cairn.

    {"op": "load", "model", "learning_rate", "threads"}                  -> {}
    {"op": "step", "prompts": [[id]], "answers": [[id]], "advantages"}   -> {"seconds", "loss"}

A step is the trainer's own loss, its gradient, clipping and its optimizer, on answers that are given: nothing is
generated.
"""

import ctypes
import json
import os
import sys
import tempfile
import time


class Worker:
    """At most one trainer."""

    def __init__(self) -> None:
        self._trainer = None
        self._optimizer = None

    def load(self, model: str, learning_rate: float, threads: int) -> dict:
        """Make the trainer: bfloat16 under autocast, weights in float32."""
        import torch
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        torch.set_num_threads(threads)
        arguments = GRPOConfig(
            output_dir=tempfile.mkdtemp(prefix="trl-"),
            per_device_train_batch_size=8,
            num_generations=8,
            beta=0.0,
            loss_type="grpo",
            learning_rate=learning_rate,
            use_cpu=not torch.cuda.is_available(),
            bf16=True,
            gradient_checkpointing=False,
            report_to=[],
            logging_steps=10_000,
        )
        self._trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": "x"}] * 8),
        )
        self._trainer.model.train()
        self._trainer.current_gradient_accumulation_steps = 1
        self._optimizer = self._trainer.create_optimizer()
        return {}

    def step(self, prompts: list, answers: list, advantages: list) -> dict:
        """One step; all prompts are of one length, and all answers."""
        import torch

        inputs = {
            "prompt_ids": torch.tensor(prompts),
            "prompt_mask": torch.ones(len(prompts), len(prompts[0]), dtype=torch.long),
            "completion_ids": torch.tensor(answers),
            "completion_mask": torch.ones(len(answers), len(answers[0]), dtype=torch.long),
            "advantages": torch.tensor(advantages),
            "num_items_in_batch": torch.tensor(float(len(answers) * len(answers[0]))),
        }
        inputs = {name: value.to(self._trainer.model.device) for name, value in inputs.items()}
        begun = time.perf_counter()
        loss = self._trainer.compute_loss(self._trainer.model, inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._trainer.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        seconds = time.perf_counter() - begun
        told = float(loss.detach())
        del loss, inputs
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # the other side needs the room
        return {"seconds": seconds, "loss": told}


def main() -> None:
    """Answer until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        operation = request.pop("op")
        try:
            answer = worker.load(**request) if operation == "load" else worker.step(**request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side must hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
