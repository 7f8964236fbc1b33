"""The pixel policy's language: goal words and past actions in; locations, verbs and spans of the goal out."""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Int32

from cairn.data.action import (
    Action,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Home,
    Hover,
    Invalid,
    Key,
    LongPress,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
    Wait,
    target_of,
)
from cairn.data.observation import Observation
from cairn.data.pixel_vocabulary import POINTED, Crop, PixelVocabulary, Verb
from cairn.data.trajectory import Prompt
from cairn.errors import ConfigError
from cairn.ports import Past

_SCROLLS = {
    Verb.SCROLL_UP: (0.0, -0.5),
    Verb.SCROLL_DOWN: (0.0, 0.5),
    Verb.SCROLL_LEFT: (-0.5, 0.0),
    Verb.SCROLL_RIGHT: (0.5, 0.0),
}
_QUOTES = "\"'`“”\u2018\u2019"
_STOPS = ".,;:!?"
_AROUND = _QUOTES + _STOPS + "()[]{}"


class PixelCodec:
    """Implements `Codec` for the pixel policy. The arguments are those of the model's config.

    `verbs` limits what may be sampled besides clicks and typing; None allows every verb.
    """

    def __init__(
        self,
        *,
        vocabulary: PixelVocabulary,
        crop: Crop,
        characters: int = 8,
        history: int = 4,
        verbs: frozenset[Verb] | None = None,
    ) -> None:
        self._layout = vocabulary
        self._crop = crop
        self._characters = characters
        self._history = history
        barred = () if verbs is None else tuple(vocabulary.verb_id(v) for v in Verb if v not in verbs)
        self._forbidden = frozenset(range(vocabulary.verb)) | frozenset(barred)
        self._stops = vocabulary.stop_ids()

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._stops

    @property
    def forbidden_ids(self) -> frozenset[int]:
        return self._forbidden

    @property
    def max_answer_tokens(self) -> int:
        return 3

    def points(self, token_id: int) -> bool:
        """Whether a token of an answer says a place."""
        return token_id >= self._layout.source

    # ── asking ────────────────────────────────────────────────────────────────

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        if seen.image is None:
            raise ConfigError("the pixel policy needs screenshots: let the environment take them")
        ids = [*self._words(goal), *self._past(goal, turns, seen), self._layout.IMAGE, self._layout.ACT]
        return Prompt(token_ids=np.array(ids, np.int32), images=(seen.image,))

    def _words(self, goal: str) -> Iterator[int]:
        layout, quoted = self._layout, False
        for word in words_of(goal):
            raw = goal[word]
            plain = raw.strip(_AROUND).lower() or raw
            opens, closes = raw[0] in _QUOTES, len(raw.rstrip(_STOPS)) > 1 and raw.rstrip(_STOPS)[-1] in _QUOTES
            quoted = quoted or opens
            yield layout.word + zlib.crc32(plain.encode()) % layout.words
            yield layout.shape + _shape(raw, opens=opens, closes=closes, quoted=quoted)
            for letter in plain[: self._characters]:
                found = layout.CHARACTERS.find(letter)
                yield layout.character + (found if found >= 0 else len(layout.CHARACTERS))
            quoted = quoted and not closes

    def _past(self, goal: str, turns: Sequence[Past], seen: Observation) -> Iterator[int]:
        told = [*(t.observation.message for t in turns[1:]), seen.message]
        for turn, message in list(zip(turns, told, strict=False))[-self._history :]:
            yield self._layout.TURN
            said = next(self._sayings(goal, turn.action, turn.observation), None)
            yield from said or (self._layout.UNSAID,)
            if message:
                yield self._layout.FAILED

    # ── reading ───────────────────────────────────────────────────────────────

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        del seen
        ids = [int(i) for i in token_ids]
        layout = self._layout
        match [self._sort(i) for i in ids]:
            case ["place"]:
                return Click(self._point(ids[0] - layout.place))
            case [Verb() as verb] if verb not in POINTED and verb is not Verb.DRAG:
                return _ALONE[verb]
            case [Verb() as verb, "place"] if verb in POINTED:
                return _at(verb, self._point(ids[1] - layout.place))
            case [Verb.DRAG, "source", "place"]:
                return Drag(self._point(ids[1] - layout.source), self._point(ids[2] - layout.place))
            case ["start", "end"]:
                return self._typed(goal, ids)
            case sorts:
                return Invalid(self._shown(ids), f"no action is said by {' '.join(map(str, sorts)) or 'nothing'}")

    def _typed(self, goal: str, ids: list[int]) -> Action:
        first, last = ids[0] - self._layout.start, ids[1] - self._layout.end
        words = words_of(goal)
        if not first <= last < len(words):
            return Invalid(self._shown(ids), f"the goal has no words {first} to {last}")
        text = span_text(goal[words[first].start : words[last].stop])
        return Type(text) if text else Invalid(self._shown(ids), "that span of the goal holds no text")

    def _sort(self, token: int) -> Verb | str:
        layout = self._layout
        if layout.verb <= token < layout.start:
            return layout.VERBS[token - layout.verb]
        bounds = ((layout.place, "place"), (layout.source, "source"), (layout.end, "end"), (layout.start, "start"))
        inside = 0 <= token < layout.size
        return next((name for first, name in bounds if inside and token >= first), "other")

    def _shown(self, ids: list[int]) -> str:
        return " ".join(f"<{self._sort(i)} {i}>" for i in ids)

    def _point(self, cell: int) -> Point:
        return self._layout.center(cell, self._crop)

    # ── saying ────────────────────────────────────────────────────────────────

    def primitive(self, action: Action, seen: Observation) -> Action:
        """Click a field before typing into it, and scroll towards what lies outside the visible part."""
        target = target_of(action)
        element = seen.element(target) if isinstance(target, int) else None
        if element is None:
            return action
        middle = element.box.top + element.box.height / 2
        top, bottom = (self._crop.top + s * self._crop.height for s in (0, 1))
        if not top <= middle * self._crop.screen_height <= bottom:
            down = middle * self._crop.screen_height > bottom
            return Scroll(self._middle(), 0.0, 0.5 if down else -0.5)
        if isinstance(action, Type):
            return Type(action.text) if "focused" in element.states else Click(element.id)
        return action

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        said = (ids for ids in self._sayings(goal, action, seen) if self._forbidden.isdisjoint(ids))
        return tuple(np.array(ids, np.int32) for ids in said)

    def _sayings(self, goal: str, action: Action, seen: Observation) -> Iterator[tuple[int, ...]]:
        layout = self._layout
        match action:
            case Click(target):
                yield from ((layout.place + cell,) for cell in self._cells(target, seen))
            case Drag(source, target):
                end = next(self._cells(target, seen), None)
                starts = () if end is None else self._cells(source, seen)
                yield from (
                    (layout.verb_id(Verb.DRAG), layout.source + cell, layout.place + (end or 0)) for cell in starts
                )
            case Type(text, None):
                yield from self._spans(goal, text)
            case _ if (verb := _verb(action)) is not None and verb in POINTED:
                target = target_of(action) or self._middle()
                yield from ((layout.verb_id(verb), layout.place + cell) for cell in self._cells(target, seen))
            case _ if verb is not None:
                yield (layout.verb_id(verb),)
            case _:
                return

    def _cells(self, target: Target, seen: Observation) -> Iterator[int]:
        """Cells that hit the target, the one in its middle first."""
        if isinstance(target, Point):
            cell = self._layout.cell(target, self._crop)
            yield from () if cell is None else (cell,)
            return
        element = seen.element(target)
        if element is None or not (0 <= element.box.top + element.box.height / 2 <= 1):
            return
        middle = self._layout.cell(element.box.center, self._crop)
        if middle is None:
            return
        yield middle
        yield from (c for c in self._layout.cells_within(element.box, self._crop) if c != middle)

    def _spans(self, goal: str, text: str) -> Iterator[tuple[int, ...]]:
        words = words_of(goal)[: self._layout.span]
        for i, first in enumerate(words):
            for j, last in enumerate(words[i:], i):
                if span_text(goal[first.start : last.stop]) == text:
                    yield self._layout.start + i, self._layout.end + j

    def _middle(self) -> Point:
        crop = self._crop
        return Point(
            (crop.left + crop.width / 2) / crop.screen_width, (crop.top + crop.height / 2) / crop.screen_height
        )


