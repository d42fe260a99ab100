"""TPU slices without TPUs, as Ray's own tests have them: nodes with the resources and labels of a slice's hosts."""

import contextlib
import os
import signal

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS"] = "1"


def deadline(seconds):
    signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
    signal.alarm(seconds)


def head(cluster_class):
    return cluster_class(initialize_head=True, head_node_args={"num_cpus": 0})


def add_host(cluster, slice_name, worker_id, topology, pod_type):
    """One host of four chips. Ray asks the environment, and without these would ask Google's metadata server."""
    variables = {
        "TPU_NAME": slice_name,
        "TPU_WORKER_ID": str(worker_id),
        "TPU_ACCELERATOR_TYPE": pod_type,
        "TPU_TOPOLOGY": topology,
    }
    resources = {"TPU": 4, slice_name: 1, **({f"TPU-{pod_type}-head": 1} if worker_id == 0 else {})}
    labels = {
        "ray.io/tpu-slice-name": slice_name,
        "ray.io/tpu-worker-id": str(worker_id),
        "ray.io/tpu-topology": topology,
        "ray.io/tpu-pod-type": pod_type,
    }
    with _environment(variables):
        return cluster.add_node(num_cpus=2, resources=resources, labels=labels, env_vars=variables)


@contextlib.contextmanager
def _environment(variables):
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
