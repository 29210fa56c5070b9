"""Hosts and ports for those who come over HTTP."""

import socket

import pytest

from gymq.config import ConfigError
from gymq.ext.nemo_gym.addresses import add_addresses


def tree_with(count, **top_level):
    models = {f"m{i}": {"responses_api_models": {"vllm_model": {"entrypoint": "app.py"}}} for i in range(count)}
    return models | top_level


def options(tree, name):
    return tree[name]["responses_api_models"]["vllm_model"]


def ports(tree):
    return [options(tree, name)["port"] for name in tree if name.startswith("m")]


def test_ports_are_distinct_and_in_the_default_range():
    found = ports(add_addresses(tree_with(20)))
    assert len(set(found)) == 20
    assert all(10001 <= port <= 20000 for port in found)


def test_ports_are_in_a_configured_range():
    tree = add_addresses(tree_with(3, port_range_low=30100, port_range_high=30102), lambda port: True)
    assert sorted(ports(tree)) == [30100, 30101, 30102]


def test_a_configured_host_and_port_are_kept():
    tree = tree_with(2)
    options(tree, "m0").update(host="127.0.0.9", port=15555)
    added = add_addresses(tree)
    assert options(added, "m0") == {"entrypoint": "app.py", "host": "127.0.0.9", "port": 15555}
    assert options(added, "m1")["host"] == "127.0.0.1"


@pytest.mark.parametrize("port", [7, "7", "7.0"])
def test_a_port_configured_further_down_is_not_given_away(port):
    tree = tree_with(3, port_range_low=5, port_range_high=7)
    options(tree, "m2")["port"] = port
    assert sorted(ports(add_addresses(tree, lambda port: True))[:2]) == [5, 6]


def test_the_port_of_the_head_server_is_not_given_away():
    tree = tree_with(2, port_range_low=5, port_range_high=7, head_server={"host": "h", "port": 6})
    assert sorted(ports(add_addresses(tree, lambda port: True))) == [5, 7]


def test_the_default_port_of_the_head_server_is_not_given_away():
    tree = tree_with(1, port_range_low=11000, port_range_high=11001)
    assert ports(add_addresses(tree, lambda port: True)) == [11001]


def test_disallowed_ports_are_not_given_away():
    tree = tree_with(1, port_range_low=5, port_range_high=7, disallowed_ports=[5, "7"])
    assert ports(add_addresses(tree, lambda port: True)) == [6]


def test_a_port_in_use_is_not_given_away():
    with socket.socket() as listener:
        listener.bind(("", 0))
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^m0: no free port from {port} to {port}; "):
            add_addresses(tree_with(1, port_range_low=port, port_range_high=port))


def test_a_free_port_is_found_beside_one_in_use():
    tree = tree_with(1, port_range_low=5, port_range_high=6)
    assert ports(add_addresses(tree, lambda port: port == 6)) == [6]


def test_a_range_smaller_than_the_number_of_instances_is_an_error():
    with pytest.raises(ConfigError, match=r"^m2: no free port from 5 to 6; widen port_range_low and port_range_high"):
        add_addresses(tree_with(3, port_range_low=5, port_range_high=6), lambda port: True)


def test_fifty_attempts_are_made():
    tried = []

    def is_free(port):
        tried.append(port)
        return False

    with pytest.raises(ConfigError, match="no free port"):
        add_addresses(tree_with(1), is_free)
    assert len(tried) == len(set(tried)) == 50


def test_the_default_host_is_used_where_none_is_configured():
    tree = add_addresses(tree_with(1, default_host="0.0.0.0"))
    assert (options(tree, "m0")["host"], tree["head_server"]) == ("0.0.0.0", {"host": "0.0.0.0", "port": 11000})


def test_the_address_of_the_machine_can_be_used(monkeypatch):
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.1.2.3")
    tree = add_addresses(tree_with(1, use_absolute_ip=True, default_host="ignored"))
    assert (options(tree, "m0")["host"], tree["head_server"]["host"]) == ("10.1.2.3", "10.1.2.3")


def test_a_machine_without_an_address_is_an_error(monkeypatch):
    def fail(name):
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "gethostbyname", fail)
    with pytest.raises(ConfigError, match=r"^use_absolute_ip: this machine's name has no address"):
        add_addresses(tree_with(0, use_absolute_ip=True))


def test_the_head_server_and_the_range_get_defaults():
    tree = add_addresses({})
    assert tree == {
        "port_range_low": 10001,
        "port_range_high": 20000,
        "head_server": {"host": "127.0.0.1", "port": 11000},
    }


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_head_server_gets_defaults(empty):
    assert add_addresses({"head_server": empty})["head_server"] == {"host": "127.0.0.1", "port": 11000}


def test_a_head_server_that_is_there_is_left_alone():
    assert add_addresses({"head_server": {"host": "h"}})["head_server"] == {"host": "h"}


def test_a_skipped_instance_gets_no_address():
    tree = add_addresses({"x": {"resources_servers": {"mcqa": {"entrypoint": "app.py"}}}})
    assert tree["x"]["resources_servers"]["mcqa"] == {"entrypoint": "app.py"}


def test_the_configuration_itself_is_not_changed():
    tree = tree_with(1)
    add_addresses(tree)
    assert tree == tree_with(1)


@pytest.mark.parametrize(
    ("top_level", "problem"),
    [
        ({"port_range_low": 20, "port_range_high": 10}, "^port_range_low 20 is above port_range_high 10$"),
        ({"port_range_low": "low"}, "^port_range_low: must be a whole number.*, not 'low'$"),
        ({"port_range_high": 70000}, "^port_range_high: must be less than or equal to 65535, not 70000$"),
        ({"head_server": {"host": "h", "port": "x"}}, r"^head_server\.port: must be a whole number"),
        ({"head_server": "h:80"}, "^head_server: "),
        ({"disallowed_ports": [1, None]}, r"^disallowed_ports\[1\]: must be a whole number$"),
        ({"disallowed_ports": 5}, "^disallowed_ports: "),
        ({"default_host": 5}, "^default_host: must be text, not 5$"),
        ({"use_absolute_ip": "maybe"}, "^use_absolute_ip: "),
    ],
)
def test_settings_that_are_not_valid_are_errors(top_level, problem):
    with pytest.raises(ConfigError, match=problem):
        add_addresses(top_level)


def test_a_head_server_without_a_port_takes_none():
    tree = tree_with(1, port_range_low=11000, port_range_high=11000, head_server={"host": "h", "port": None})
    assert ports(add_addresses(tree, lambda port: True)) == [11000]
