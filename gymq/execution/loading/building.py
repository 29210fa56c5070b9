"""Making the worker of an instance."""

from __future__ import annotations

from gymq.authoring import OptionsError, Worker
from gymq.errors import GymqError
from gymq.execution.loading import registry
from gymq.failures import say_author_error
from gymq.protocol import subjects
from gymq.protocol.instances import Instance


class WorkerFailed(GymqError):
    """A worker whose own code fails while it is made or started; one line."""

    def __init__(self, name: str, what: str, error: BaseException) -> None:
        if isinstance(error, GymqError):  # a sentence already, which may begin with the name
            said = " ".join(str(error).split()).removeprefix(f"{name}: ")
        else:
            said = say_author_error(error)
        super().__init__(f"{name} {what}: {said}")


def build(instance: Instance) -> Worker:
    """Return the worker object of an instance, with its options checked.

    Raises:
        WorkerNotFound, OptionsError, BadToken, WorkerFailed
    """
    found = registry.find_class(instance.kind, instance.implementation)
    name = instance.name
    subjects.instance(name)
    try:
        return found(instance.options, name=name)
    except OptionsError:
        raise
    except Exception as error:
        raise WorkerFailed(name, "cannot be created", error) from error
