"""Sets of recorded states in a recipe: where they come from, and what is made of them before anything is learned."""

from typing import Literal

from pydantic import Field

from cairn.config.table import Table


class TeacherTable(Table):
    """Who thinks aloud at the training states, so that the policy imitates the thoughts too (InfiGUI-R1)."""

    url: str | None = None
    """Of a chat endpoint, up to and with /v1."""
    model: str = ""
    """As the endpoint calls it."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable with the endpoint's key; none is sent where it is unset."""
    prompt: str | None = None
    """A TOML file in the place of the shipped prompt."""
    offline: bool = False
    """Ask nobody: a double reads the recorded step aloud. For trying a recipe."""
    wordy: bool = False
    """Of the double: it thinks at different lengths, which then can be learned to be shorter (UI-R1-E)."""

    @property
    def there(self) -> bool:
        """Whether anybody is asked."""
        return self.offline or self.url is not None

    def check(self) -> None:
        """Raise a `ValueError` where keys do not go together."""
        if self.wordy and not self.offline:
            raise ValueError("recorded.teacher.wordy is of recorded.teacher.offline = true")
        if self.offline and self.url is not None:
            raise ValueError("recorded.teacher: choose either a url or offline = true")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f'recorded.teacher.url must begin with http:// or https://, got "{self.url}"')
        if self.url is not None and not self.model:
            raise ValueError("recorded.teacher.url needs recorded.teacher.model, as the endpoint calls it")


class RecoveryTable(Table):
    """Scenarios of the policy's own mistakes and the way back from them, added to the states (InfiGUI-R1)."""

    answers: int = Field(default=0, ge=0)
    """Sampled at each state to find mistakes; 0: no scenarios."""
    per_state: int = Field(default=2, ge=1)
    """Different mistakes that are made at each state at most."""
    escapes: int = Field(default=8, ge=1)
    """Ways back that are tried for each mistake at most."""
    store: Literal["auto", "criu", "podman", "native", "replay"] = "auto"
    """How the states are saved that mistakes are made at."""


class RecordedOptions(Table):
    """States that are only known from a record: what is imitated, and learned at with `scheduler = "recorded"`."""

    path: str | None = None
    """The directory of a set, as `cairn data` makes it. Its training states are imitated in the place of
    demonstrations; its held-out ones are what a run without an environment is evaluated on."""
    templates: list[str] = Field(default_factory=list)
    """Only states of these, as `cairn data show` lists them; none: all of them."""
    instruction: Literal["goal", "sub_goal", "both"] = "goal"
    """What the policy is told: the whole goal, that of the step alone where it is known, or both."""
    per_template: int = Field(default=0, ge=0)
    """In the place of a path: training tasks of each of `environment.templates` that experts play before anything is
    learned, into a set in the run's directory."""
    held_out: float = Field(default=0.25, gt=0, lt=1)
    """Of `per_template`: the share of tasks that is held out."""
    select: Literal["none", "ui-r1", "gui-r1", "bottleneck"] = "none"
    """Of the training states, only those that are worth learning at by what the run's first policy answers there, as
    `cairn data select` chooses them."""
    teacher: TeacherTable = Field(default_factory=TeacherTable)
    recovery: RecoveryTable = Field(default_factory=RecoveryTable)

    @property
    def collects(self) -> bool:
        """Whether the run makes its set itself."""
        return self.path is None and self.per_template > 0

    @property
    def derives(self) -> bool:
        """Whether the run makes another set of the one that it begins with."""
        return self.teacher.there or self.recovery.answers > 0 or self.select != "none"

    @property
    def there(self) -> bool:
        """Whether the run has a set, or makes one."""
        return self.path is not None or self.collects

    def check(self) -> None:
        """Raise a `ValueError` where keys do not go together."""
        if self.path is not None and self.per_template:
            raise ValueError("recorded.path names a set that there is: recorded.per_template, for a new one, must be 0")
        self.teacher.check()
        if self.recovery.answers == 1:
            raise ValueError("recorded.recovery.answers must be 0 or at least 2: some right, some wrong")
        if self.derives and not self.there:
            raise ValueError("recorded.teacher, recovery and select need recorded.path or recorded.per_template")
