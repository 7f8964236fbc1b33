"""A model behind an OpenAI-compatible URL as a judge. Its prompts are data: TOML files with named places."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError, field_validator

from cairn.codecs.thinking import Message
from cairn.engines.chat import ChatEndpoint
from cairn.engines.prompt import Prompt, read_prompt, shipped_prompt
from cairn.errors import EngineError, VerifierError
from cairn.ports import Asked, Opinion, Question

_TRIES = 2  # of a reply that cannot be read


class JudgePrompt(Prompt):
    """How a question is put, and what the highest mark is."""

    best: float = Field(gt=0, allow_inf_nan=False)

    def asked(self, question: Question) -> tuple[Message, Message]:
        """The messages."""
        return self.filled({"goal": question.goal, "said": question.said, "wanted": question.wanted})


def load_prompt(about: Asked, path: Path | None = None) -> JudgePrompt:
    """The shipped prompt, or that in the file `path`. A `ConfigError` says what is wrong with it."""
    source = path or shipped_prompt(about)
    return read_prompt(JudgePrompt, source, whose="judge", place="said", what="what is to be judged")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatJudge:
    """Implements `Judge`. What cannot be read is asked for once more; then it is a failure, not a mark."""

    endpoint: ChatEndpoint
    task: JudgePrompt
    sub_goal: JudgePrompt

    @property
    def name(self) -> str:
        prompts = (self.task.model_dump_json(), self.sub_goal.model_dump_json())
        return f"{self.endpoint.model} {hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]}"

    async def judge(self, question: Question) -> Opinion:
        prompt = self.task if question.about is Asked.TASK else self.sub_goal
        said = ""
        for _ in range(_TRIES):
            try:
                said = await self.endpoint.say(prompt.asked(question))
            except EngineError as error:
                raise VerifierError(f"the judge {self.endpoint.model}: {error}") from error
            opinion = read_opinion(said, best=prompt.best)
            if opinion is not None:
                return opinion
        raise VerifierError(f"the judge {self.endpoint.model} gave no mark from 0 to {prompt.best:g}: {said[:200]!r}")


class _Said(BaseModel):
    score: float = Field(allow_inf_nan=False)
    reason: str = ""

    @field_validator("score", mode="before")
    @classmethod
    def _a_number(cls, given: object) -> object:
        """Pydantic would take `true` for 1, which of marks up to 10 is nearly the worst."""
        if isinstance(given, bool):
            raise ValueError("a mark is a number")  # noqa: TRY004  what pydantic tells apart
        return given


def read_opinion(said: str, *, best: float) -> Opinion | None:
    """The last JSON object in `said` that holds a score from 0 to `best`, as a share of it; None where none does."""
    for found in reversed(list(re.finditer(r"\{[^{}]*\}", said, re.DOTALL))):
        try:
            told = _Said.model_validate_json(found[0])
        except ValidationError:
            continue
        if 0 <= told.score <= best:
            return Opinion(score=told.score / best, reason=told.reason)
    return None
