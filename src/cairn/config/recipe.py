"""The run's configuration: one frozen tree, read from a TOML recipe."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self, cast

from pydantic import BaseModel, Field, ValidationError, model_validator

from cairn.config.consistency import check_estimation, check_starts, check_stored
from cairn.config.presets import resolved
from cairn.config.reachable import check_reachable
from cairn.config.recorded import RecordedOptions
from cairn.config.rewards import TERM_KEYS, JudgeOptions, RewardOptions
from cairn.config.stored import StoredOptions
from cairn.config.table import Table
from cairn.config.tables import (
    AdaptiveTable,
    DemonstrationOptions,
    EnvironmentOptions,
    EvaluationOptions,
    ImitationOptions,
    PolicyOptions,
    ReinforcementOptions,
    ReplayTable,
    RolloutOptions,
    SnapshotOptions,
    TrackOptions,
)
from cairn.config.trees import SMOKE, STAGES, Toml, read_tree, with_overrides
from cairn.errors import ConfigError


class RunConfig(Table):
    """Everything that a run depends on."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    environment: EnvironmentOptions = Field(default_factory=EnvironmentOptions)
    policy: PolicyOptions = Field(default_factory=PolicyOptions)
    demonstrations: DemonstrationOptions = Field(default_factory=DemonstrationOptions)
    imitation: ImitationOptions = Field(default_factory=ImitationOptions)
    reinforcement: ReinforcementOptions = Field(default_factory=ReinforcementOptions)
    reward: RewardOptions = Field(default_factory=RewardOptions)
    rollout: RolloutOptions = Field(default_factory=RolloutOptions)
    snapshots: SnapshotOptions = Field(default_factory=SnapshotOptions)
    recorded: RecordedOptions = Field(default_factory=RecordedOptions)
    stored: StoredOptions = Field(default_factory=StoredOptions)
    tracks: TrackOptions = Field(default_factory=TrackOptions)
    adaptive: AdaptiveTable = Field(default_factory=AdaptiveTable)
    replay: ReplayTable = Field(default_factory=ReplayTable)
    evaluation: EvaluationOptions = Field(default_factory=EvaluationOptions)
    checkpoint_every_updates: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """What no key can tell by itself."""
        twice = [name for name, count in Counter(self.environment.templates).items() if count > 1]
        if twice:
            raise ValueError(f"environment.templates names {twice[0]!r} more than once")
        imitates = bool(self.imitation.updates or self.imitation.minutes or self.reinforcement.rehearsal)
        if imitates and not self.demonstrations.per_template and not self.recorded.there:
            raise ValueError(
                "there is nothing to imitate: with demonstrations.per_template = 0 and without recorded.path, "
                "imitation.updates, imitation.minutes and reinforcement.rehearsal must be 0 or unset"
            )
        scheduler = self.reinforcement.scheduler
        if scheduler in {"tasks", "adaptive", "pivots", "progress"} and not self.tracks.per_template:
            raise ValueError(f'reinforcement.scheduler = "{scheduler}" needs tracks.per_template >= 1')
        if scheduler in {"adaptive", "progress"} and self.snapshots.store == "none":
            raise ValueError(f'reinforcement.scheduler = "{scheduler}" needs snapshots.store, such as "auto"')
        if self.adaptive.lenient and self.snapshots.store == "none":
            raise ValueError('adaptive.lenient needs snapshots.store, such as "auto"')
        check_starts(scheduler, self.tracks, self.adaptive, self.replay)
        check_stored(self.reinforcement, self.stored)
        if self.offline:
            self._check_offline()
        self.policy.check()
        self.imitation.optimizer.check("imitation", updates=self.imitation.updates)
        self.reinforcement.optimizer.check("reinforcement", updates=self.reinforcement.updates)
        self.demonstrations.check()
        self.reinforcement.check()
        self.recorded.check()
        self.evaluation.check()
        check_estimation(self.reinforcement)
        self.reward.check()
        terms, _ = resolved(self.reward)
        check_reachable(terms, self.reward, self.reinforcement, self.policy, self.rollout)
        return self

    @property
    def offline(self) -> bool:
        """Whether the run has recorded states in the place of an environment."""
        scheduler = self.reinforcement.scheduler
        return scheduler == "recorded" or (scheduler == "stored" and self.recorded.there)

    def _check_offline(self) -> None:
        if not self.recorded.there:
            raise ValueError(
                'reinforcement.scheduler = "recorded" needs recorded.path, a set that `cairn data` made, or '
                "recorded.per_template, tasks that experts play for one"
            )
        for unheard, wanted in (
            ("tracks.per_template = 0", self.tracks.per_template > 0),
            ('snapshots.store = "none"', self.snapshots.store != "none"),
            ("replay.capacity = 0", self.replay.capacity > 0),
            ("demonstrations.url unset", self.demonstrations.url is not None and not self.recorded.collects),
        ):
            if wanted:
                raise ValueError(
                    f'reinforcement.scheduler = "recorded" needs {unheard}: there is no environment to act in'
                )


