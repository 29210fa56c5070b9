"""Unset values and interpolations."""

import pytest

from gymq.config import ConfigError


def test_an_interpolation_takes_value_and_type_from_any_source(load_files):
    files = {"a.yaml": "use: ${shared.t}\ntext: t=${shared.t}\nall: ${shared}", "b.yaml": "shared: {t: 5}"}
    tree = load_files(files).tree
    assert (tree["use"], tree["text"], tree["all"]) == (5, "t=5", {"t": 5})


def test_an_interpolation_sees_the_value_that_won(load_files):
    assert load_files({"a.yaml": "x: 1\ny: ${x}"}, "++x=3", env="x: 2").tree["y"] == 3


def test_an_interpolation_may_name_an_environment_variable(load_files, monkeypatch):
    monkeypatch.setenv("GYMQ_TEST_VALUE", "from outside")
    assert load_files({"a.yaml": "x: ${oc.env:GYMQ_TEST_VALUE}"}).tree["x"] == "from outside"


def test_an_escaped_interpolation_is_text(load_files):
    assert load_files({"a.yaml": r"x: \${y}"}).tree["x"] == "${y}"


def test_what_cannot_be_resolved_is_named_with_its_line(load_files):
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": "policy_base_url: u\nm:\n  url: ${policy_bas_url}/v1"})
    assert str(caught.value) == (
        "m.url: cannot be resolved: there is no policy_bas_url; did you mean policy_base_url? (a.yaml:3)"
    )


def test_a_value_of_the_policy_that_is_missing_belongs_in_env_yaml(load_files):
    with pytest.raises(ConfigError, match=r"there is no policy_base_url; give it in env\.yaml \(a\.yaml:3\)$"):
        load_files({"a.yaml": "policy_model:\n  m:\n    url: ${policy_base_url}"})


def test_everything_that_cannot_be_resolved_is_named_at_once(load_files):
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": "x: ${q}\nm: {l: [1, '${r}', {k: '${s.t}'}]}\ny: ${m}"})
    for key in ("x: ", "m.l[1]: ", "m.l[2].k: ", "no q", "no r", "no s.t"):
        assert str(caught.value).count(key) == 1


@pytest.mark.parametrize("text", ["x: ${y}\ny: ${x}", "x: {y: '${x}'}", "x: ${x}"])
def test_values_that_refer_to_each_other_are_an_error(load_files, text):
    with pytest.raises(ConfigError, match="cannot be resolved"):
        load_files({"a.yaml": text})


@pytest.mark.parametrize("value", ["${nothing:1}", "${oc.env:GYMQ_TEST_NEVER_SET}"])
def test_other_failures_of_an_interpolation_are_errors_too(load_files, value):
    with pytest.raises(ConfigError, match=r"^x: cannot be resolved: .* \(a\.yaml:1\)$"):
        load_files({"a.yaml": f"x: {value}"})


def test_all_unset_values_are_named_at_once(load_files):
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": "key: ???\nm:\n  deep: ???\n  l: [1, '???']"}, "+late=???")
    message = str(caught.value)
    assert message.startswith(
        "4 required values are unset (???): key (a.yaml:1), m.deep (a.yaml:3), m.l[1] (a.yaml:4), late (command line); "
    )
    assert message.endswith("++key=VALUE")


def test_a_value_given_anywhere_above_is_set(load_files):
    assert load_files({"a.yaml": "key: ???"}, env="key: k").tree["key"] == "k"


def test_unset_values_are_reported_before_what_refers_to_them(load_files):
    with pytest.raises(ConfigError, match=r"^1 required value is unset \(\?\?\?\): key "):
        load_files({"a.yaml": "key: ???\nuse: ${key}"})


def test_the_tree_is_plain_data(load_files):
    tree = load_files({"a.yaml": "m: {l: [{x: 1}]}"}).tree
    assert type(tree) is type(tree["m"]) is type(tree["m"]["l"][0]) is dict
    assert type(tree["m"]["l"]) is list


def test_keys_that_are_not_text_can_be_named(load_files):
    with pytest.raises(ConfigError, match=r"unset \(\?\?\?\): 1\.5\.true \(a\.yaml:1\), \[7\] "):
        load_files({"a.yaml": "1.5: {'true': '???'}\n7: ???"})
