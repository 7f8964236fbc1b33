"""Keys of the learner: what of a model is trained, in how much memory, and how its weights move."""

from typing import Literal

from pydantic import Field

from cairn.config.table import Table


class OptimizerOptions(Table):
    """AdamW with linear warm-up, then a constant or a falling rate."""

    learning_rate: float = Field(default=1e-4, gt=0)
    warmup_steps: int = Field(default=10, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Of the rate after the warm-up. What falls needs the phase's `updates`, at the end of which it has fallen."""
    final_share: float = Field(default=0.1, ge=0, le=1)
    """Of the learning rate, which `linear` and `cosine` fall to. Whatever comes later stays there."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    state: Literal["float32", "bfloat16", "8bit"] = "float32"
    """How AdamW's two moments are kept: in 8, 4 or 2 bytes for each trained weight."""

    def check(self, phase: str, *, updates: int | None) -> None:
        """Raise a `ValueError` where the rate falls and nobody knows until when."""
        if self.schedule != "constant" and updates is None:
            raise ValueError(
                f'{phase}.optimizer.schedule = "{self.schedule}" needs {phase}.updates: minutes alone do not say how '
                "many there will be"
            )


class LearnerOptions(Table):
    """What fits a large model onto one device; every key belongs to the table `policy`."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model is computed; `auto`: on a GPU where torch finds one."""
    gradient_checkpointing: bool = False
    """Compute each layer again in the backward pass, and keep its input alone meanwhile: a third more to compute."""
    lora_rank: int = Field(default=0, ge=0)
    """Train low-rank adapters of this rank (LoRA, arXiv:2106.09685) and leave the model as it is; 0: all of it."""
    lora_alpha: float | None = Field(default=None, gt=0)
    """What adapters add is multiplied with `lora_alpha` / `lora_rank`; default: twice the rank."""
    lora_targets: list[str] = Field(default_factory=list)
    """Which linear layers of the language model have adapters, by the ends of their names (`q_proj`); none: all."""
    lora_base: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the frozen weights beside adapters, which stay float32; `auto`: as the engine computes. In the engine's own
    type both share one copy."""

    def check_learner(self, *, small: bool) -> None:
        """Raise a `ValueError` where keys do not go together; `small`: the policy is not a transformer of a hub."""
        if small and (self.lora_rank or self.gradient_checkpointing):
            key = "lora_rank" if self.lora_rank else "gradient_checkpointing"
            raise ValueError(f"policy.{key} is for language models: the pixel policy is small enough without")
        for key, wanted in (
            ("lora_alpha", self.lora_alpha is not None),
            ("lora_targets", bool(self.lora_targets)),
            ("lora_base", self.lora_base != "auto"),
        ):
            if wanted and not self.lora_rank:
                raise ValueError(f"policy.{key} needs policy.lora_rank, such as 16")