def answering(config: RunConfig, path: Path) -> RunConfig:
    """The same policy at the recorded states of another set, without an environment."""
    recorded = config.recorded.model_copy(update={"path": str(path), "templates": []})
    learning = config.reinforcement.model_copy(update={"scheduler": "recorded"})
    return config.model_copy(update={"recorded": recorded, "reinforcement": learning})


def within(config: RunConfig, budgets: Sequence[int]) -> RunConfig:
    """The same, evaluated with these interaction budgets."""
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"budgets": list(budgets)})})


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a recipe; `overrides` are `table.key=value`, the value in TOML. Errors name the key and the nearest one.

    Of a recipe with stages, what they share; `cairn.config.stages` reads them all.
    """
    tree = with_overrides(read_tree(path), overrides)
    own = {key: value for key, value in tree.items() if key not in {STAGES, SMOKE}}
    return parse(own, origin=" ".join((str(path), *(f"--set {override}" for override in overrides))))


def parse(tree: dict[str, Toml], *, origin: str) -> RunConfig:
    """Validate a tree of TOML values."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(e["loc"], e["type"], e["msg"], e["input"]) for e in error.errors()]
        raise ConfigError(f"{origin}: " + "; ".join(lines)) from error


def judge_options(*, url: str | None, model: str, key_variable: str, offline: bool) -> JudgeOptions:
    """A judge that no recipe names; a `ConfigError` says what does not go together."""
    try:
        return JudgeOptions(url=url, model=model, key_variable=key_variable, offline=offline)
    except ValidationError as error:
        raise ConfigError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


def leaves(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Every key with its value in TOML; unset optional keys are left out."""
    yield from _walk(config.model_dump(exclude_none=True), "")


def to_toml(config: RunConfig) -> str:
    """The whole resolved configuration; `load` reads it back to an equal one."""
    lines: list[str] = []
    table = ""
    for key, value in sorted(leaves(config), key=lambda kv: (kv[0].rpartition(".")[0], kv[0])):
        parent, _, name = key.rpartition(".")
        if parent != table:
            table = parent
            lines += ["", f"[{parent}]"]
        lines.append(f"{name} = {value}")
    return "\n".join(lines).lstrip("\n") + "\n"


def known_keys() -> tuple[str, ...]:
    """Every key that a recipe may hold, dotted."""
    return tuple(_fields(RunConfig, ""))


def _fields(table: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, info in table.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _explain(place: tuple[int | str, ...], kind: str, message: str, given: object) -> str:
    key = ".".join(map(str, place))
    if key.startswith("reward.terms."):
        return _explain_term(place, kind, message, given)
    if kind != "extra_forbidden":
        message = message.removeprefix("Value error, ")
        return f"{key}: {message[0].lower()}{message[1:]}" if key else message
    tables = sorted({known.partition(".")[0] for known in known_keys()})
    near = difflib.get_close_matches(key, tables if "." not in key else known_keys(), n=1, cutoff=0.5)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _explain_term(place: tuple[int | str, ...], kind: str, message: str, given: object) -> str:
    """Of one of `[[reward.terms]]`, which are counted from 1: place[2] is its number, place[3] its kind."""
    which = f"reward.terms, term {int(place[2]) + 1}"
    if kind == "union_tag_not_found":
        return f"{which}: it has no kind; there are: {', '.join(TERM_KEYS)}"
    if kind == "union_tag_invalid":
        wrong = str(cast("dict[str, object]", given)["kind"]) if isinstance(given, dict) else str(given)
        near = difflib.get_close_matches(wrong, TERM_KEYS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(TERM_KEYS)}"
        return f"{which}: no kind of term is called {wrong!r}; {hint}"
    name, key = str(place[3]) if len(place) > 3 else "", ".".join(map(str, place[4:]))
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, TERM_KEYS[name], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(TERM_KEYS[name])}"
        return f"{which}: a {name} term has no key {key!r}; {hint}"
    said = message.removeprefix("Value error, ")
    return f"{which} ({name}){f', {key}' if key else ''}: {said[0].lower()}{said[1:]}"


def _walk(tree: dict[str, Toml], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _walk(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _toml(value)


def _toml(value: Toml) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case list():
            return "[" + ", ".join(_toml(v) for v in value) + "]"
        case dict():
            return "{" + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items()) + "}"
        case _:
            return str(value)
