"""A Hugging Face training loop on Ray Train: a small GPT-2 made on the spot (nothing is downloaded), AdamW, a learning
rate schedule, and checkpoints with the file names of Hugging Face's own Trainer.

    python hf_loop.py --epochs 8 --name hf-loop --storage-path /tmp/runs
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchTrainer
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

SAMPLES, LENGTH, VOCABULARY, GLOBAL_BATCH = 64, 12, 32, 16
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
    samples, validation = dataset(seed=1), dataset(seed=2)

    torch.manual_seed(0)
    model = GPT2LMHeadModel(small_gpt2())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = config["epochs"] * BATCHES
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=4, num_training_steps=steps)
    sampler = Sampler()
    start_epoch, start_batch = 0, 0

    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            saved = json.loads(Path(directory, "trainer_state.json").read_text())
            model.load_state_dict(GPT2LMHeadModel.from_pretrained(directory).state_dict())
            optimizer.load_state_dict(torch.load(Path(directory, "optimizer.pt"), weights_only=True))
            scheduler.load_state_dict(torch.load(Path(directory, "scheduler.pt"), weights_only=True))
        sampler.load_state_dict(saved["sampler"])
        start_epoch = saved["epoch"]
        start_batch = saved["batch"] + 1

    ddp = ray.train.torch.prepare_model(model)
    for epoch in range(start_epoch, config["epochs"]):
        for batch in range(start_batch, BATCHES):
            tokens = samples[next(sampler)[rank::world_size]]
            loss = ddp(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()

            metrics = {
                "epoch": epoch,
                "step": epoch * BATCHES + batch + 1,
                "loss": mean_of_ranks(loss),
                "val_loss": evaluate(model, validation),
                "learning_rate": scheduler.get_last_lr()[0],
            }
            state = {"epoch": epoch, "batch": batch, "sampler": sampler.state_dict()}
            if rank == 0:
                report_with_checkpoint(metrics, state, model, optimizer, scheduler)
            else:
                ray.train.report(metrics)
        start_batch = 0


def small_gpt2():
    return GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )


def dataset(seed):
    """Counting by some number from some number on."""
    generator = torch.Generator().manual_seed(seed)
    first, by = (torch.randint(1, 8, (SAMPLES, 1), generator=generator) for _ in range(2))
    return (first + by * torch.arange(LENGTH)) % VOCABULARY


def mean_of_ranks(loss):
    mean = loss.detach().clone()
    torch.distributed.all_reduce(mean)
    return mean.item() / torch.distributed.get_world_size()


def evaluate(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens, labels=tokens).loss.item()


def report_with_checkpoint(metrics, state, model, optimizer, scheduler):
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        torch.save(optimizer.state_dict(), Path(directory, "optimizer.pt"))
        torch.save(scheduler.state_dict(), Path(directory, "scheduler.pt"))
        Path(directory, "trainer_state.json").write_text(json.dumps(state))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(directory))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--name", default="hf-loop", help="a run that was cut off goes on under its name")
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
