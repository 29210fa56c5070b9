"""Rollouts for a program that trains: groups of samples, and new weights for the policy."""

from gymq.trainer.batch import Batch
from gymq.trainer.examples import read_rows
from gymq.trainer.run import TrainingRun
from gymq.trainer.sync import SyncTrainingRun
from gymq.trainer.training_batch import TrainingBatch

__all__ = ["Batch", "SyncTrainingRun", "TrainingBatch", "TrainingRun", "read_rows"]
