"""The table `[reward]`: the terms of a composed reward, a closed union whose members have keys of their own."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from cairn.config.table import Table

Shape: TypeAlias = Literal["think_answer", "answer", "parsable"]
"""`think_answer`: a thought and an action, each in its tags; `answer`: the action alone (NOTHINK); `parsable`: whatever
an action can be read from."""


class _Term(Table):
    """What every term has."""

    name: str = ""
    """In the store and in events; default: its kind."""
    weight: float = 1.0
    needs: list[str] = Field(default_factory=list)
    """Earlier terms that must have a value of 1; else this one is worth nothing."""
    unless: list[str] = Field(default_factory=list)
    """Earlier terms of which none may have a value of 1; else this one is worth nothing."""


class _Place(_Term):
    place: Literal["inclusive", "strict", "near"] = "inclusive"
    """In the box of what the expert's action hit, with its edges or without them; or within `share` of its middle."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Of the screen; in the other rules for states where only the expert's point is known."""

    @model_validator(mode="after")
    def _has_share(self) -> Self:
        if self.place == "near" and self.share is None:
            raise ValueError('place = "near" needs a share of the screen, such as share = 0.14')
        return self


class FormatTerm(_Term):
    """1 where every answer has the shape."""

    kind: Literal["format"]
    shape: Shape = "think_answer"
    parses: bool = False
    """An action must be read from it, too."""


class FormatBalanceTerm(_Term):
    """2 x the share of well-formed answers - 1."""

    kind: Literal["format_balance"]
    shape: Shape = "parsable"


class FormatErrorTerm(_Term):
    """-1 where the trajectory ended in an answer without an action, else 0."""

    kind: Literal["format_error"]


class OverlongTerm(_Term):
    """0 down to -factor in the last tokens before the limit."""

    kind: Literal["overlong"]
    limit: int = Field(ge=1)
    buffer: int = Field(ge=1)
    factor: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.buffer > self.limit:
            raise ValueError("buffer must not be above limit")
        return self


class ActionTypeTerm(_Term):
    """1 where the action is of the expert's kind."""

    kind: Literal["action_type"]


class PointTerm(_Place):
    """1 where a click or drag hits what the expert's did, or another action is of the expert's kind."""

    kind: Literal["point"]


class BoxTerm(_Term):
    """Overlap of the answered box with the expert's; graded up to 0.7, or 1 from `least` on."""

    kind: Literal["box"]
    least: float | None = Field(default=None, gt=0, le=1)


class TextTerm(_Term):
    """F1 of the words; 1 from `least` on (`strict`: above it), or graded."""

    kind: Literal["text"]
    least: float | None = Field(default=0.5, ge=0, le=1)
    strict: bool = False
    graded: bool = False


class ParametersTerm(_Place):
    """1 where kind and every argument are right."""

    kind: Literal["parameters"]
    text: Literal["exact", "overlap"] = "exact"
    least: float = Field(default=0.5, ge=0, le=1)
    """Of `text = "overlap"`: the F1 of the words."""
    scroll_place: bool = False
    """Scrolling must also begin over what the expert scrolled."""


class SubGoalTerm(_Term):
    """A judge's mark for the agreement of the thought with the recorded next step."""

    kind: Literal["sub_goal"]


class ExpertMatchTerm(_Term):
    """1 where the answer is the expert's by the rules of `[adaptive]`: `tolerance`, `text`, `lenient`."""

    kind: Literal["expert_match"]


class SuccessTerm(_Term):
    """1 where the task is solved."""

    kind: Literal["success"]


class ProgressTerm(_Term):
    """MobileGym's shaped outcome."""

    kind: Literal["progress"]


class JudgeTerm(_Term):
    """A judge's mark for the whole episode; 1 from `least` on, or graded."""

    kind: Literal["judge"]
    least: float | None = Field(default=None, gt=0, le=1)


class LengthTerm(_Term):
    """DAST's length budget, over all siblings."""

    kind: Literal["length"]
    longest: Literal["group", "limit"] = "group"
    """What the budget reaches up to: the group's longest answer, or the most tokens that can be sampled."""


class ShortestPathTerm(_Term):
    """A success, less `alpha` x the share of its turns beyond the group's shortest one."""

    kind: Literal["shortest_path"]
    alpha: float = Field(gt=0, le=1)


TermTable: TypeAlias = (
    FormatTerm
    | FormatBalanceTerm
    | FormatErrorTerm
    | OverlongTerm
    | ActionTypeTerm
    | PointTerm
    | BoxTerm
    | TextTerm
    | ParametersTerm
    | SubGoalTerm
    | ExpertMatchTerm
    | SuccessTerm
    | ProgressTerm
    | JudgeTerm
    | LengthTerm
    | ShortestPathTerm
)
"""One `[[reward.terms]]`."""

