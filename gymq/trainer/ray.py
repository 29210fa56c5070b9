"""The earlier name of `gymq.trainer.nemo_rl`."""

from gymq.trainer.nemo_rl import NemoGym as NemoGym
from gymq.trainer.nemo_rl import remote_class as remote_class
