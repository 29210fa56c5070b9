"""The model that judges where a verifier verifies again."""

from tests.cli.test_judges import judged as judged

ADVICE = "so policy_model judges; a configuration (--config) names another\n"


def test_the_advice_of_a_command_without_options_for_a_judge_is_a_configuration(gymq, here, judged):
    (here / "rows.jsonl").write_text("")
    policy = ["--config", "workers/models/simulated_model/config.yaml"]
    called = gymq("score", "--resources", judged, *policy, "--rollouts", "rows.jsonl", "-o", "out.jsonl")
    assert ADVICE in called.err
