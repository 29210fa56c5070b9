"""One run from Python, `gymq.collect`: a temporary cluster, its rows collected, its result."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

from gymq.authoring import Worker
from gymq.bus import Bus
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster, WorkerProcess
from gymq.cluster.loop_watch import watching_this_process
from gymq.cluster.process_spec import ProcessSpec
from gymq.cluster.server import StoreInUseError
from gymq.cluster.worker_process import InstanceHost
from gymq.config import fingerprint
from gymq.config.assembled import SIMULATED_MODEL
from gymq.config.process_settings import process_variables
from gymq.defaults import PASS_THRESHOLD
from gymq.errors import did_you_mean
from gymq.processes.background import end_task
from gymq.processes.loop_thread import LoopThread
from gymq.render import counted, say
from gymq.runs.collection.arguments import (
    EnvironmentArgument,
    ModelArgument,
    Setup,
    materialise_options,
    output_of,
    read_setup,
    seconds,
    whole_number,
    write_rows,
)
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.driver import OpenCluster, drive
from gymq.runs.collection.failure_limit import MaxFailures
from gymq.runs.collection.options import IN_PYTHON, CollectOptions
from gymq.runs.collection.own_solutions import shown_unsolved, unsolved_rows
from gymq.runs.collection.plan import RunPlan
from gymq.runs.collection.results import RunResult
from gymq.runs.older_rewards import older_rewards
from gymq.runs.stored_runs import Runs

log = logging.getLogger("gymq.runs.collection")

FOLDER = Path(".gymq")


class HostedHere:
    """Workers that are served by this process, as a part of a cluster."""

    def __init__(self, name: str, spec: ProcessSpec, made: Mapping[str, Worker]) -> None:
        self.name = name
        self.spec = spec
        self.serves = False
        self._made = made
        self._host: InstanceHost | None = None
        self._stack = ExitStack()

    async def start(self) -> None:
        """Start the workers.

        Raises:
            BusError, WorkerFailed, WorkerNotFound, OptionsError
        """
        self._host = InstanceHost(self.spec, self._made)
        await self._host.start()
        if self.spec.role == "resources":
            self._stack.enter_context(watching_this_process())
        self.serves = True

    async def stop(self) -> None:
        """Finish what is in flight, and close the connection."""
        self.serves = False
        self._stack.close()
        if self._host is not None:
            await self._host.drain()


@asynccontextmanager
async def _open_cluster(plan: RunPlan, setup: Setup, report: Callable[[str], None]) -> AsyncIterator[OpenCluster]:
    """Check a plan, and start the workers: those made here in this process, the others in processes of their own."""
    plan.check()
    if setup.is_simulated:
        report(f"no model is given, so {SIMULATED_MODEL} is used")
    await plan.probe([instance for instance in setup.config.instances if instance.name not in setup.made], report)
    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(_cluster_in(FOLDER, plan, setup))
        except StoreInUseError:  # one server at a time may use the store of this folder
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="gymq-"))
            cluster = await stack.enter_async_context(_cluster_in(Path(temporary), plan, setup))
        bus = await stack.enter_async_context(await Bus.connect(cluster.url, role="client", name="gymq.collect"))
        yield OpenCluster(bus, plan.models)


def _cluster_in(folder: Path, plan: RunPlan, setup: Setup) -> Cluster:
    def process(name: str, spec: ProcessSpec) -> WorkerProcess:
        if any(instance.name in setup.made for instance in spec.instances):
            return HostedHere(name, spec, setup.made)
        return Child(name, spec, folder / "logs" / f"{name}.log", folder / "environments")

    async def prepare(bus: Bus) -> None:
        await Runs(bus).delete_tasks_of_others(fingerprint(setup.config.tree), resumed=plan.files.read_run())

    return Cluster(
        setup.config.instances,
        folder=folder,
        log_level="warning",
        variables=process_variables(setup.config.tree),
        new_child=process,
        prepare=prepare,
    )


async def acollect(
    environment: EnvironmentArgument,
    rows: Iterable[Mapping[str, Any]] | str | Path,
    *,
    model: ModelArgument = None,
    model_name: str | None = None,
    options: Mapping[str, Any] | None = None,
    prompt_field: str | None = None,
    repeats: int = 1,
    limit: int | None = None,
    sampling: Mapping[str, Any] | None = None,
    concurrency: int = 1024,
    timeout_s: float = 3600.0,
    pass_threshold: float = PASS_THRESHOLD,
    max_failures: int | str | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> RunResult:
    """Roll rows out and return the result. The same call resumes a run that was interrupted.

    Args:
        environment: a class derived from `gymq.Resources`, the name of a worker (`"mcqa"`), a Python file with a class,
            or one or several configuration files. A class is served by this process.
        rows: dicts, a data frame, or a data set as `gymq collect` reads it: a file, a folder, a name of the Hub. The
            prompt of a row is its `prompt`, `question`, `input` or `messages`, a text or a list of messages.
        model: the policy: the URL of an OpenAI-compatible endpoint, the name or file of a model worker, an instance
            as in a configuration, a function from the parameters of a request to a text or a response, async or not,
            or a class derived from `gymq.Model`. None: that of the configuration, or else `simulated_model`.
        model_name: the name the endpoint knows the model by.
        options: options of the environment, if it is a class or a file. If it needs a judge and none is set, the
            policy judges.
        prompt_field: name of another field with the prompt.
        repeats: rollouts a row.
        limit: use only so many rows; None: all.
        sampling: parameters of the requests, such as `{"temperature": 0.7}`; they replace those of the rows.
        concurrency: rollouts in flight at most.
        timeout_s: seconds a rollout may take.
        pass_threshold: smallest reward with which a rollout passes.
        max_failures: stop when more rollouts fail than this number, or this share of all, such as `"5%"`; None: when
            the first 32 fail for one reason, or any 32 in a row because the configuration is wrong.
        output: file for the rollouts, JSONL; None: one in the folder `runs` that is named after the arguments.
        overwrite: delete what an earlier run left at the output.
        progress: whether to show how far it is, on standard error.

    Returns:
        The result, failures included.

    Raises:
        ValueError, TypeError, ConfigError, WorkerNotFound, OptionsError: an argument cannot be used.
        UsageError: the run cannot be started, or resumed, or the endpoint of a model refuses the first request.
        RowError, JsonlError: none of the rows can be used.
    """
    window, rollout_timeout_s = whole_number("concurrency", concurrency), seconds("timeout_s", timeout_s)
    setup = read_setup(environment, model=model, model_name=model_name, options=options)
    materialise = materialise_options(setup, repeats, limit, sampling, prompt_field)
    file = Path(output) if output is not None else output_of(setup, rows, model, model_name)
    result = RunResult(file, pass_threshold=pass_threshold)
    with tempfile.TemporaryDirectory(prefix="gymq-rows-") as temporary:
        collect_options = CollectOptions(
            input=Path(rows) if isinstance(rows, str | Path) else write_rows(rows, Path(temporary) / "rows.jsonl"),
            output=file,
            materialise=materialise,
            window=window,
            rollout_timeout_s=rollout_timeout_s,
            score_with=setup.score_with,
            overwrite=overwrite,
            max_failures=None if max_failures is None else MaxFailures.parse(str(max_failures)),
            rows_of_a_list=not isinstance(rows, str | Path),
            wording=IN_PYTHON,
        )
        plan = RunPlan.with_workers(collect_options, setup.config, setup.made)
        opening = _open_cluster(plan, setup, say if progress else log.warning)
        collection = await drive(plan, opening, say if progress else log.info, quiet=not progress)
        if unsolved := await asyncio.to_thread(unsolved_rows, plan):
            log.warning("%s", shown_unsolved(unsolved))
    _log_end(collection)
    return result


def _log_end(collection: Collection) -> None:
    """Log what is wrong with a run that has ended."""
    for warning in collection.warnings:
        log.warning("%s", warning)
    if refused := collection.progress.refused:
        log.warning("%s cannot be used: %s has why", counted(refused, "row"), collection.files.failures)
    for group in collection.failed:
        failed = counted(group.num_rollouts, "rollout")
        log.warning("%s failed with %s, for example: %s", failed, group.failure_class, group.message)
    for older in older_rewards(collection.files):
        log.warning("%s", older)
    if collection.stopped:
        log.warning("stopped: %s; %s resumes the run", collection.stopped, IN_PYTHON.again)


P = ParamSpec("P")


def _blocking(function: Callable[P, Coroutine[Any, Any, RunResult]]) -> Callable[P, RunResult]:
    """Return a function with the same parameters that waits for the result."""

    signature = inspect.signature(function)

    @functools.wraps(function)
    def wait(*args: P.args, **kwargs: P.kwargs) -> RunResult:
        for name in kwargs.keys() - signature.parameters.keys():
            hint = did_you_mean(name, signature.parameters)
            raise TypeError(f"collect() got an unexpected keyword argument {name!r}{hint}")
        signature.bind(*args, **kwargs)  # its error does not name another function than the one called
        return _waited_for(function(*args, **kwargs))

    wait.__name__ = wait.__qualname__ = "collect"
    wait.__doc__ = "Do what `acollect` does, with the same arguments, and wait for it; in a notebook too."
    return wait


def _waited_for(work: Coroutine[Any, Any, RunResult]) -> RunResult:
    if not _is_loop_running():
        return asyncio.run(work)
    thread = LoopThread()  # the loop that runs here, as in a notebook, cannot be waited for
    try:
        task = thread.do(lambda: asyncio.create_task(work))
        try:
            return thread.run(_result_of(task))
        finally:
            thread.run(end_task(task))  # Ctrl-C comes while its cluster still runs
    finally:
        thread.stop()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _result_of(task: asyncio.Task[RunResult]) -> RunResult:
    return await task


collect = _blocking(acollect)
