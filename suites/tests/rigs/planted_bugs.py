"""The example jobs of docs/examples with one bug planted in each: what is replaced by what, and the invariant that must
notice. A bug is in what a job does with its checkpoint, so that without faults nothing can be seen of it.
"""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
NAMES = ("torch_ddp", "torch_fsdp", "jax_orbax", "hf_loop")

CAUGHT_BY = {
    "epoch-not-restored": "resume-from-checkpoint",
    "optimizer-not-restored": "metrics-match",
    "sampler-restarted": "metrics-match",
    "only-rank-0-restores": "metrics-match",
    "only-rank-0-restores-counters-too": "resume-from-checkpoint",
}

EPOCH = ('start_epoch = saved["epoch"]', "start_epoch = 0")
SAMPLER = ('        sampler.load_state_dict(saved["sampler"])\n', "")

# Rank 0 alone, since "the others get it from there": DDP does give them its parameters, and nothing else.
DDP_RANK_0 = (
    """\
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])
""",
    """\
        if rank == 0:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            sampler.load_state_dict(saved["sampler"])
""",
)
# The other rank would wait in the collective for ever; no_dist "solves" that.
FSDP_RANK_0 = (
    """\
            dcp.load(saved, checkpoint_id=directory)
""",
    """\
            if rank == 0:
                dcp.load(saved, checkpoint_id=directory, no_dist=True)
            where = ray.train.collective.broadcast_from_rank_zero((saved["epoch"], saved["batch"]))
            saved["epoch"], saved["batch"] = where
""",
)
# Each process has its own copy of what is "replicated", and JAX does not compare them.
JAX_RANK_0 = (
    """\
        params = saved["params"]
        velocity = saved["velocity"]
        sampler.load_state_dict(saved["sampler"])
""",
    """\
        if rank == 0:
            params = saved["params"]
            velocity = saved["velocity"]
            sampler.load_state_dict(saved["sampler"])
""",
)
HF_OPTIMIZER = """\
            optimizer.load_state_dict(torch.load(Path(directory, "optimizer.pt"), weights_only=True))
"""
HF_RANK_0 = (
    f"""\
            model.load_state_dict(GPT2LMHeadModel.from_pretrained(directory).state_dict())
{HF_OPTIMIZER}\
            scheduler.load_state_dict(torch.load(Path(directory, "scheduler.pt"), weights_only=True))
        sampler.load_state_dict(saved["sampler"])
""",
    f"""\
            if rank == 0:
                model.load_state_dict(GPT2LMHeadModel.from_pretrained(directory).state_dict())
    {HF_OPTIMIZER}\
                scheduler.load_state_dict(torch.load(Path(directory, "scheduler.pt"), weights_only=True))
                sampler.load_state_dict(saved["sampler"])
""",
)

PLANTED: dict[tuple[str, str], tuple[str, str]] = {
    ("torch_ddp", "epoch-not-restored"): EPOCH,
    ("torch_ddp", "optimizer-not-restored"): ('        optimizer.load_state_dict(saved["optimizer"])\n', ""),
    ("torch_ddp", "sampler-restarted"): SAMPLER,
    ("torch_ddp", "only-rank-0-restores"): DDP_RANK_0,
    ("torch_ddp", "only-rank-0-restores-counters-too"): ("    if checkpoint:", "    if checkpoint and rank == 0:"),
    ("torch_fsdp", "epoch-not-restored"): EPOCH,
    ("torch_fsdp", "optimizer-not-restored"): (
        'saved = {"epoch": 0, "batch": 0, "sampler": sampler, "model": shards, "optimizer": optimizer_shards}',
        'saved = {"epoch": 0, "batch": 0, "sampler": sampler, "model": shards}',
    ),
    ("torch_fsdp", "sampler-restarted"): ('"batch": 0, "sampler": sampler, "model"', '"batch": 0, "model"'),
    ("torch_fsdp", "only-rank-0-restores"): FSDP_RANK_0,
    ("jax_orbax", "epoch-not-restored"): EPOCH,
    ("jax_orbax", "optimizer-not-restored"): ('        velocity = saved["velocity"]\n', ""),
    ("jax_orbax", "sampler-restarted"): SAMPLER,
    ("jax_orbax", "only-rank-0-restores"): JAX_RANK_0,
    ("hf_loop", "epoch-not-restored"): EPOCH,
    ("hf_loop", "optimizer-not-restored"): (HF_OPTIMIZER, ""),
    ("hf_loop", "sampler-restarted"): SAMPLER,
    ("hf_loop", "only-rank-0-restores"): HF_RANK_0,
}


def planted(example: str, bug: str) -> str:
    """The text of that example, with that bug; as it is for an empty one. A bug that has lost its place is an error."""
    text = (EXAMPLES / f"{example}.py").read_text()
    if not bug:
        return text
    old, new = PLANTED[example, bug]
    if text.count(old) != 1:
        raise LookupError(f"{example}: {text.count(old)} places for {bug}, which replaces\n{old}")
    return text.replace(old, new)
