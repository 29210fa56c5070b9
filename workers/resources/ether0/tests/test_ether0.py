"""What the recorded cases cannot say: the real filters and server, hostile answers, what is missing."""

import importlib
import sys
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from gymq.workers.resources.ether0.worker import Ether0, read_answer, read_solution

import gymq
from gymq.testing import Harness, prompt, reply

pytest.importorskip("rdkit", reason='needs pip install "gymq[ether0]"')
molecules = importlib.import_module("gymq.workers.resources.ether0.molecules")
evaluation = importlib.import_module("gymq.workers.resources.ether0.evaluation")
filters = importlib.import_module("gymq.workers.resources.ether0.filters")

TOKEN = "remotes-secret-token"
ESTER = "CC(=O)OCC"
REACTION = "CC(=O)Cl.OCC>>CC(=O)OCC"


def row(function, info, **metadata):
    return {**prompt("?"), "verifier_metadata": {"solution": f"{function}!:!{info}!:!type", **metadata}}


def answer(text):
    return reply(f"<answer>{text}</answer>")


def right(function, text, info):
    return evaluation.evaluate(function, text, info).right


@pytest.fixture
def known(tmp_path):
    """A folder with filters that know the words of toluene and of ethyl acetate."""
    molbloom = pytest.importorskip("molbloom", reason='needs pip install "gymq[ether0]"')
    rings, fingerprints = (molbloom.CustomFilter(10_000, 100, name) for name in filters.NAMES)
    for smiles in ("Cc1ccccc1", ESTER):
        words = molecules.words_of(molecules.Chem.MolFromSmiles(smiles))
        for ring in words.ring_systems:
            rings.add(molbloom.canon(ring))
        for bit in words.fingerprint_bits:
            fingerprints.add(bit)
    rings.save(str(tmp_path / "rings.bloom"))
    fingerprints.save(str(tmp_path / "fingerprints.bloom"))
    return tmp_path


async def test_filters_decide_whether_a_molecule_is_plausible(known):
    async with Harness(Ether0, {"filters_dir": str(known)}) as env:
        rewards = [
            (await env.verify(row("valid_mol_eval", "C"), answer(smiles))).reward
            for smiles in ("Cc1ccccc1", "C" + ESTER[1:] + ".Cl", "C1CC1", "CNN", ESTER + ".OCCCCCO", ESTER + ".Cl.Cl")
        ]
    assert rewards == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


async def test_what_the_reference_has_is_plausible(known):
    async with Harness(Ether0, {"filters_dir": str(known)}) as env:
        verdict = await env.verify(row("formula_eval", "C1CC1"), answer("C1CC1"))
    assert verdict.reward == 1.0


async def test_a_row_that_needs_what_is_not_there_is_a_failure_whatever_the_answer():
    async with Harness(Ether0) as env:
        for function, missing in [("formula_eval", "filters_dir"), ("rxn_forward", "remotes_url")]:
            for response in (answer("CCO"), reply("I do not know.")):
                with pytest.raises(gymq.RolloutError, match=missing) as caught:
                    await env.verify(row(function, "CCO"), response)
                assert caught.value.failure_class is gymq.FailureClass.COMPONENT_FAILED
                assert not caught.value.retryable


async def test_a_folder_without_filters_is_refused(tmp_path):
    with pytest.raises(gymq.OptionsError, match=r"no rings\.bloom and no fingerprints\.bloom"):
        await Ether0({"filters_dir": str(tmp_path)}).start()


async def test_a_chain_that_is_too_long_for_the_library_is_wrong():
    async with Harness(Ether0) as env:
        assert (await env.verify(row("product_eval", "CCCCO"), answer("C" * 20_000))).reward == 0.0


class FakeRemotes:
    """ether0's prediction server: bearer token first, then what it is set to predict."""

    def __init__(self, **predictions):
        self.predictions = predictions
        self.asked = []

    async def handle(self, request):
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"detail": "Incorrect bearer token"}, status=401)
        path = request.match_info["path"]
        self.asked.append((path, await request.json()))
        found = self.predictions[path]
        if isinstance(found, int):
            return web.json_response({"detail": TOKEN}, status=found)
        return web.json_response(found)


