"""A whole off-policy GRPO trainer: the rollouts of later steps are made while the policy is updated.

The same command resumes a training that was stopped or killed, from its checkpoint.

gymq up --config examples/demo_vllm/config.yaml          # in another terminal
python examples/trainers/own_grpo.py --nats nats://gymq:PASSWORD@HOST:PORT   # the password is in .gymq/jetstream
"""

import argparse
from pathlib import Path

import torch
from policy_on_cpu import POLICY, tasks
from safetensors.torch import save
from transformers import AutoModelForCausalLM, PreTrainedModel

from gymq import SyncTrainingRun
from gymq.trainer import TrainingBatch


def loss_of(model: PreTrainedModel, batch: TrainingBatch) -> torch.Tensor:
    data = batch.tensors(model.device)
    ids, mask, gain = data["input_ids"], data["sampled"][:, 1:], data["advantages"][:, None]
    logits = model(ids[:, :-1], attention_mask=data["attention_mask"][:, :-1]).logits
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    ratio = ((log_probs - data["log_probs"][:, 1:]) * mask).exp()
    gains = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
    return -(gains * mask).sum() / mask.sum().clamp(min=1.0)


def main(given: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate, weight_decay=0.0)
    checkpoint, state = Path(f"{given.run}.pt"), None
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["state"]
    with SyncTrainingRun(given.nats, given.run) as run:
        run.update_weights(f"step-{state['step'] if state else 0}", weights=save(model.state_dict()))
        for batch in run.train_batches(tasks(), groups=24, num_samples=8, ahead=given.ahead, state=state):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": batch.state}
            torch.save(saved, checkpoint)
            run.update_weights(f"step-{batch.state['step']}", weights=save(model.state_dict()))
            print(
                {name: round(value, 3) for name, value in {"step": batch.step + 1, **batch.metrics}.items()}, flush=True
            )
            if batch.state["step"] >= given.steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nats", required=True, help="URL of the cluster")
    parser.add_argument("--run", default="own-grpo", help="name of the training and of its checkpoint")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ahead", type=int, default=4, help="batches that are rolled out ahead")
    parser.add_argument("--learning-rate", type=float, default=4e-4)
    main(parser.parse_args())
