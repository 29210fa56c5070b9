"""What a trainer left in the queue, and one that follows it."""

from gymq.ext.trainers.nemo_rl import NemoGym
from gymq.trainer import TrainingRun
from tests.support.waiting import until_answer
from tests.support.world import World
from tests.trainer.conftest import Examples
from tests.trainer.test_steering import collecting


async def test_what_a_killed_trainer_left_in_the_queue_is_cancelled_if_it_is_not_asked_for_again(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await training.pause()
    killed = collecting(training, examples(3))
    await until_answer(world.queued, lambda queued: queued == 3)
    killed.cancel()
    joined = {"gymq": {"nats": world.url, "run": training.run}}
    actor = NemoGym({"model_name": "policy", "base_urls": [], "initial_global_config_dict": joined})
    await actor._spinup()
    await training.resume()
    await until_answer(world.queued, lambda queued: queued == 0)
    assert not world.engine.requests
    assert [group.rewards async for group in training.run_rollouts(examples(1, first=3))] == [[1.0]]
    await actor.shutdown()
