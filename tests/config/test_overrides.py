"""What `key=v`, `+key=v`, `++key=v` and `~key` do."""

import re

import pytest

from gymq.config import ConfigError


def test_a_bare_key_changes_what_is_there(load_files):
    assert load_files({"a.yaml": "m: {x: 1}"}, "m.x=2").tree["m"] == {"x": 2}


def test_a_bare_key_must_exist(load_files):
    with pytest.raises(ConfigError, match=r"^override m\.stpes=2: there is no m\.stpes; did you mean steps\?$"):
        load_files({"a.yaml": "m: {steps: 1}"}, "m.stpes=2")


def test_a_bare_key_that_resembles_nothing_is_told_about_plus(load_files):
    with pytest.raises(ConfigError, match=r"there is no other; add a new key with \+$"):
        load_files({"a.yaml": "x: 1"}, "other=2")


@pytest.mark.parametrize("override", ["default_host=0.0.0.0", "error_on_almost_servers=false", "head_server.port=1"])
def test_a_bare_key_that_configures_the_run_needs_no_value_before(load_files, override):
    load_files({"a.yaml": "x: 1"}, override)


def test_a_bare_key_may_change_a_value_that_is_still_unset_or_an_interpolation(load_files):
    tree = load_files({"a.yaml": "x: ???\ny: ${z}"}, "x=1", "y=2").tree
    assert (tree["x"], tree["y"]) == (1, 2)


def test_plus_adds_a_key_with_everything_above_it(load_files):
    assert load_files({"a.yaml": "x: 1"}, "+a.b.c=2").tree["a"] == {"b": {"c": 2}}


def test_plus_also_overrides_a_file(load_files):
    assert load_files({"a.yaml": "x: 1"}, "+x=2").tree["x"] == 2


def test_plus_cannot_give_a_key_two_values(load_files):
    with pytest.raises(ConfigError, match=r"^override \+x=2: \+x=1 already gave the key; replace a value with \+\+$"):
        load_files({}, "+x=1", "+x=2")


def test_plus_adds_to_a_mapping_as_often_as_it_is_given(load_files):
    assert load_files({}, "+m={a: 1}", "+m={b: 2}").tree["m"] == {"a": 1, "b": 2}


def test_two_pluses_set_whatever_was_there(load_files):
    assert load_files({"a.yaml": "x: 1"}, "++x=2", "++x=3", "++y=4").tree == {
        "x": 3,
        "y": 4,
        "config_paths": ["a.yaml"],
    }


def test_overrides_apply_in_order(load_files):
    assert load_files({}, "+x=1", "x=2", "~x", "+y=3").tree == {"y": 3}


def test_a_mapping_is_merged_and_a_list_replaces(load_files):
    tree = load_files({"a.yaml": "m: {a: 1}\nl: [1, 2]"}, "++m={b: 2}", "++l=[3]").tree
    assert (tree["m"], tree["l"]) == ({"a": 1, "b": 2}, [3])


def test_null_erases(load_files):
    assert load_files({"a.yaml": "m: {a: 1}"}, "++m=null").tree["m"] is None


def test_tilde_deletes(load_files):
    assert load_files({"a.yaml": "m: {a: 1, b: 2}"}, "~m.a").tree["m"] == {"b": 2}


def test_tilde_deletes_an_instance(load_files, files):
    config = load_files(files, "~solver", env="policy_base_url: u\npolicy_api_key: k")
    assert [instance.name for instance in config.instances] == ["capitals", "policy_model"]


def test_tilde_can_ask_for_the_value(load_files):
    assert "x" not in load_files({"a.yaml": "x: 1"}, "~x=1").tree
    with pytest.raises(ConfigError, match=r"^override ~x=2: the key has a different value$"):
        load_files({"a.yaml": "x: 1"}, "~x=2")


def test_tilde_needs_something_to_delete(load_files):
    with pytest.raises(ConfigError, match=r"^override ~m\.dept: there is no m\.dept; did you mean depth\?$"):
        load_files({"a.yaml": "m: {depth: 1}"}, "~m.dept")


def test_keys_may_have_dashes_and_digits(load_files):
    assert load_files({}, "++NVIDIA-Nano-30B.size=3").tree["NVIDIA-Nano-30B"] == {"size": 3}


def test_a_key_finds_a_number_in_a_file(load_files):
    assert load_files({"a.yaml": "m: {1: a}"}, "m.1=b").tree["m"] == {1: "b"}


def test_an_override_may_refer_to_a_file(load_files):
    assert load_files({"a.yaml": "x: 1"}, "+y=${x}").tree["y"] == 1


def test_one_item_of_a_list_cannot_be_overridden(load_files):
    with pytest.raises(ConfigError, match=r"^override \+\+m\.l\.0=1: m\.l is a list; give the whole list$"):
        load_files({"a.yaml": "m: {l: [5]}"}, "++m.l.0=1")


def test_a_mapping_does_not_fit_on_a_list(load_files):
    with pytest.raises(ConfigError, match=r"^override \+\+l=\{a: 1\}: "):
        load_files({"a.yaml": "l: [5]"}, "++l={a: 1}")


@pytest.mark.parametrize("override", ["x", "+x", "++x"])
def test_a_value_is_needed(load_files, override):
    with pytest.raises(ConfigError, match="= is missing"):
        load_files({"a.yaml": "x: 1"}, override)


