"""Define the command `gymq collect`."""

from __future__ import annotations

from gymq.cli.shared.parameters import CollectArguments

DEFAULTS = CollectArguments()


def collect(*overrides: str, options: CollectArguments = DEFAULTS) -> int:
    """Roll out a data set: rows in, verified rollouts and pass@k out.

    Joins the cluster running in this folder or at --nats, or starts a temporary one. Run the same command again to
    resume an interrupted collection.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`; those of
            `responses_create_params` set sampling parameters.
    """
    from gymq.cli.actions.collect import collect_rollouts

    return collect_rollouts(overrides, options)
