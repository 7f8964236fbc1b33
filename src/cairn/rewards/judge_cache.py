"""A judge that is asked each question once, in this process and in later ones."""

import asyncio
import hashlib
import json
from pathlib import Path
from weakref import WeakValueDictionary

from pydantic import BaseModel, Field, ValidationError

from cairn.errors import SetupError
from cairn.ports import Judge, Opinion, Question


class _Kept(BaseModel):
    key: str
    score: float = Field(ge=0, le=1)
    reason: str


class CachedJudge:
    """Implements `Judge`: opinions are kept in a file, one line of JSON each, under the hash of judge and question.

    Siblings that ask the same at the same time wait for one answer. A failure is not kept. A line that a killed process
    left unfinished is passed over.
    """

    def __init__(self, judge: Judge, *, path: Path) -> None:
        """Read what an earlier process kept; the file comes to be with the first opinion."""
        self._judge = judge
        self._path = path
        self._known = _read(path)
        self._gap = "\n" if path.exists() and not path.read_bytes().endswith(b"\n") else ""
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def name(self) -> str:
        return self._judge.name

    async def judge(self, question: Question) -> Opinion:
        key = key_of(self._judge.name, question)
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            if key not in self._known:
                opinion = await self._judge.judge(question)
                self._keep(key, opinion)
                self._known[key] = opinion
        return self._known[key]

    def _keep(self, key: str, opinion: Opinion) -> None:
        line = _Kept(key=key, score=opinion.score, reason=opinion.reason).model_dump_json()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{self._gap}{line}\n")
            self._gap = ""
        except OSError as error:
            raise SetupError(f"{self._path}: {error.strerror or error}: make it writable, or free space") from error


def key_of(judge: str, question: Question) -> str:
    """The hash of everything that an opinion depends on."""
    asked = [judge, question.about, question.goal, question.said, question.wanted]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _read(path: Path) -> dict[str, Opinion]:
    known: dict[str, Opinion] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                kept = _Kept.model_validate_json(line)
            except ValidationError:
                continue
            known[kept.key] = Opinion(score=kept.score, reason=kept.reason)
    return known
