"""Fault-tolerant PyTorch DDP on Ray Train: fits a small network, checkpoints every step, and after a failure goes on
from the latest checkpoint as if nothing had happened.

    python torch_ddp.py --epochs 8 --name torch-ddp --storage-path /tmp/runs
"""

import argparse
import os
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchTrainer

SAMPLES, FEATURES, GLOBAL_BATCH = 128, 8, 32
# in an epoch
BATCHES = SAMPLES // GLOBAL_BATCH

# report() waits for the controller, which looks at its workers every 2 s by default: too long beside such short steps.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")


class Sampler:
    """An endless shuffle of the data set, in a new order every epoch, that can be resumed where it stood."""

    def __init__(self):
        self.position = 0

    def __next__(self):
        epoch, begin = divmod(self.position, SAMPLES)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        self.position += GLOBAL_BATCH
        return order[begin : begin + GLOBAL_BATCH]

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def train(config):
    rank, world_size = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    inputs, targets = dataset(seed=1)
    validation = dataset(seed=2)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = Sampler()
    start_epoch, start_batch = 0, 0

    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory) / "state.pt", weights_only=True)
        start_epoch = saved["epoch"]
        start_batch = saved["batch"] + 1
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])

    ddp = ray.train.torch.prepare_model(model)
    for epoch in range(start_epoch, config["epochs"]):
        for batch in range(start_batch, BATCHES):
            mine = next(sampler)[rank::world_size]
            loss = torch.nn.functional.mse_loss(ddp(inputs[mine]), targets[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            metrics = {
                "epoch": epoch,
                "step": epoch * BATCHES + batch + 1,
                "loss": mean_of_ranks(loss),
                "val_loss": evaluate(model, *validation),
            }
            state = {
                "epoch": epoch,
                "batch": batch,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "sampler": sampler.state_dict(),
            }
            report(metrics, state if rank == 0 else None)
        start_batch = 0


def dataset(seed):
    inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs.sum(dim=1, keepdim=True).sin()


def mean_of_ranks(loss):
    mean = loss.detach().clone()
    torch.distributed.all_reduce(mean)
    return mean.item() / torch.distributed.get_world_size()


def evaluate(model, inputs, targets):
    with torch.no_grad():
        return torch.nn.functional.mse_loss(model(inputs), targets).item()


def report(metrics, state):
    """Report the metrics, with a checkpoint if there is a state to save."""
    if state is None:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        torch.save(state, Path(directory) / "state.pt")
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(directory))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--name", default="torch-ddp", help="a run that was cut off goes on under its name")
    parser.add_argument("--storage-path", help="else ~/ray_results")
    args = parser.parse_args()
    trainer = TorchTrainer(
        train,
        train_loop_config={"epochs": args.epochs},
        scaling_config=ray.train.ScalingConfig(num_workers=args.num_workers),
        run_config=ray.train.RunConfig(
            name=args.name, storage_path=args.storage_path, failure_config=ray.train.FailureConfig(max_failures=1)
        ),
    )
    print("finished:", trainer.fit().metrics)
