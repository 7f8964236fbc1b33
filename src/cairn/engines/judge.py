"""A model behind an OpenAI-compatible URL as a judge. Its prompts are data: TOML files with named places."""

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cairn.codecs.thinking import Message
from cairn.engines.chat import ChatEndpoint
from cairn.errors import ConfigError, EngineError, VerifierError
from cairn.ports import Asked, Opinion, Question

_PLACE = re.compile(r"\{(goal|said|wanted)\}")
_TRIES = 2  # of a reply that cannot be read


class JudgePrompt(BaseModel):
    """How a question is put, and what the highest mark is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str = Field(min_length=1)
    user: str = Field(min_length=1)
    best: float = Field(gt=0, allow_inf_nan=False)

    def asked(self, question: Question) -> tuple[Message, Message]:
        """The messages; a place inside a text that is filled in stays as it is."""
        texts = {"goal": question.goal, "said": question.said, "wanted": question.wanted}
        content = _PLACE.sub(lambda place: texts[place[1]], self.user)
        return Message(role="system", content=self.system.strip()), Message(role="user", content=content.strip())


def load_prompt(about: Asked, path: Path | None = None) -> JudgePrompt:
    """The shipped prompt, or that in the file `path`. A `ConfigError` says what is wrong with it."""
    source = path or Path(str(files("cairn.engines"))) / "prompts" / f"{about}.toml"
    try:
        prompt = JudgePrompt.model_validate(tomllib.loads(source.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"the judge's prompt {source}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the judge's prompt {source} is not TOML: {error}") from error
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"the judge's prompt {source}: {key}: {wrong['msg'].lower()}") from error
    if "{said}" not in prompt.user:
        raise ConfigError(f"the judge's prompt {source}: user has no place {{said}} for what is to be judged")
    return prompt


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
