"""Reading files: includes, where names are looked for, and what is said about a file that cannot be used."""

import pytest

from gymq.config import ConfigError, load


def test_a_file_overrides_what_it_includes(load_files):
    files = {"top.yaml": "config_paths: [base.yaml]\nx: 2", "base.yaml": "x: 1\ny: 1"}
    tree = load_files(files, paths=["top.yaml"]).tree
    assert (tree["x"], tree["y"]) == (2, 1)


@pytest.mark.parametrize("env", [None, "config_paths: [top.yaml]"])
def test_includes_are_followed_wherever_the_list_of_files_comes_from(load_files, env):
    files = {"top.yaml": "config_paths: [base.yaml]", "base.yaml": "x: 1"}
    overrides = () if env else ("+config_paths=[top.yaml]",)
    assert load_files(files, *overrides, paths=[], env=env).tree["x"] == 1


def test_an_include_of_an_include_is_overridden_by_both(load_files):
    files = {
        "top.yaml": "config_paths: [mid.yaml]\na: top",
        "mid.yaml": "config_paths: [low.yaml]\na: mid\nb: mid",
        "low.yaml": "a: low\nb: low\nc: low",
    }
    tree = load_files(files, paths=["top.yaml"]).tree
    assert (tree["a"], tree["b"], tree["c"]) == ("top", "mid", "low")


def test_a_later_include_overrides_an_earlier_one_with_its_own_includes(load_files):
    files = {
        "top.yaml": "config_paths: [one.yaml, two.yaml]",
        "one.yaml": "x: one",
        "two.yaml": "config_paths: [under_two.yaml]",
        "under_two.yaml": "x: under two",
    }
    assert load_files(files, paths=["top.yaml"]).tree["x"] == "under two"


def test_a_later_listed_file_with_its_includes_beats_an_earlier_one(load_files):
    files = {"one.yaml": "x: one", "two.yaml": "config_paths: [under_two.yaml]", "under_two.yaml": "x: under two"}
    assert load_files(files, paths=["one.yaml", "two.yaml"]).tree["x"] == "under two"


def test_a_file_that_is_listed_keeps_its_place_when_another_one_includes_it(load_files):
    files = {"top.yaml": "config_paths: [base.yaml]\nx: top", "base.yaml": "x: base"}
    assert load_files(files, paths=["top.yaml", "base.yaml"]).tree["x"] == "base"


def test_of_two_that_include_the_same_file_the_first_one_brings_it(load_files):
    files = {
        "one.yaml": "config_paths: [shared.yaml]\nx: one",
        "two.yaml": "config_paths: [shared.yaml]",
        "shared.yaml": "x: shared",
    }
    assert load_files(files, paths=["one.yaml", "two.yaml"]).tree["x"] == "one"


def test_files_that_include_each_other_are_read_once(load_files):
    files = {"a.yaml": "config_paths: [b.yaml]\nx: a", "b.yaml": "config_paths: [a.yaml]\nx: b\ny: b"}
    tree = load_files(files, paths=["a.yaml"]).tree
    assert (tree["x"], tree["y"], tree["config_paths"]) == ("a", "b", ["a.yaml", "b.yaml"])


def test_a_file_that_includes_itself_under_another_name_is_read_once(load_files):
    files = {"a.yaml": "config_paths: [./a.yaml, sub/../a.yaml]\nx: 1", "sub/b.yaml": ""}
    assert load_files(files, paths=["a.yaml"]).tree["config_paths"] == ["a.yaml"]


def test_a_long_chain_of_includes_is_no_problem(load_files):
    files = {f"{i}.yaml": f"config_paths: [{i + 1}.yaml]\nx: {i}" for i in range(300)} | {"300.yaml": "last: yes"}
    tree = load_files(files, paths=["0.yaml"]).tree
    assert (tree["x"], tree["last"]) == (0, True)


def test_names_of_includes_are_relative_to_the_root_and_not_to_the_file(load_files):
    files = {"sub/top.yaml": "config_paths: [base.yaml]", "base.yaml": "x: root", "sub/base.yaml": "x: sub"}
    assert load_files(files, paths=["sub/top.yaml"]).tree["x"] == "root"


def test_names_of_includes_may_refer_to_other_values(load_files):
    files = {"top.yaml": "config_paths: ['${model}.yaml']\nmodel: small", "large.yaml": "size: 2"}
    assert load_files(files, paths=["top.yaml"], env="model: large").tree["size"] == 2


def test_the_current_directory_is_the_root_by_default(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("x: 1")
    (tmp_path / "env.yaml").write_text("y: 2")
    monkeypatch.chdir(tmp_path)
    assert load(["a.yaml"]).tree == {"x": 1, "y": 2, "config_paths": ["a.yaml"]}


def test_shipped_files_come_after_the_current_directory(tmp_path, monkeypatch):
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "builtin.yaml").write_text("from: installed")
    (installed / "both.yaml").write_text("both: installed")
    here = tmp_path / "here"
    here.mkdir()
    (here / "both.yaml").write_text("both: here")
    monkeypatch.setattr("gymq.config.loader.SHIPPED", installed)
    tree = load(["builtin.yaml", "both.yaml"], root=here).tree
    assert (tree["from"], tree["both"]) == ("installed", "here")