@asynccontextmanager
async def predicting(fake, **options):
    app = web.Application()
    app.router.add_post("/{path}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with Harness(Ether0, {"remotes_url": url, "remotes_token": TOKEN} | options) as env:
            yield env
    finally:
        await runner.cleanup()


async def test_the_solubility_is_predicted_by_the_server(known):
    fake, info = FakeRemotes(), "('scaffold', 'c1ccccc1', -2.0, 'increase')"
    async with predicting(fake, filters_dir=str(known)) as env:
        for mean, reward in [(-2.0, 1.0), (-2.48, 1.0), (-2.5, 0.0), (-1.5, 0.0)]:
            fake.predictions = {"compute_solubility": {"mean": mean, "au": 0.1, "eu": 0.1}}
            assert (await env.verify(row("sol_eval", info), answer("Cc1ccccc1"))).reward == reward
        assert (await env.verify(row("sol_eval", info), answer(ESTER))).reward == 0.0
    assert fake.asked == [("compute_solubility", {"smiles": "Cc1ccccc1"})] * 4


async def test_a_reaction_needs_reactants_for_sale_and_the_right_product():
    acid = "CC(=O)CCCl"
    reaction = f"{acid}.OCC>>"
    fake, outcomes = (
        FakeRemotes(),
        [(True, "CCOC(C)=O", 1.0), (False, ESTER, 0.0), (True, "CCO", 0.0), (True, "?", 0.0)],
    )
    async with predicting(fake) as env:
        for for_sale, product, reward in outcomes:
            fake.predictions = {"is_purchasable": {acid: for_sale}, "translate": {"product": product, "id": "1"}}
            fake.asked = []
            assert (await env.verify(row("rxn_forward", ESTER), answer(reaction))).reward == reward
            assert fake.asked[0] == ("is_purchasable", {"smiles": [acid, "OCC"]})
            assert fake.asked[1:] == ([("translate", {"reaction": reaction})] if for_sale else [])


async def test_a_server_without_a_prediction_is_no_zero_and_its_token_is_not_told():
    fake = FakeRemotes()
    sold: dict[str, Any] = {"is_purchasable": {"CC(=O)Cl": True}}
    failing: list[dict[str, Any]] = [
        {"is_purchasable": 500},
        {"is_purchasable": ["x"]},
        sold | {"translate": {"error": "no"}},
        sold | {"translate": {"product": None}},
    ]
    async with predicting(fake) as env:
        assert TOKEN not in repr(env.author.options)
        for predictions in failing:
            fake.predictions = predictions
            with pytest.raises(gymq.ComponentFailed) as caught:
                await env.verify(row("rxn_forward", ESTER), answer(REACTION))
            assert TOKEN not in str(caught.value)


async def test_a_server_out_of_reach_is_no_zero():
    async with Harness(Ether0, {"remotes_url": "http://127.0.0.1:9"}) as env:
        with pytest.raises(gymq.ComponentFailed, match="ClientConnectorError"):
            await env.verify(row("rxn_forward", ESTER), answer(REACTION))


@pytest.mark.parametrize(
    "reaction",
    [
        "CC(=O)Cl.OCC>CC(=O)OCC",
        "CC(=O)Cl.OCC>>>",
        "CC(=O)ClOCC>>",
        "CC(=O)Cl.OC(C>>",
        "CC(=O)Cl.OCC>zz>",
        "CC(=O)Cl.OCC>>CCO",
        "CC(=O)OCC.OCC>>",
        "CC(=O)Cl.OCC>CCOC(C)=O>",
        "C.O>>",
    ],
)
def test_a_reaction_that_makes_no_sense_is_wrong_without_asking(reaction):
    assert not right("rxn_forward", reaction, ESTER)


@pytest.mark.parametrize(
    ("function", "text", "info", "expected"),
    [
        ("str_eval", " 2-(Methyl)-propane$", "2-methyl-propane", True),
        ("str_eval", "bicyclo[2.2.1]heptane", "bicyclo{2.2.1}heptane", False),
        ("str_eval", "^{1,2}x {n}-y", "^(1,2)x-n-y", True),
        ("rxn_eval", "2\u2010methyl, propane", "2-methyl propane", True),
        ("rxn_eval", "2\u2010methyl,propane", "2-methylpropane", True),
        ("str_eval", "2\u2010methylpropane", "2-methylpropane", False),
        ("product_eval", "OC(C)C.[Na+].Cl", "CC(C)O", True),
        ("product_eval", "CCO", "CCO", False),
        ("product_eval", "C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", False),
        ("product_eval", "not a molecule", "CC(C)O", False),
        ("should_answer_eval", "CC#N", "", True),
        ("should_answer_eval", "CC#", "", False),
        ("functional_group_eval", "CC(=O)O", "('C2H4O2', ['Carboxylic Acid'])", True),
        ("functional_group_eval", "COC=O", "('C2H4O2', ['carboxylic acid'])", False),
        ("functional_group_eval", "CC(=O)O", "__import__('os').system('true')", False),
        ("sol_eval", "Cc1ccccc1", "('tanimoto', 'Cc1ccccc1', -2, 'up')", True),
        ("sol_eval", "Cc1ccccc1.O", "('tanimoto', 'Cc1ccccc1', -2, 'up')", False),
        ("sol_eval", "Cc1ccccc1", "('colour', 'Cc1ccccc1', -2, 'up')", False),
        ("no_such_eval", "CCO", "CCO", False),
    ],
)
def test_evaluation_functions(function, text, info, expected):
    assert right(function, text, info) is expected


def test_ring_systems_keep_what_is_bound_by_a_double_bond():
    rings = molecules.ring_systems(molecules.Chem.MolFromSmiles("O=C1CCCC1c1ccc2[nH]ccc2c1"))
    assert rings == {"O=C1CCCC1", "c1ccc2[nH]ccc2c1"}


@pytest.mark.parametrize(
    ("text", "choices", "expected"),
    [
        ("<answer>CC</answer> <|answer_start|> CO\n<|answer_end|>", None, "CO"),
        ("<answer>CC</answer><answer> </answer>", None, "CC"),
        ("<answer>a <answer>CC</answer> \\boxed{CO}", None, "CO"),
        ("<answer></answer> \\boxed{\\ce{C{2}}} ", None, "\\ce{C{2}}"),
        ("\\boxed{CC} \\boxed{ }\nAnswer: B", {"B": "CO"}, None),
        ("Answer: A\nAnswer : b ", {"B": "CO"}, "CO"),
        ("Answer: B.", {"B": "CO"}, None),
        ("<answer>n</answer>", {"B": "CO"}, "n"),
        ("<answer>CC", None, None),
        ("<answer>" * 200_000, None, None),
        ("<answer> " * 100_000 + "</answer>", None, None),
        ("\\boxed{" * 100_000, None, None),
    ],
    ids=range(12),
)
def test_answers_are_read_from_tags_boxes_and_letters(text, choices, expected):
    assert read_answer(text, choices) == expected


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ("str_eval!:!a!:!b!:!c", ("str_eval", "a")),
        ("str_eval!:!a", None),
        ({"fxn_name": "str_eval", "answer_info": "a", "problem_type": "p"}, ("str_eval", "a")),
        ({"fxn_name": "str_eval", "answer_info": 5, "problem_type": "p"}, None),
        (None, None),
    ],
)
def test_a_solution_is_a_text_or_an_object(solution, expected):
    assert read_solution(solution) == expected


async def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "gymq.workers.resources.ether0.evaluation")
    monkeypatch.delattr("gymq.workers.resources.ether0.evaluation")
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(gymq.OptionsError, match=r'rdkit is not installed: pip install "gymq\[ether0\]"'):
        await Ether0().start()
