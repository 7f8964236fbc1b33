"""Recorded states as one policy meets them: chosen, told as the recipe says, and in actions that it can say."""

import difflib
import io
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Never, overload

from PIL import Image

from cairn.config.recipe import RunConfig
from cairn.data.ids import ImageId, TemplateId
from cairn.data.pixel_vocabulary import Crop
from cairn.data.recorded import PREFIX, Instruction, RecordedState, recorded_task, told
from cairn.data.task import Split, Template
from cairn.errors import ConfigError, StoreError
from cairn.ports import Codec
from cairn.store.recorded import RecordedSet, States, holds_set

RECORDED = "recorded"
"""The folder of the set that a run makes for itself, in its directory or in that of all its stages."""


DERIVED = "derived"
"""The folder, in a run's directory, of the set that it makes of the one that it begins with."""


class PreparedStates(Sequence[RecordedState]):
    """States as the recipe tells of them; of an expert's action that is more than one of the codec's, the first."""

    def __init__(self, states: Sequence[RecordedState], *, codec: Codec, instruction: Instruction) -> None:
        self._states = states
        self._codec = codec
        self._instruction = instruction

    def __len__(self) -> int:
        return len(self._states)

    @overload
    def __getitem__(self, index: int) -> RecordedState: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordedState]: ...

    def __getitem__(self, index: int | slice) -> RecordedState | Sequence[RecordedState]:
        if isinstance(index, slice):
            return PreparedStates(self._states[index], codec=self._codec, instruction=self._instruction)
        state = self._states[index]
        start = told(state.start, self._instruction)
        expert = self._codec.primitive(start.expert, start.observation)
        return replace(state, start=replace(start, expert=expert))


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnable:
    """Training states, without those at which the policy could never do what the expert did."""

    states: Sequence[RecordedState]
    places: tuple[int, ...]  # of the states among all training states of the chosen templates
    left_out: tuple[tuple[str, int], ...]  # kinds of expert's actions with their counts, the most frequent first

    def __str__(self) -> str:
        text = f"{len(self.states)} recorded states to learn from"
        if not self.left_out:
            return text
        kinds = ", ".join(f"{kind}: {count}" for kind, count in self.left_out)
        count = sum(count for _, count in self.left_out)
        return f"{text}; {count} are left out, for the policy cannot say what was done there ({kinds})"


