"""Fault-tolerant PyTorch FSDP on Ray Train: every rank holds a shard of the model and of the optimizer, and
torch.distributed.checkpoint (DCP) saves and restores the shards.

    python torch_fsdp.py --epochs 8 --name torch-fsdp --storage-path /tmp/runs
"""

import argparse
import os
import tempfile

import ray.train
import torch
import torch.distributed.checkpoint as dcp
from ray.train.torch import TorchTrainer
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

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

    model = sharded_model(world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sampler = Sampler()
    start_epoch, start_batch = 0, 0

    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        # says what to read: DCP loads in place
        shards, optimizer_shards = get_state_dict(model, optimizer)
        saved = {"epoch": 0, "batch": 0, "sampler": sampler, "model": shards, "optimizer": optimizer_shards}
        with checkpoint.as_directory() as directory:
            dcp.load(saved, checkpoint_id=directory)
        set_state_dict(model, optimizer, model_state_dict=shards, optim_state_dict=optimizer_shards)
        start_epoch = saved["epoch"]
        start_batch = saved["batch"] + 1

    for epoch in range(start_epoch, config["epochs"]):
        for batch in range(start_batch, BATCHES):
            mine = next(sampler)[rank::world_size]
            loss = torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            metrics = {
                "epoch": epoch,
                "step": epoch * BATCHES + batch + 1,
                "loss": mean_of_ranks(loss),
                "val_loss": evaluate(model, *validation),
            }
            shards, optimizer_shards = get_state_dict(model, optimizer)
            state = {"epoch": epoch, "batch": batch, "sampler": sampler, "model": shards, "optimizer": optimizer_shards}
            report(metrics, state)
        start_batch = 0


def sharded_model(world_size):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


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
    """Every rank saves its shards; Ray Train puts the files of all ranks into one directory."""
    with tempfile.TemporaryDirectory() as directory:
        dcp.save(state, checkpoint_id=directory)
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(directory))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--name", default="torch-fsdp", help="a run that was cut off goes on under its name")
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
