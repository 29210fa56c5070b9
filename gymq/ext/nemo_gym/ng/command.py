"""Define the command `gymq ng`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App, Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import OF_THE_ROWS

ng = App(
    name="ng",
    help="Run NeMo Gym's commands with their own arguments, such as `+config_paths=[...]`.",
    default_parameter=Parameter(negative=()),
)


@ng.command
def run(*settings: str) -> int:
    """Start a cluster with a bridge, as `ng_run` starts servers: `gymq up`.

    Args:
        settings: changes to the configuration, such as `+config_paths=[a.yaml,b.yaml]` and `++KEY=VALUE`.
    """
    from gymq.cli.up import up
    from gymq.ext.nemo_gym.ng.collecting import bridge_overrides

    return up(*settings, *bridge_overrides(settings))


@ng.command
def collect_rollouts(*settings: str) -> int:
    """Roll out a data set, as `ng_collect_rollouts` does: `gymq collect`.

    Args:
        settings: `+input_jsonl_fpath=` and `+output_jsonl_fpath=`; `+agent_name=`, `+limit=`, `+num_repeats=`,
            `+num_repeats_add_seed=`, `+num_samples_in_parallel=`, `+prompt_config=`, `+resume_from_cache=` and
            `+responses_create_params={...}`; and changes to the configuration. `+head_server.host=` and
            `+head_server.port=` name the servers of a bridge, or of NeMo Gym, on another machine.
    """
    from gymq.cli.collect import collect
    from gymq.ext.nemo_gym.ng.collecting import collection_of, head_server_of

    overrides, options = collection_of(settings)
    found = head_server_of(overrides)
    if found is None:
        return collect(*overrides, options=options)
    from gymq.cli.shared.sampling import read_sampling
    from gymq.ext.nemo_gym.ng.head_server import collect_from

    params, _ = read_sampling(overrides, OF_THE_ROWS)
    return collect_from(found[0], options, params, found[1])


@ng.command
def e2e_collect_rollouts(*settings: str) -> int:
    """Roll out the data sets of a split, with dedicated workers, as `ng_e2e_collect_rollouts` does.

    Args:
        settings: `+split=` train, validation or benchmark; `+reuse_existing_data_preparation=true`; and those of
            `ng_collect_rollouts` except for the input.
    """
    from gymq.cli.collect import collect
    from gymq.ext.nemo_gym.ng.collecting import end_to_end_of

    overrides, options = end_to_end_of(settings)
    return collect(*overrides, options=options)


@ng.command
def test(*settings: str) -> int:
    """Check a worker, as `ng_test` does: `gymq test`.

    Args:
        settings: `+entrypoint=resources_servers/NAME`.
    """
    from gymq.cli import make_app
    from gymq.ext.nemo_gym.ng.collecting import worker_of

    status: int = make_app("test")(["test", worker_of(settings)], result_action="return_value")
    return status


@ng.command
def reward_profile(*settings: str) -> int:
    """Write the statistics of a run, as `ng_reward_profile` does: `gymq profile`.

    Args:
        settings: `+materialized_inputs_jsonl_fpath=` and `+rollouts_jsonl_fpath=`; `+allow_partial_rollouts=true`.
    """
    from gymq.ext.nemo_gym.ng.collecting import profile_ng_files

    return profile_ng_files(settings)


@ng.command
def status(*settings: str) -> int:
    """Show the workers and queues of the cluster, as `ng_status` shows servers: `gymq status`.

    Args:
        settings: accepted but not used: the cluster of this folder is found without an address.
    """
    from gymq.cli import make_app

    shown: int = make_app("status")(["status"], result_action="return_value")
    return shown


@ng.command
def dump_config(*settings: str) -> int:
    """Print the resolved configuration, as `ng_dump_config` does: `gymq config show`.

    Args:
        settings: changes to the configuration, such as `+config_paths=[a.yaml,b.yaml]`.
    """
    from gymq.cli import make_app

    status: int = make_app("config")(["config", "show", *settings], result_action="return_value")
    return status


@ng.command
def install(
    folder: Path | None = None,
    /,
    *,
    overwrite: bool = False,
) -> int:
    """Write the programs `ng_run`, `ng_collect_rollouts` and so on, which run these commands.

    Args:
        folder: folder for the programs; default: the one that has `gymq` in this environment.
        overwrite: replace programs of the same names, such as those of NeMo Gym.
    """
    from gymq.ext.nemo_gym.ng.collecting import install_programs

    install_programs(folder, overwrite=overwrite)
    return 0


NG = Command("Run", "Run NeMo Gym's commands with their own arguments.", "gymq.ext.nemo_gym.ng.command:ng")
