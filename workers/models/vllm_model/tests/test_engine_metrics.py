"""The load of an engine, as vLLM, SGLang, TensorRT-LLM and Dynamo state it."""

from __future__ import annotations

import pytest
from gymq.workers.models.vllm_model.engine_metrics import EngineReport, read_metrics

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="policy"} 5.0
vllm:num_requests_running{engine="1",model_name="policy"} 3.0
vllm:num_requests_waiting{engine="0",model_name="policy"} 2.0
vllm:num_requests_waiting{engine="1",model_name="policy"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="policy",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="policy"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="policy"} 0.5
vllm:num_requests_running_total{engine="0"} 999.0
"""
OF_RANK = 'block_size="16",enable_prefix_caching="True",num_gpu_blocks="2048"'


def test_vllm_states_its_ranks_one_by_one() -> None:
    assert read_metrics(VLLM) == EngineReport(8, 2, 0.5)


@pytest.mark.parametrize("name", ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"])
def test_vllm_has_two_names_for_the_use_of_its_cache(name: str) -> None:
    report = read_metrics(f"vllm:num_requests_running 1.0\n{name} 0.75\n")
    assert report == EngineReport(1, 0, 0.75)


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ([OF_RANK], 16 * 2048),
        ([OF_RANK] * 2, 16 * 2048),  # each rank states the blocks of all
        ([f'{OF_RANK},kv_cache_size_tokens="16000"'] * 2, 32000),  # and its own tokens
        ([OF_RANK.replace("True", "False")], 0),
        ([OF_RANK.replace("2048", "None")], 0),
        ([r'cache_dtype="a \"}, ,block_size=\"7\" b",' + OF_RANK], 16 * 2048),
    ],
)
def test_what_vllms_caches_hold_is_in_the_labels_of_its_configuration(labels: list[str], tokens: int) -> None:
    lines = (f'vllm:cache_config_info{{{label},engine="{rank}"}} 1.0\n' for rank, label in enumerate(labels))
    report = read_metrics(VLLM + "".join(lines))
    assert report is not None
    assert report.kv_cache_tokens == tokens


def test_sglang_states_the_same_for_each_tensor_parallel_rank() -> None:
    text = "".join(
        f'sglang:{name}{{dp_rank="{data}",model_name="m",pp_rank="0",tp_rank="{tensor}"}} {value + data}\n'
        for data in range(2)
        for tensor in range(2)
        for name, value in (("num_running_reqs", 4), ("num_queue_reqs", 1), ("max_total_num_tokens", 5000))
    )
    text += 'sglang:num_running_reqs{dp_rank="0",priority="3",tp_rank="0"} 99\nsglang:token_usage{dp_rank="1"} 0.9\n'
    assert read_metrics(text) == EngineReport(9, 3, 0.9, 10001)


def test_tensorrt_llm() -> None:
    text = """\
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 7.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 2.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.5
trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="m"} 1000.0
trtllm_kv_cache_tokens_per_block{engine_type="trtllm",model_name="m"} 32.0
"""
    assert read_metrics(text) == EngineReport(7, 2, 0.5, 32000)


@pytest.mark.parametrize("name", ["dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests"])
def test_dynamos_frontend_counts_those_that_its_router_holds_back(name: str) -> None:
    text = f"""\
{name}{{model="m"}} 12
dynamo_frontend_queued_requests{{model="m"}} 9
dynamo_frontend_router_queue_pending_requests{{worker_type="decode"}} 5
dynamo_frontend_model_total_kv_blocks{{model="m"}} 16384
"""
    assert read_metrics(text) == EngineReport(7, 5)


@pytest.mark.parametrize(
    "text", ["", "<html>\n", "python_gc_objects_collected_total 3.0\n", '[{"numActiveRequests": 1}]', "vllm:\n"]
)
def test_what_is_no_load_of_an_engine_is_none(text: str) -> None:
    assert read_metrics(text) is None


def test_lines_that_are_off_cost_only_themselves() -> None:
    off = 'vllm:num_requests_waiting\nvllm:num_requests_waiting{engine="0"\nvllm:num_requests_waiting NaN\n'
    off += "vllm:num_requests_waiting{} much\nvllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc +Inf\n"
    off += f'vllm:num_requests_waiting 1e300\nvllm:cache_config_info{{kv_cache_size_tokens="{"9" * 5000}"}} 1\n'
    assert read_metrics(off + VLLM + 'vllm:num_requests_waiting{engine="2", model_name="p"} 1 1700000000\n') == (
        EngineReport(8, 3, 0.5)
    )