def test_extra_roots_come_before_the_current_directory(load_files, tmp_path):
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "a.yaml").write_text("x: extra")
    assert load_files({"a.yaml": "x: root"}, extra_roots=[extra]).tree["x"] == "extra"


def test_an_absolute_name_is_taken_as_it_is(tmp_path):
    (tmp_path / "a.yaml").write_text("x: 1")
    assert load([str(tmp_path / "a.yaml")], root="/", env_yaml=None).tree["x"] == 1


def test_env_yaml_is_found_below_the_root(tmp_path):
    (tmp_path / "env.yaml").write_text("x: 1")
    assert load([], root=tmp_path).tree == {"x": 1}


def test_env_yaml_can_be_left_out(tmp_path):
    (tmp_path / "env.yaml").write_text("x: 1")
    assert load([], root=tmp_path, env_yaml=None).tree == {}


def test_an_env_yaml_that_was_asked_for_must_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"other\.yaml does not exist"):
        load([], root=tmp_path, env_yaml="other.yaml")


def test_a_missing_file_is_named_with_the_places_searched(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(["c/nope.yaml"], root=tmp_path, env_yaml=None)
    assert "config file c/nope.yaml does not exist" in str(caught.value)
    assert str(tmp_path / "c/nope.yaml") in str(caught.value)


def test_a_missing_include_is_an_error(load_files):
    with pytest.raises(ConfigError, match=r"config file gone\.yaml does not exist"):
        load_files({"a.yaml": "config_paths: [gone.yaml]"})


def test_a_directory_is_no_file(load_files):
    with pytest.raises(ConfigError, match=r"config file sub is a folder; name a file in it; its YAML files: a\.yaml$"):
        load_files({"sub/a.yaml": "x: 1"}, paths=["sub"])


def test_malformed_yaml_is_named_with_its_line(load_files):
    with pytest.raises(ConfigError, match=r"^a\.yaml: not valid YAML at line 2, column 5: mapping values"):
        load_files({"a.yaml": "x: 1\ny: z: 2"})


def test_malformed_yaml_in_env_yaml_is_named_with_its_line(load_files):
    with pytest.raises(ConfigError, match=r"^env\.yaml: not valid YAML at line 2"):
        load_files({}, env="x: [1,\n")


def test_a_key_given_twice_in_a_file_is_an_error(load_files):
    with pytest.raises(ConfigError, match=r"a\.yaml: not valid YAML at line 2.*duplicate key x"):
        load_files({"a.yaml": "x: 1\nx: 2"})


@pytest.mark.parametrize("text", ["just text", "- a\n- b", "5", "2024-01-01"])
def test_a_file_without_a_mapping_is_an_error(load_files, text):
    with pytest.raises(ConfigError, match=r"^a\.yaml: must contain a mapping"):
        load_files({"a.yaml": text})


def test_a_byte_order_mark_is_no_problem(load_files):
    assert load_files({"a.yaml": "\ufeffx: 1"}).tree["x"] == 1


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_an_empty_mapping(load_files, text):
    assert load_files({"a.yaml": text}).tree == {"config_paths": ["a.yaml"]}


def test_a_single_key_without_a_value_is_a_mapping(load_files):
    assert load_files({"a.yaml": "x:"}).tree["x"] is None


def test_a_file_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"x: \xff\xfe")
    with pytest.raises(ConfigError, match=r"^a\.yaml: not UTF-8 text"):
        load(["a.yaml"], root=tmp_path)


def test_yaml_cannot_run_code(load_files):
    with pytest.raises(ConfigError, match=r"^a\.yaml: not valid YAML at line 1"):
        load_files({"a.yaml": "x: !!python/object/apply:os.getcwd []"})


@pytest.mark.parametrize("value", ["!!int many", "!!int ''", "!!bool maybe", "!!timestamp noon"])
def test_a_value_that_does_not_fit_its_tag_is_reported(load_files, value):
    with pytest.raises(ConfigError, match=r"^a\.yaml: a value does not fit its YAML tag"):
        load_files({"a.yaml": f"x: {value}"})


@pytest.mark.parametrize("value", ["a.yaml", "5", "{a: b}", "[1]", "[[a.yaml]]"])
def test_config_paths_must_be_a_list_of_names(load_files, value):
    with pytest.raises(ConfigError, match=r"^config_paths must be a list of file names, not .* \(command line\)$"):
        load_files({}, f"+config_paths={value}")


def test_config_paths_of_a_file_must_be_a_list_of_names(load_files):
    with pytest.raises(ConfigError, match=r"must be a list of file names, not 'b\.yaml' \(a\.yaml:2\)"):
        load_files({"a.yaml": "x: 1\nconfig_paths: b.yaml"})


def test_malformed_interpolation_is_named_with_its_file(load_files):
    with pytest.raises(ConfigError, match=r"^a\.yaml: x: "):
        load_files({"a.yaml": "x: '${never closed'"})


def test_every_message_is_one_line(load_files):
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": 'x: "never closed\n\ny: 1\n'})
    assert "\n" not in str(caught.value)
