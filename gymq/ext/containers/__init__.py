"""Containers of Docker and Apptainer, where programs run."""

from gymq.ext.containers.container import Apptainer as Apptainer
from gymq.ext.containers.docker import FEWER_PRIVILEGES as FEWER_PRIVILEGES
from gymq.ext.containers.docker import NETWORK as NETWORK
from gymq.ext.containers.docker import Docker as Docker
from gymq.ext.containers.docker import network_address as network_address
