"""Configurations without a policy of their own."""

import pytest

from gymq.config import ConfigError
from gymq.config.assembled import POLICY, SIMULATED_MODEL, load_with_policy


def test_a_policy_that_is_missing_is_simulated_and_nothing_else_is(tmp_path, monkeypatch, files):
    monkeypatch.chdir(tmp_path)
    del files["model.yaml"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    config, added = load_with_policy(list(files), initial={})
    assert config.instance(POLICY).implementation == SIMULATED_MODEL
    assert list(added) == [POLICY]
    with pytest.raises(ConfigError, match="capitals"):
        load_with_policy(["agent.yaml"], initial={})
