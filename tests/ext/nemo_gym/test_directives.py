"""Parts that are copied, moved or deleted."""

import pytest

from gymq.config import ConfigError
from tests.config.conftest import load_files as load_files

BASE = "base: {a: 1, deep: {b: 2, c: 3}}\n"


def tree_of(load_files, text, *overrides, **options):
    tree = load_files({"a.yaml": text}, *overrides, **options).tree
    del tree["config_paths"]
    return tree


@pytest.mark.parametrize("text", ["x: ${copy:base.deep}", "x: {_copy: base.deep}"])
def test_a_copy_leaves_its_source(load_files, text):
    tree = tree_of(load_files, BASE + text)
    assert tree == {"base": {"a": 1, "deep": {"b": 2, "c": 3}}, "x": {"b": 2, "c": 3}}


@pytest.mark.parametrize(
    "text",
    [
        "x: ${inherit_from:base.deep}",
        "x: ${swap_key:base.deep}",
        "x: {_inherit_from: base.deep}",
        "x: {_swap_key: base.deep}",
    ],
)
def test_a_move_removes_its_source(load_files, text):
    assert tree_of(load_files, BASE + text) == {"base": {"a": 1}, "x": {"b": 2, "c": 3}}


@pytest.mark.parametrize("directive", ["_copy", "_inherit_from"])
def test_what_stands_beside_a_directive_is_laid_over(load_files, directive):
    tree = tree_of(load_files, BASE + f"x: {{{directive}: base, deep: {{c: 4, d: 5}}}}")
    assert tree["x"] == {"a": 1, "deep": {"b": 2, "c": 4, "d": 5}}


def test_null_and_lists_laid_over_a_copy_replace(load_files):
    tree = tree_of(load_files, "base: {a: {b: 1}, l: [1, 2]}\nx: {_copy: base, a: null, l: [3]}")
    assert tree["x"] == {"a": None, "l": [3]}


def test_two_may_move_the_same_source(load_files):
    assert tree_of(load_files, "s: {v: 1}\nx: ${inherit_from:s}\ny: {_inherit_from: s, w: 2}") == {
        "x": {"v": 1},
        "y": {"v": 1, "w": 2},
    }


def test_a_source_may_be_a_scalar_or_a_list(load_files):
    tree = tree_of(load_files, "s: {n: 3, l: [1, {k: 2}]}\nx: ${copy:s.n}\ny: {z: '${inherit_from:s.l}'}")
    assert tree == {"s": {"n": 3}, "x": 3, "y": {"z": [1, {"k": 2}]}}


def test_directives_work_at_any_depth_and_in_lists(load_files):
    tree = tree_of(load_files, BASE + "x: {y: [{_copy: base.deep, d: 4}, '${copy:base.a}']}")
    assert tree["x"] == {"y": [{"b": 2, "c": 3, "d": 4}, 1]}


def test_a_copy_of_a_copy_is_followed_in_any_order(load_files):
    tree = tree_of(load_files, "x: {_copy: y, c: 3}\ny: {_copy: z, b: 2}\nz: {a: 1}\nw: ${copy:x}")
    assert tree["w"] == tree["x"] == {"a": 1, "b": 2, "c": 3}


def test_a_path_may_lead_through_a_copy(load_files):
    assert tree_of(load_files, "x: ${copy:y.deep.c}\ny: {_copy: base}\n" + BASE)["x"] == 3


def test_a_mapping_can_become_its_own_child(load_files):
    assert tree_of(load_files, "x: {_inherit_from: x.old, b: 2, old: {a: 1}}") == {"x": {"a": 1, "b": 2}}


def test_the_copy_is_not_tied_to_its_source(load_files):
    tree = tree_of(load_files, "s: {l: [1]}\nx: ${copy:s}")
    tree["x"]["l"].append(2)
    assert tree["s"] == {"l": [1]}


def test_a_copied_interpolation_resolves_where_it_arrives(load_files):
    tree = tree_of(load_files, "s: {name: a, title: 'is ${.name}'}\nx: {_copy: s, name: b}")
    assert tree["x"]["title"] == "is b"


def test_a_directive_may_come_from_the_command_line(load_files):
    text = "policy_model: {old: 1}\nmy-model-2: {new: 2}"
    assert tree_of(load_files, text, "++policy_model=${inherit_from:my-model-2}") == {"policy_model": {"new": 2}}


def test_the_path_of_a_directive_may_be_an_interpolation(load_files):
    text = "which: deep\n" + BASE + "x: {_copy: 'base.${which}'}\ny: ${copy:base.${which}.b}"
    tree = tree_of(load_files, text)
    assert (tree["x"], tree["y"]) == ({"b": 2, "c": 3}, 2)


def test_null_takes_a_directive_back(load_files):
    files = {"a.yaml": BASE + "x: {_copy: base, own: 1}", "b.yaml": "x: {_copy: null}"}
    assert load_files(files).tree["x"] == {"own": 1}


