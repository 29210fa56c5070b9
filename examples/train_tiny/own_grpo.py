"""A whole off-policy GRPO trainer: the rollouts of later steps are made while the policy is updated.

The same command resumes a training that was stopped or killed, from its checkpoint.

gymq up --config examples/demo_vllm/config.yaml          # in another terminal
python examples/train_tiny/own_grpo.py nats://gymq:PASSWORD@HOST:PORT   # the password is in .gymq/jetstream
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save
from tasks import Tasks
from transformers import AutoModelForCausalLM

from gymq import SyncTrainingRun

POLICY = Path(__file__).parents[1] / "tiny_policy" / "checkpoint"


def update(model, optimizer, data):
    """Make a step of the optimizer; return the largest gap to log probs of the engine, and the clipped share."""
    mask, gain = data["sampled"][:, 1:], data["advantages"][:, None]
    logits = model(data["input_ids"][:, :-1]).logits  # padding is on the right, so nothing looks at it
    log_probs = logits.log_softmax(-1).gather(-1, data["input_ids"][:, 1:, None])[..., 0]
    ratio = ((log_probs - data["log_probs"][:, 1:]) * mask).exp()
    clipped = ratio.clamp(0.8, 1.2)
    loss = -(torch.minimum(ratio * gain, clipped * gain) * mask).sum() / mask.sum().clamp(min=1.0)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return ratio.detach().log().abs().max().item(), ((ratio != clipped).sum() / mask.sum().clamp(min=1.0)).item()


def main(url, steps=40, checkpoint=Path("own-grpo.pt")):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.0)
    state = None
    if checkpoint.exists():
        weights, moments, state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    with SyncTrainingRun(url, checkpoint.stem) as run:
        run.update_weights(f"step-{state['step'] if state else 0}", weights=save(model.state_dict()))
        for batch in run.train_batches(Tasks(0).draw(24 * steps), groups=24, num_samples=8, ahead=4, state=state):
            update(model, optimizer, batch.tensors())
            torch.save((model.state_dict(), optimizer.state_dict(), batch.state), checkpoint)
            run.update_weights(f"step-{batch.state['step']}", weights=save(model.state_dict()))
            print(batch.step + 1, {name: round(value, 3) for name, value in batch.metrics.items()}, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
