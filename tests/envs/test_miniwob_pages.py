import importlib.util

import pytest

from cairn.data.task import Split, Task
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.environment import MiniwobEnvironment
from cairn.envs.miniwob.pages import expert_script, html_directory, registered_tasks
from cairn.errors import ConfigError, SetupError


def test_all_registered_tasks_that_have_a_page_are_templates() -> None:
    templates = MiniwobEnvironment(blobs=None).templates
    assert len(templates) == len({template.id for template in templates}) == 125
    for template in templates:
        assert (html_directory() / f"{template.id.removeprefix('miniwob/')}.html").is_file()


def test_unregistered_pages_are_no_tasks() -> None:
    assert not {"chase-circle", "moving-items", "simon-says", "hover-shape", "button-delay"} & set(registered_tasks())


def test_no_training_seed_is_held_out() -> None:
    template = MiniwobEnvironment(blobs=None).templates[0]
    seeds = {
        split: {Task(template=template, split=split, index=index).seed for index in (0, 1, 999_999)} for split in Split
    }
    assert not seeds[Split.TRAIN] & seeds[Split.HELD_OUT]


def test_nothing_starts_before_a_session_is_asked_for() -> None:
    environment = MiniwobEnvironment(blobs=None)
    assert environment.capacity == 4
    assert environment._pool is None


def test_the_experts_are_one_call_that_leaves_no_names_behind() -> None:
    assert expert_script().startswith("(() => {")
    assert "window.__cairnExpert = " in expert_script()


def test_a_missing_wheel_is_a_setup_error_that_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        assert name == "miniwob"

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    with pytest.raises(SetupError, match="pip install"):
        html_directory()


@pytest.mark.parametrize(("browsers", "pages"), [(0, 1), (1, 0), (1, 9)])
def test_impossible_limits_are_refused(browsers: int, pages: int) -> None:
    with pytest.raises(ConfigError):
        PoolLimits(browsers=browsers, pages_per_browser=pages)