def test_keys_are_deleted(load_files):
    assert tree_of(load_files, "x: {_delete_key: 'a, b', a: 1, b: 2, c: 3}") == {"x": {"c": 3}}


def test_keys_to_delete_may_be_a_list(load_files):
    assert tree_of(load_files, "x: {_delete_key: [a, b], a: 1, b: 2, c: 3}") == {"x": {"c": 3}}


def test_copied_keys_are_deleted(load_files):
    tree = tree_of(load_files, BASE + "x: {_copy: base, _delete_key: a}")
    assert tree == {"base": {"a": 1, "deep": {"b": 2, "c": 3}}, "x": {"deep": {"b": 2, "c": 3}}}


def test_keys_deep_in_a_copy_are_deleted(load_files):
    tree = tree_of(load_files, BASE + "x: {_copy: base, deep: {_delete_key: 'b, d', d: 4}}")
    assert tree == {"base": {"a": 1, "deep": {"b": 2, "c": 3}}, "x": {"a": 1, "deep": {"c": 3}}}


def test_a_deleted_key_can_still_be_a_source(load_files):
    tree = tree_of(load_files, "x: {_delete_key: old, old: {a: 1}, new: {_copy: x.old, b: 2}}")
    assert tree == {"x": {"new": {"a": 1, "b": 2}}}


def test_keys_of_the_whole_configuration_can_be_deleted(load_files):
    assert tree_of(load_files, "_delete_key: x\nx: 1\ny: 2") == {"y": 2}


def test_what_is_deleted_need_not_be_set_or_resolvable(load_files):
    assert tree_of(load_files, "x: {_delete_key: old, old: {a: '???', b: '${nothing}'}, c: 1}") == {"x": {"c": 1}}


def test_a_later_file_deletes_a_key_of_an_earlier_one(load_files):
    files = {"a.yaml": "x: {a: 1, b: 2}", "b.yaml": "x: {_delete_key: a}"}
    assert load_files(files).tree["x"] == {"b": 2}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("x: ${copy:base.dep}", "x"),
        ("x: ${inherit_from:base.dep}", "x"),
        ("x: {_copy: base.dep}", "x._copy"),
        ("x: {_inherit_from: base.dep}", "x._inherit_from"),
    ],
)
def test_a_path_that_does_not_exist_is_named_with_its_line(load_files, text, key):
    with pytest.raises(ConfigError) as caught:
        tree_of(load_files, BASE + text)
    expected = f"{key}: base.dep does not exist: there is no dep in base; did you mean deep? (a.yaml:2)"
    assert str(caught.value) == expected


def test_a_path_below_a_scalar_does_not_exist(load_files):
    with pytest.raises(ConfigError, match=r"^x: base\.a\.z does not exist: there is no z in base\.a"):
        tree_of(load_files, BASE + "x: ${copy:base.a.z}")


@pytest.mark.parametrize("text", ["x: ${copy:y}\ny: ${copy:x}", "x: {_copy: x}", "x: {y: {_copy: x}}"])
def test_what_needs_itself_is_an_error(load_files, text):
    with pytest.raises(ConfigError, match=r"needs itself \(a\.yaml:"):
        tree_of(load_files, text)


def test_copy_and_move_exclude_each_other(load_files):
    with pytest.raises(ConfigError, match=r"^x: _inherit_from and _copy exclude each other"):
        tree_of(load_files, BASE + "x: {_copy: base, _inherit_from: base}")


def test_nothing_can_be_laid_over_a_scalar(load_files):
    with pytest.raises(ConfigError, match=r"^x\._copy: names a value that is not a mapping"):
        tree_of(load_files, BASE + "x: {_copy: base.a, b: 1}")


def test_a_directive_names_a_key(load_files):
    with pytest.raises(ConfigError, match=r"^x\._copy: must name a key, not \['base'\] \(a\.yaml:2\)$"):
        tree_of(load_files, BASE + "x: {_copy: [base]}")


def test_a_key_to_delete_from_a_copy_must_exist(load_files):
    with pytest.raises(ConfigError, match=r"^x\._delete_key: there is no dep; did you mean deep\? \(a\.yaml:2\)$"):
        tree_of(load_files, BASE + "x: {_copy: base, _delete_key: dep}")


def test_a_key_to_delete_deep_in_a_copy_must_exist(load_files):
    with pytest.raises(ConfigError, match=r"^x\.deep\._delete_key: there is no d \(a\.yaml:2\)$"):
        tree_of(load_files, BASE + "x: {_inherit_from: base, deep: {_delete_key: d}}")


@pytest.mark.parametrize(
    "text",
    [
        "x: ${copy:s.a}",
        "x: ${copy:s.a.deeper}",
        "x: ${inherit_from:s.a}",
        "x: {_copy: s.a, b: 1}",
        "x: {_inherit_from: s.a.deeper, b: 1}",
    ],
)
def test_a_source_that_is_unset_leaves_the_target_unset(load_files, text):
    with pytest.raises(ConfigError, match=r"unset \(\?\?\?\): .*x"):
        tree_of(load_files, "s: {a: '???'}\n" + text)