@pytest.mark.parametrize(
    ("file", "option"),
    [("b.yaml", "--config"), ("b.py", "--resources"), ("b.jsonl.gz", "--rows"), ("hf:a/b", "--rows"), (".", "--rows")],
)
def test_a_file_without_its_option_is_told_the_option(load_files, file, option):
    with pytest.raises(ConfigError, match=rf"^{re.escape(file)}: .* {option} {re.escape(file)}$"):
        load_files({"a.yaml": "x: 1"}, file)


@pytest.mark.parametrize("override", ["=1", "+=1", "a..b=1", ".a=1", "a.=1", "a[0]=1", "~", "'a'=1"])
def test_a_key_is_names_with_dots(load_files, override):
    with pytest.raises(ConfigError, match="the key must be names with dots between them"):
        load_files({}, override)


def test_a_malformed_value_is_reported_with_its_override(load_files):
    with pytest.raises(ConfigError, match=r"^override \+x=\[1: ',' or '\]' is missing$"):
        load_files({}, "+x=[1")


def test_a_malformed_interpolation_is_reported_with_its_override(load_files):
    with pytest.raises(ConfigError, match=r"^override \+x="):
        load_files({}, "+x='${a b}'")


@pytest.mark.parametrize(
    "override", ["+api_key=sek,ret", "+api_key=[sek", "api_key=sek", "~api_key=sek", "+a[].api_key=sek"]
)
def test_a_message_does_not_tell_a_secret(load_files, override):
    with pytest.raises(ConfigError, match=r"api_key=\*\*\*\*: ") as caught:
        load_files({}, override)
    assert "sek" not in str(caught.value)


@pytest.mark.parametrize("value", ["{b: {api_key: sek}}", "[{api_key: sek}]"])
def test_a_message_does_not_tell_a_secret_inside_of_a_value(load_files, value):
    with pytest.raises(ConfigError, match=r"override a=\*\*\*\*: ") as caught:
        load_files({}, f"a={value}")
    assert "sek" not in str(caught.value)


def test_an_override_that_does_not_fit_is_named_among_others(load_files):
    with pytest.raises(ConfigError, match=r"^override \+\+l=\{a: 1\}: "):
        load_files({"a.yaml": "l: [5]"}, "++x=1", "++l={a: 1}", "++y=2")


def test_a_key_may_be_changed_after_it_was_added(load_files):
    assert load_files({}, "+a.b=1", "a.b=2", "+a.c=3", "~a.b", "a.c=4").tree["a"] == {"c": 4}


def test_what_was_just_replaced_cannot_be_looked_into(load_files):
    with pytest.raises(ConfigError, match=r"^override ~a\.b: there is no a\.b$"):
        load_files({"a.yaml": "a: {b: 1}"}, "++a=5", "~a.b")


def test_a_key_may_be_added_again_after_it_was_deleted(load_files):
    assert load_files({}, "+x=1", "~x", "+x=2").tree == {"x": 2}


FILE_WORKER = "voter: {resources_servers: {./my/sc.py: {entrypoint: x, domain: other, n: 1, deep: {a: 1}}}}"


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_an_option_of_an_instance_needs_no_name_of_its_implementation(load_files, prefix):
    config = load_files({"a.yaml": FILE_WORKER}, f"{prefix}voter.n=3", f"{prefix}voter.deep.a=2")
    assert config.instance("voter").options == {"entrypoint": "x", "domain": "other", "n": 3, "deep": {"a": 2}}


def test_an_option_with_a_default_is_set_without_plus_and_deleted_again(load_files):
    config = load_files({"a.yaml": FILE_WORKER}, "voter.new=3", "voter.more=4", "~voter.more", "~voter.n")
    assert config.instance("voter").options == {"entrypoint": "x", "domain": "other", "new": 3, "deep": {"a": 1}}


def test_the_long_form_and_the_short_one_mean_the_same(load_files):
    text = "exam: {resources_servers: {mcqa: {entrypoint: x, domain: math}}}"
    long = load_files({"a.yaml": text}, "+exam.resources_servers.mcqa.depth=2").tree
    assert load_files({"a.yaml": text}, "exam.depth=2").tree == long


def test_an_option_can_be_given_to_an_instance_that_overrides_made(load_files):
    made = "++exam={resources_servers: {mcqa: {entrypoint: x, domain: math}}}"
    assert load_files({}, made, "exam.depth=2").instance("exam").options["depth"] == 2


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("exam.resource_servers.mcqa.depth=2", r"there is no exam\.resource_servers; did you mean resources_servers\?"),
        ("~exam.dept", r"there is no exam\.resources_servers\.mcqa\.dept; did you mean depth\?"),
    ],
)
def test_a_mistake_in_the_short_form_is_named(load_files, override, problem):
    files = {"a.yaml": "exam: {resources_servers: {mcqa: {entrypoint: x, domain: math, depth: 1}}}"}
    with pytest.raises(ConfigError, match=problem):
        load_files(files, override)


def test_instances_that_are_incomplete_or_no_instances_have_no_short_form(load_files):
    incomplete = "exam: {resources_servers: {mcqa: {depth: 1}}}"
    for text in (incomplete, "exam: ${other}\nother: {a: 1}", "exam: ???", "exam: {a: 1}"):
        with pytest.raises(ConfigError, match="there is no exam"):
            load_files({"a.yaml": text}, "exam.n=1")
