"""The model that judges in a check of a worker."""

from dataclasses import replace

from gymq.execution.loading.worker_source import find_worker
from gymq.ext.workbench.checking import settings_of
from tests.cli.test_judges import judged as judged

ADVICE = "so policy_model judges; a configuration (--config) names another\n"


def test_the_advice_of_a_check_is_a_configuration(judged, capsys):
    settings = settings_of(replace(find_worker(str(judged)), rows=judged), (), ())
    assert settings is not None
    assert ADVICE in capsys.readouterr().err
