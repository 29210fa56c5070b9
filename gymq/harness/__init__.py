"""Programs as agents: a place to run them in, and the model calls that they make there."""

from gymq.harness.capture import Capture as Capture
from gymq.harness.containers import FEWER_PRIVILEGES as FEWER_PRIVILEGES
from gymq.harness.containers import Apptainer as Apptainer
from gymq.harness.containers import Docker as Docker
from gymq.harness.containers import network_address as network_address
from gymq.harness.places import Ended as Ended
from gymq.harness.places import Place as Place
from gymq.harness.places import Process as Process
from gymq.harness.ray import Ray as Ray
