"""Verifiers that run in processes, and things to run there. Imported by name, as the processes do."""

import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pebble.pool.channel import WorkerChannel

import gymq


class Verifier(gymq.Resources[gymq.Row]):
    """Does what the row's `deed` says."""

    reward_range = (0.0, 1.0)
    verify_timeout_s = 1.0

    def verify_in_process(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        row: Any = request.row
        result: gymq.Verdict = DEEDS[row.deed]()
        return result


class StatefulVerifier(gymq.Resources[gymq.Row, dict[str, int]]):
    """Gets the session's state as a copy."""

    async def open(self, row: gymq.Row) -> dict[str, int]:
        return {"count": 3}

    def verify_in_process(self, request: gymq.VerifyRequest[gymq.Row, dict[str, int]]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        return gymq.Verdict(float(state["count"]), process=os.getpid())


class Secretive(gymq.Verdict):
    """Becomes something else on its way back."""

    def __reduce__(self) -> Any:
        return str, (1.0,)


class Undecided(gymq.Verdict):
    """Its reward is no number any more when it arrives."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.reward = "1.0"  # type: ignore[assignment]


class NoPickle(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("stays here")


class NoUnpickle(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("needs two")


def loop_for_ever() -> Any:
    while True:
        pass


def sleep_for_ever() -> Any:
    time.sleep(3600)


def ignore_signals_and_loop() -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return loop_for_ever()


def exit_process() -> Any:
    os._exit(7)


def kill_process() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def die_while_sending() -> Any:
    """Die as of a lack of memory, while this process holds what Pebble locks to send a result."""
    channel = next(one for one in gc.get_objects() if type(one) is WorkerChannel)
    channel.mutex.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> Any:
    sys.exit(3)


def raise_value_error() -> Any:
    raise ValueError("wrong value")


def raise_without_pickle() -> Any:
    raise NoPickle("x")


def raise_without_unpickle() -> Any:
    raise NoUnpickle(1, 2)


def recurse() -> Any:
    return recurse()


def leave_a_thread() -> Any:
    threading.Thread(target=time.sleep, args=(0.1,), daemon=False).start()
    return gymq.Verdict(0.25)


def write_pid_and_loop(path: str) -> Any:
    Path(path).write_text(str(os.getpid()))
    return loop_for_ever()


def add(one: int, two: int) -> int:
    return one + two


def pid() -> int:
    return os.getpid()


def compute_and_give_pid(cpu_s: float) -> int:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
    return os.getpid()


def wait_and_give_pid(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def prepare() -> None:
    os.environ["PREPARED"] = "yes"


def prepared() -> str | None:
    return os.environ.get("PREPARED")


DEEDS: dict[str, Any] = {
    "good": lambda: gymq.Verdict(0.5, note="fine"),
    "loop": loop_for_ever,
    "sleep": sleep_for_ever,
    "stubborn loop": ignore_signals_and_loop,
    "exit": exit_process,
    "kill": kill_process,
    "segfault": segfault,
    "sys.exit": leave,
    "raise": raise_value_error,
    "raise what cannot be pickled": raise_without_pickle,
    "raise what cannot be unpickled": raise_without_unpickle,
    "recurse": recurse,
    "none": lambda: None,
    "no number": lambda: "1.0",
    "nan": lambda: gymq.Verdict(float("nan")),
    "more than it declares": lambda: gymq.Verdict(1.5),
    "infinite": lambda: gymq.Verdict(float("inf")),
    "text": lambda: gymq.Verdict("1.0"),  # type: ignore[arg-type]
    "text later": Undecided,
    "nothing": lambda: gymq.Verdict(None),  # type: ignore[arg-type]
    "something else": lambda: Secretive(1.0),
    "what cannot be pickled": lambda: gymq.Verdict(1.0, thing=lambda: 1),
    "thread": leave_a_thread,
}


def take_memory(size: int) -> int:
    return len(bytearray(size))