TERM_KEYS: Mapping[str, tuple[str, ...]] = {
    str(get_args(table.model_fields["kind"].annotation)[0]): tuple(table.model_fields) for table in get_args(TermTable)
}
"""The keys of each kind of term, for messages about wrong ones."""

RECORDED = ("action_type", "point", "box", "text", "parameters", "sub_goal", "expert_match")
"""Kinds of terms that are about one answer at a recorded state."""
LIVED = ("success", "progress", "judge", "shortest_path")
"""Kinds of terms that are about what a live session came to."""
OVER_GROUPS = ("length", "shortest_path")
"""Kinds of terms that need all siblings."""

Preset: TypeAlias = Literal[
    "none",
    "ui-r1",
    "ui-r1-e",
    "nothink",
    "gui-r1",
    "gui-r1-paper",
    "infigui-r1",
    "mobile-r1-action",
    "mobile-r1-task",
    "mobile-r1-task-checked",
    "webagent-r1",
    "arpo",
    "arpo-code",
    "mobilegym",
]


class JudgeOptions(Table):
    """Who judges: a model behind an OpenAI-compatible URL, or `offline` a count of common words."""

    url: str | None = None
    """Up to and with /v1."""
    model: str = ""
    """As the endpoint calls it."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable with the endpoint's key; none is sent where it is unset."""
    seconds: float = Field(default=30.0, gt=0, le=100)
    """For one answer."""
    offline: bool = False
    task_prompt: str | None = None
    """A TOML file in the place of the shipped prompt about whole episodes."""
    sub_goal_prompt: str | None = None
    """The same for thoughts about the next step."""

    @property
    def there(self) -> bool:
        """Whether anybody can be asked."""
        return self.offline or self.url is not None

    @model_validator(mode="after")
    def _askable(self) -> Self:
        if self.offline and self.url is not None:
            raise ValueError("either offline = true or a url, not both")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f'url must begin with http:// or https://, got "{self.url}"')
        if self.url is not None and not self.model:
            raise ValueError("url needs model, as the endpoint calls it")
        return self


class RewardOptions(Table):
    """What is learned from: a preset's terms, or one's own. With neither, success, or agreement with the expert."""

    preset: Preset = "none"
    without: list[str] = Field(default_factory=list)
    """Terms of the preset that are left out."""
    terms: list[Annotated[TermTable, Field(discriminator="kind")]] = Field(default_factory=list)
    correct: list[str] = Field(default_factory=list)
    """Terms that must all have a value of 1 where an answer at a recorded state counts as right; none: it must be the
    expert's by the rules of `[adaptive]`. Presets have their own."""
    judge: JudgeOptions = Field(default_factory=JudgeOptions)

    def check(self) -> None:
        """Raise a `ValueError` where keys do not go together."""
        if self.preset != "none" and (self.terms or self.correct):
            raise ValueError('reward.terms and reward.correct are for reward.preset = "none"')
        if self.without and self.preset == "none":
            raise ValueError("reward.without leaves out terms of a reward.preset, and there is none")
        if self.correct and not self.terms:
            raise ValueError("reward.correct names terms, and there are no reward.terms")


def name_of(term: TermTable) -> str:
    """What the term is called in the store."""
    return term.name or term.kind


def check_terms(terms: list[TermTable], correct: list[str]) -> None:
    """Raise a `ValueError` where names are unknown, or come twice or too early, or nothing says what was done right."""
    names = [name_of(term) for term in terms]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"two reward terms are called {twice[0]!r}: give one of them another name")
    if not any(term.kind in (*RECORDED, *LIVED) for term in terms):
        raise ValueError(f"no reward term says what was done right: add one of {', '.join((*RECORDED, *LIVED))}")
    own = [name_of(term) for term in terms if term.kind not in OVER_GROUPS]
    for wrong in _unknown(terms, own):
        raise ValueError(wrong)
    for name in correct:
        if name not in own:
            raise ValueError(f"reward.correct names {name!r}, which is no term of a single trajectory")


def _unknown(terms: list[TermTable], own: list[str]) -> Iterator[str]:
    for place, term in enumerate(terms):
        before = own if term.kind in OVER_GROUPS else [name_of(one) for one in terms[:place]]
        for name in (*term.needs, *term.unless):
            if name not in before or name not in own:
                yield f"the reward term {name_of(term)!r} needs {name!r}, which is no term before it"
