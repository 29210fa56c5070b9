"""Which source wins, and how two values become one."""

import pytest

from gymq.config import ConfigError


def test_a_later_file_beats_an_earlier_one(load_files):
    assert load_files({"a.yaml": "x: 1", "b.yaml": "x: 2"}).tree["x"] == 2


def test_env_yaml_beats_files(load_files):
    assert load_files({"a.yaml": "x: 1"}, env="x: 2").tree["x"] == 2


def test_values_of_a_program_beat_env_yaml(load_files):
    assert load_files({"a.yaml": "x: 1"}, env="x: 2", initial={"x": 3}).tree["x"] == 3


def test_the_command_line_beats_everything(load_files):
    assert load_files({"a.yaml": "x: 1"}, "++x=4", env="x: 2", initial={"x": 3}).tree["x"] == 4


def test_mappings_merge_deeply(load_files):
    config = load_files({"a.yaml": "m: {a: {b: 1, c: 2}}", "b.yaml": "m: {a: {c: 3, d: 4}}"})
    assert config.tree["m"] == {"a": {"b": 1, "c": 3, "d": 4}}


def test_lists_replace(load_files):
    assert load_files({"a.yaml": "x: [1, 2, 3]", "b.yaml": "x: [4]"}).tree["x"] == [4]


@pytest.mark.parametrize("value", ["5", "text", "[1, 2]", "{deep: 1}"])
def test_null_overrides(load_files, value):
    assert load_files({"a.yaml": f"x: {value}", "b.yaml": "x: null"}).tree["x"] is None


def test_null_is_overridden(load_files):
    assert load_files({"a.yaml": "x: null", "b.yaml": "x: {y: 1}"}).tree["x"] == {"y": 1}


def test_a_scalar_replaces_a_mapping_and_the_other_way_round(load_files):
    config = load_files({"a.yaml": "x: {y: 1}\nz: 1", "b.yaml": "x: 2\nz: {w: 3}"})
    assert (config.tree["x"], config.tree["z"]) == (2, {"w": 3})


def test_an_unset_value_does_not_erase_one_that_was_given(load_files):
    assert load_files({"a.yaml": "x: 1", "b.yaml": "x: ???"}).tree["x"] == 1


def test_a_mapping_that_meets_a_list_is_an_error_that_names_the_key(load_files):
    with pytest.raises(ConfigError, match=r"^m\.x: a list \(b\.yaml:2\) cannot be merged with a mapping$"):
        load_files({"a.yaml": "m: {x: {y: 1}}", "b.yaml": "m:\n  x: [1]"})


def test_config_paths_come_from_env_yaml(load_files):
    assert load_files({"a.yaml": "x: 1"}, paths=[], env="config_paths: [a.yaml]").tree["x"] == 1


def test_config_paths_of_a_program_replace_those_of_env_yaml(load_files):
    files = {"a.yaml": "x: 1", "b.yaml": "y: 2"}
    config = load_files(files, paths=[], env="config_paths: [a.yaml]", initial={"config_paths": ["b.yaml"]})
    assert config.tree == {"y": 2, "config_paths": ["b.yaml"]}


def test_config_paths_on_the_command_line_replace_all_others(load_files):
    files = {"a.yaml": "x: 1", "b.yaml": "y: 2"}
    config = load_files(files, "+config_paths=[b.yaml]", paths=[], env="config_paths: [a.yaml]")
    assert config.tree == {"y": 2, "config_paths": ["b.yaml"]}


def test_files_given_directly_replace_those_of_env_yaml(load_files):
    files = {"a.yaml": "x: 1", "b.yaml": "y: 2"}
    config = load_files(files, paths=["b.yaml"], env="config_paths: [a.yaml]")
    assert config.tree == {"y": 2, "config_paths": ["b.yaml"]}


def test_config_paths_may_be_an_interpolation(load_files):
    config = load_files({"a.yaml": "x: 1"}, "+config_paths=${mine}", paths=[], env="mine: ['${name}.yaml']\nname: a")
    assert config.tree["x"] == 1


def test_files_given_twice_are_refused_instead_of_one_list_being_dropped(load_files):
    with pytest.raises(ConfigError, match="both directly and with an override"):
        load_files({"a.yaml": "x: 1"}, "+config_paths=[a.yaml]")


def test_config_paths_in_the_tree_name_every_file_in_order_of_discovery(load_files):
    files = {"a.yaml": "config_paths: [c.yaml]", "b.yaml": "x: 1", "c.yaml": "y: 1"}
    assert load_files(files, paths=["a.yaml", "b.yaml"]).tree["config_paths"] == ["a.yaml", "b.yaml", "c.yaml"]


def test_nothing_at_all_is_an_empty_configuration(load_files):
    config = load_files({})
    assert (config.tree, config.instances) == ({}, [])
