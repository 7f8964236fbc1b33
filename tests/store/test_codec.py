import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from cairn.data.action import Action
from cairn.data.action_json import dump_action, dump_tagged, kind_of, load_action, load_tagged
from cairn.errors import InvariantError, StoreError
from cairn.store.codec import group_to_row, row_to_group
from cairn.store.rows import GROUP_SCHEMA, GroupRow
from cairn.store.segments import _parquet, _segment_name, _segment_rows
from cairn.testing.groups import played_group
from cairn.testing.same import same_group
from rollout.stage import plan_for
from store.strategies import actions, groups


@given(actions)
def test_an_action_survives_the_round_trip(action: Action) -> None:
    assert load_action(kind_of(action), dump_action(action)) == action
    assert load_tagged(dump_tagged(action)) == action


@settings(max_examples=25)
@given(groups())
def test_a_group_survives_json(group) -> None:
    assert same_group(row_to_group(json.loads(json.dumps(group_to_row(group))), origin="?"), group)


@settings(max_examples=25)
@given(groups())
def test_a_group_survives_parquet(tmp_path_factory: pytest.TempPathFactory, group) -> None:
    data = _parquet([group_to_row(group)])
    path = tmp_path_factory.mktemp("segments") / _segment_name(0, data)
    path.write_bytes(data)
    (row,) = _segment_rows(path)
    assert same_group(row_to_group(row, origin="?"), group)


def test_the_arrow_schema_has_every_field_of_a_row() -> None:
    assert set(GROUP_SCHEMA.names) == set(GroupRow.__annotations__)


def test_another_schema_is_refused_by_name() -> None:
    row = group_to_row(played_group(plan_for(), []))
    row["schema"] = 99
    with pytest.raises(StoreError, match=r"old\.parquet has schema 99"):
        row_to_group(row, origin="old.parquet")


def test_rows_of_before_there_were_terms_are_read() -> None:
    group = played_group(plan_for(), [1.0, 0.0])
    row = group_to_row(group)
    for one in row["trajectories"]:
        del one["terms"]
    assert same_group(row_to_group(row, origin="old.parquet"), group)


def test_a_trajectory_of_another_plan_is_refused() -> None:
    stray = played_group(plan_for(group="other"), [1.0])
    with pytest.raises(InvariantError, match="another plan"):
        group_to_row(replace(stray, plan=plan_for(group="this")))
