"""Environments in the forms of the first version work as before, with one warning that says what each form becomes."""

import os
import warnings

import pytest

import gymq
from gymq.execution.loading.contract import check_contract
from gymq.testing import Harness, prompt, reply

ROW = prompt("?")


class Till(gymq.Resources[gymq.Row]):
    """All of the old forms at once, but for that of `Computing`."""

    def open(self, row):
        return {"amount": 5}

    def reseed(self, state, row):
        return {"amount": state["amount"] + 1}

    def close(self, state):
        state["closed"] = True

    async def verify(self, request, state):  # type: ignore[override]
        return gymq.Verdict(float(state["amount"]), seen=request.state is state)


class Computing(gymq.Resources[gymq.Row]):
    def open(self, row):
        return {"amount": 3}

    def verify(self, request, state):  # type: ignore[override]
        return gymq.Verdict(state["amount"], process=os.getpid())


class Optional(gymq.Resources[gymq.Row]):
    """One verifier for stateless and stateful classes."""

    async def verify(self, request, state=None):
        return float(state is None)


class Present(gymq.Resources[gymq.Row, int]):
    async def open(self, row):
        return 7

    def verify_in_process(self, request):
        return float(request.state)


def warnings_of(worker):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_contract(worker)
    return [str(each.message) for each in caught if each.category is DeprecationWarning]


def test_the_warning_says_what_each_form_becomes():
    assert warnings_of(Till) == [
        "Till has forms that gymq 0.2 will not accept: `open` becomes `async def open(self, row)`; "
        "`reseed` becomes `async def reseed(self, state, row)`; `close` becomes `async def close(self, state)`; "
        "the parameter `state` of `verify` becomes `request.state`"
    ]
    assert "`verify` becomes `def verify_in_process(self, request)`, or `async`" in warnings_of(Computing)[0]


def test_the_warning_has_the_line_of_the_class():
    with pytest.warns(DeprecationWarning, match="Till has forms") as caught:
        check_contract(Till)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("worker", [Optional, Present])
def test_nothing_is_said_of_the_present_forms(worker):
    assert not warnings_of(worker)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_sessions_without_async_work():
    async with Harness(Till) as env:
        session = await env.session(ROW)
        first = await session.verify(ROW, reply("!"))
        await session.seed(ROW)
        again = await session.verify(ROW, reply("!"))
        await session.close()
    assert (first.reward, again.reward, first.fields) == (5.0, 6.0, {"seen": True})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_verifier_without_async_runs_in_a_process():
    async with Harness(Computing) as env:
        verdict = await env.verify(ROW, reply("!"))
    assert verdict.reward == 3.0
    assert verdict.fields["process"] != os.getpid()


async def test_the_state_of_the_present_form_goes_to_the_process():
    async with Harness(Present) as env:
        assert (await env.verify(ROW, reply("!"))).reward == 7.0


def test_the_fields_of_a_verdict_have_their_earlier_name():
    with pytest.warns(DeprecationWarning, match="Verdict.fields"):
        assert gymq.Verdict(1.0, seen=True).members == {"seen": True}
