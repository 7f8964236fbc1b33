"""What a recipe says of time and tokens is what its rollouts are held to."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from cairn.app.training import build_runner
from cairn.config import recipe as configuration
from cairn.rollout.episode import Limits
from cairn.testing.memory import MemoryEvents
from cairn.testing.scripted import ScriptedEnvironment

if TYPE_CHECKING:
    from cairn.app.brain import Brain


def test_the_limits_of_a_recipe_are_those_of_its_episodes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[rollout]\nmax_tokens = 11\nmax_seconds = 12\nanswer_seconds = 13\ninvalid_limit = 14\n")
    runner = build_runner(
        configuration.load(path),
        environment=ScriptedEnvironment(),
        brain=cast("Brain", SimpleNamespace(engine=None, codec=None, sampling=None)),
        events=MemoryEvents(),
    )
    assert runner.groups.episodes.limits == Limits(
        sampled_tokens=11, episode_seconds=12, answer_seconds=13, invalid_answers=14
    )
