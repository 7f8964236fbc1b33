"""Sets that a run makes of the one that it begins with: a teacher's thoughts, recovery scenarios, a selection."""

from collections.abc import Sequence
from pathlib import Path

from cairn.app.distillation import TeacherOptions, build_teacher, distil
from cairn.app.recorded import DERIVED
from cairn.app.recovery import RecoverRequest, recover
from cairn.app.selection import Rule, SelectRequest, select
from cairn.config.recipe import RunConfig
from cairn.errors import ConfigError
from cairn.loop.events import notice
from cairn.ports import EventSink
from cairn.store.events import FanOut
from cairn.store.recorded import holds_set


def check_derivable(config: RunConfig, *, first: bool) -> None:
    """Raise a `ConfigError` where there is no policy that could be asked; `first`: no stage comes before."""
    if not first or config.policy.start is not None:
        return
    if config.recorded.recovery.answers:
        raise ConfigError(
            "recorded.recovery needs a policy that makes mistakes: give policy.start, or let a stage come before"
        )
    if config.recorded.select != "none":
        raise ConfigError("recorded.select needs a policy to ask: give policy.start, or let a stage come before")


async def derive(config: RunConfig, *, base: Path, folder: Path, sinks: Sequence[EventSink] = ()) -> None:
    """Make what the recipe asks for, in the run's folder; what is there already is kept."""
    options, events = config.recorded, FanOut(list(sinks))
    if not options.derives or holds_set(folder / DERIVED):
        return
    steps = [
        (name, make)
        for name, make, wanted in (
            ("thoughts", _distil, options.teacher.there),
            ("recovery", _recover, options.recovery.answers > 0),
            ("selected", _select, options.select != "none"),
        )
        if wanted
    ]
    for name, make in steps:
        out = folder / (DERIVED if name == steps[-1][0] else name)
        if not holds_set(out):
            await make(config, base, out, events)
        base = out


async def _distil(config: RunConfig, base: Path, out: Path, events: EventSink) -> None:
    options = config.recorded.teacher
    who = TeacherOptions(
        url=options.url,
        model=options.model,
        key_variable=options.key_variable,
        prompt=None if options.prompt is None else Path(options.prompt),
        wordy=options.wordy,
    )
    made = await distil(base, out, teacher=build_teacher(who))
    dropped = "".join(f", {reason.replace('_', ' ')} {count}" for reason, count in made.dropped)
    events.emit(notice(f"the teacher was right at {made.kept} of {made.asked} states{dropped}"))


async def _select(config: RunConfig, base: Path, out: Path, events: EventSink) -> None:
    check_derivable(config, first=True)
    request = SelectRequest(
        folder=base,
        rule=Rule(config.recorded.select),
        config=config,
        saved=Path(config.policy.start or ""),
        out=out,
    )
    made = await select(request)
    events.emit(
        notice(f"{made.kept} of {made.asked} states are kept; {100 * made.right:.0f} % of the answers there were right")
    )


async def _recover(config: RunConfig, base: Path, out: Path, events: EventSink) -> None:
    options = config.recorded.recovery
    check_derivable(config, first=True)
    request = RecoverRequest(
        folder=base,
        config=config,
        saved=Path(config.policy.start or ""),
        out=out,
        answers=options.answers,
        per_state=options.per_state,
        escapes=options.escapes,
        store=options.store,
    )
    made = await recover(request)
    rejected = "".join(f", {reason.replace('_', ' ')} {count}" for reason, count in made.rejected)
    events.emit(
        notice(
            f"the policy hesitates at {made.hesitant} of {made.asked} states; of {made.mistakes} mistakes "
            f"{made.scenarios} can be undone, {made.held_out} of them held out{rejected}"
        )
    )
    if not made.scenarios:
        events.emit(notice("there is no recovery scenario: sample more answers, or imitate less before"))