class Recording:
    """A set of recorded states and the policy that learns from them."""

    def __init__(self, states: RecordedSet, *, codec: Codec, config: RunConfig) -> None:
        """Raises `ConfigError` where the set lacks what the recipe names."""
        options = config.recorded
        self._set = states
        self._screen = Crop() if config.policy.model == "pixel" else None
        self._verbs_left_out = config.policy.verbs is not None
        self._codec = codec
        self._instruction = Instruction(options.instruction)
        self.templates = chosen_templates(states, options.templates)
        self._training = states.of(Split.TRAIN, templates=[template.id for template in self.templates])

    def of(self, split: Split, template: Template) -> Sequence[RecordedState]:
        """The states of one template on one side of the split, those included that the policy cannot get right."""
        return self._prepared(self._set.of(split, templates=[template.id]))

    def _prepared(self, states: States) -> PreparedStates:
        return PreparedStates(states, codec=self._codec, instruction=self._instruction)

    def learnable(self) -> "Learnable":
        """The training states at which the codec can say what the expert did; `ConfigError` where there are none.

        Reads every training state once.
        """
        require_states(self._set, Split.TRAIN, self.templates)
        prepared = self._prepared(self._training)
        kept: list[int] = []
        missing: Counter[str] = Counter()
        for place, state in enumerate(prepared):
            start = state.start
            if self._codec.answers(start.observation.instruction(start.goal), start.expert, start.observation):
                kept.append(place)
            else:
                missing[state.kind] += 1
        if not kept:
            self._refuse(prepared, missing)
        self._check_first(prepared[place] for place in kept)
        return Learnable(
            states=self._prepared(self._training.chosen(kept)),
            places=tuple(kept),
            left_out=tuple(missing.most_common()),
        )

    def _refuse(self, prepared: PreparedStates, missing: Counter[str]) -> Never:
        """Say why nothing can be said: what the policy does not see, where it is that, else what was done."""
        self._check_first(prepared)
        kinds = ", ".join(f"{kind}: {count}" for kind, count in missing.most_common())
        fix = "policy.codec" if self._screen is None else "policy.model"  # the pixel policy has one codec
        verbs = " more of policy.verbs," if self._verbs_left_out else ""
        raise ConfigError(
            f"{self._set.folder} has {len(prepared)} training states, and the policy can say what was done at none "
            f"of them ({kinds}): choose{verbs} another {fix}, or another set"
        )

    def _check_first(self, states: Iterable[RecordedState]) -> None:
        """Look at the first state of each template."""
        first: dict[TemplateId, RecordedState] = {}
        for state in states:
            first.setdefault(state.task.template.id, state)
        for state in first.values():
            self._check_seen(state)

    def _check_seen(self, state: RecordedState) -> None:
        """A policy that is shown neither elements nor a screenshot would learn to guess."""
        start = state.start
        prompt = self._codec.prompt(start.goal, start.history, start.observation)
        if not prompt.images and not start.observation.elements:
            raise ConfigError(
                f"{self._set.folder} knows screenshots without elements, and the policy reads elements alone: "
                "choose a policy that sees"
            )
        if self._screen is not None and start.observation.image is not None:
            self._check_screen(state, start.observation.image, self._screen)

    def _check_screen(self, state: RecordedState, image: ImageId, screen: Crop) -> None:
        """The pixel policy would see a corner of a larger screen, and be told places on all of it."""
        try:
            data = self._set.blobs.get(image)
        except KeyError:
            raise StoreError(f"{self._set.folder} lacks the screenshot {image} of {state.name}") from None
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
        if (width, height) != (screen.screen_width, screen.screen_height):
            raise ConfigError(
                f"screenshots of {state.task.template.id} have {width} x {height} pixels, and the pixel policy sees "
                f"screens of {screen.screen_width} x {screen.screen_height}: choose a policy for such screens"
            )


def chosen_templates(states: RecordedSet, wanted: Sequence[str]) -> tuple[Template, ...]:
    """The named ones in that order, all of them where none is named; names are without `recorded/`."""
    known = {name.removeprefix(PREFIX): name for name in states.templates}
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"`cairn data show {states.folder}` lists them."
            raise ConfigError(f"recorded.templates: {states.folder} has no states of {name!r}; {hint}")
    shape = recorded_task("any", 0).template
    return tuple(replace(shape, id=TemplateId(known[name])) for name in wanted or known)


def require_states(states: RecordedSet, split: Split, templates: Collection[Template] = ()) -> None:
    """Raise a `ConfigError` where there is no state on that side, of these templates or of all; reads no state."""
    if len(states.of(split, templates=[template.id for template in templates])):
        return
    names = [template.id.removeprefix(PREFIX) for template in templates]
    of = f" of {', '.join(names)}" if 0 < len(names) < len(states.templates) else ""
    if split is Split.HELD_OUT:
        raise ConfigError(f"{states.folder} holds out no state{of} to evaluate on: make it with --held-out above 0")
    raise ConfigError(
        f"{states.folder} has no training states{of}: all that it holds{of} are held out; make it again with "
        "--held-out below 1"
    )


def open_set(config: RunConfig) -> RecordedSet | None:
    """The set that the recipe names; None where it names none."""
    path = config.recorded.path
    return None if path is None else RecordedSet(Path(path))


def with_own_set(config: RunConfig, folder: Path) -> RunConfig:
    """A recipe whose run in `folder` makes its set itself, with the path of that set."""
    if not config.recorded.collects and not config.recorded.derives:
        return config
    sets = [folder / RECORDED, folder.parent / RECORDED]
    if config.recorded.path is not None:
        sets = [Path(config.recorded.path)]
    if config.recorded.derives:
        sets = [folder / DERIVED, *sets]
    own = next((path for path in sets if holds_set(path)), sets[0])
    recorded = config.recorded.model_copy(update={"path": str(own), "per_template": 0})
    return config.model_copy(update={"recorded": recorded})
