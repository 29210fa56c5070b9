"""The configuration: YAML files in the format of NeMo Gym, merged, resolved and checked.

`load` gives a `Config`, or a `ConfigError` that says in one line what is wrong and where.
"""

from gymq.config.addresses import add_addresses
from gymq.config.errors import ConfigError
from gymq.config.instances import Instance
from gymq.config.loader import Config, load
from gymq.config.masking import fingerprint, masked

__all__ = ["Config", "ConfigError", "Instance", "add_addresses", "fingerprint", "load", "masked"]
