"""The commands of operators, as `gymq --help` lists them."""

from gymq.cli.shared.command import Command

STATUS = Command("Operate", "Show server, streams, workers, queues and runs.", "gymq.ext.operate.status:status")
PAUSE = Command("Operate", "Start no more rollouts of a run until it is resumed.", "gymq.ext.operate.runs:pause")
RESUME = Command("Operate", "Resume a paused run.", "gymq.ext.operate.runs:resume")
RETUNE = Command("Operate", "Change a run's share of the workers, priority or limit.", "gymq.ext.operate.runs:retune")
CANCEL = Command("Operate", "Cancel a run, or one task of it.", "gymq.ext.operate.runs:cancel")
DELETE = Command("Operate", "Delete a stored run.", "gymq.ext.operate.runs:delete")
DEAD_LETTERS = Command(
    "Operate", "List, show, requeue or drop dead letters.", "gymq.ext.operate.dead_letters:dead_letters"
)
WEIGHTS = Command("Operate", "Push new weights to all replicas of a model.", "gymq.ext.operate.weights:weights")
