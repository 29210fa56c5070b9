"""NeMo RL with its rollouts over NATS: its environment actor is replaced by gymq's, then its own script runs.

python examples/trainers/nemo_rl_grpo.py PATH/TO/NeMo-RL/examples/nemo_gym/run_grpo_nemo_gym.py --config CONFIG

In its configuration, `env.nemo_gym` is a configuration of gymq's workers. With

    env:
      nemo_gym:
        gymq: {nats: nats://..., run: my-training}

a cluster that runs already is joined. Its model worker has to ask the engines of NeMo RL.

Install gymq in the environment of NeMo RL's driver: `uv pip install 'gymq[ray]'`. The actor runs in it too, in place of
the environment that NeMo RL makes for its own actor with the extra `nemo_gym`.
"""

from __future__ import annotations

import runpy
import sys

from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
from nemo_rl.environments import nemo_gym

from gymq.ext.trainers.nemo_rl import remote_class


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ACTOR_ENVIRONMENT_REGISTRY["nemo_rl.environments.nemo_gym.NemoGym"] = sys.executable
    nemo_gym.NemoGym = remote_class(nemo_gym.NemoGym)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