def words_of(goal: str) -> list[slice]:
    """Where the goal's words are: runs without white space."""
    return [slice(*found.span()) for found in re.finditer(r"\S+", goal)]


def span_text(raw: str) -> str:
    """What a span of the goal says: the inside of its quotes, else the text without punctuation around it.

    Example: `"Hello, you!".` gives `Hello, you!`; `(ada),` gives `ada`.
    """
    core = raw.rstrip(_STOPS)
    if len(core) >= 2 and core[0] in _QUOTES and core[-1] in _QUOTES:
        return core[1:-1]
    return raw.strip(_AROUND)


def _shape(raw: str, *, opens: bool, closes: bool, quoted: bool) -> int:
    """What a word looks like, so that quoted values stand out however unknown they are."""
    bare = raw.strip(_AROUND)
    flags = (
        opens,
        closes,
        quoted,
        bare[:1].isupper(),
        any(c.isdigit() for c in bare),
        raw[-1] in _STOPS,
    )
    return sum(bool(flag) << bit for bit, flag in enumerate(flags))


def _verb(action: Action) -> Verb | None:
    match action:
        case DoubleClick() | RightClick() | LongPress() | Hover():
            return _POINTING[type(action)]
        case Scroll(_, dx, dy) if abs(dy) >= abs(dx):
            return Verb.SCROLL_DOWN if dy > 0 else Verb.SCROLL_UP
        case Scroll(_, dx, _):
            return Verb.SCROLL_RIGHT if dx > 0 else Verb.SCROLL_LEFT
        case Wait():
            return Verb.WAIT
        case _:
            return next((verb for verb, said in _ALONE.items() if said == action), None)


_POINTING = {
    DoubleClick: Verb.DOUBLE_CLICK,
    RightClick: Verb.RIGHT_CLICK,
    LongPress: Verb.LONG_PRESS,
    Hover: Verb.HOVER,
}
_ALONE: Mapping[Verb, Action] = {
    Verb.BACK: Back(),
    Verb.HOME: Home(),
    Verb.WAIT: Wait(1.0),
    Verb.FINISH: Finish(),
    Verb.INFEASIBLE: Finish(FinishStatus.INFEASIBLE),
    Verb.ENTER: Key("Enter"),
    Verb.TAB: Key("Tab"),
    Verb.ESCAPE: Key("Escape"),
    Verb.BACKSPACE: Key("Backspace"),
    Verb.DELETE: Key("Delete"),
    Verb.SPACE: Key("Space"),
    Verb.UP: Key("ArrowUp"),
    Verb.DOWN: Key("ArrowDown"),
    Verb.LEFT: Key("ArrowLeft"),
    Verb.RIGHT: Key("ArrowRight"),
    Verb.SELECT_ALL: Key("Control+a"),
    Verb.COPY: Key("Control+c"),
    Verb.PASTE: Key("Control+v"),
}


def _at(verb: Verb, point: Point) -> Action:
    if verb in _SCROLLS:
        return Scroll(point, *_SCROLLS[verb])
    return next(kind for kind, said in _POINTING.items() if said is verb)(point)
