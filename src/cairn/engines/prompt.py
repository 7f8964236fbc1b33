"""Prompts that are data: TOML files with the texts of two messages, in which names in braces are places."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cairn.codecs.thinking import Message
from cairn.errors import ConfigError


class Prompt(BaseModel):
    """What a model behind a URL is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str = Field(min_length=1)
    user: str = Field(min_length=1)

    def filled(self, texts: Mapping[str, str]) -> tuple[Message, Message]:
        """The messages, with a text in each place. A place inside a text that is filled in stays as it is."""
        places = re.compile(r"\{(" + "|".join(map(re.escape, texts)) + r")\}")
        content = places.sub(lambda place: texts[place[1]], self.user)
        return Message(role="system", content=self.system.strip()), Message(role="user", content=content.strip())


AnyPrompt = TypeVar("AnyPrompt", bound=Prompt)


def read_prompt(kind: type[AnyPrompt], path: Path, *, whose: str, place: str, what: str) -> AnyPrompt:
    """The prompt in a file; a `ConfigError` says what is wrong with it, as that it has no `place` for `what`."""
    told = f"the {whose}'s prompt {path}"
    try:
        prompt = kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{told}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{told} is not TOML: {error}") from error
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{told}: {key}: {wrong['msg'].lower()}") from error
    if f"{{{place}}}" not in prompt.user:
        raise ConfigError(f"{told}: user has no place {{{place}}} for {what}")
    return prompt


def shipped_prompt(name: str) -> Path:
    """The file of a prompt that comes with Cairn."""
    return Path(str(files("cairn.engines"))) / "prompts" / f"{name}.toml"
