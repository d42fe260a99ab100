"""Ray Train's own tests against this runtime, with nothing but their imports changed.

`python -m shaketable.suites.tools.upstream CHECKOUT` takes a checkout of ray-project/ray (or a folder with the test
files themselves), rewrites the imports of copies, runs them, and compares what passes with `upstream.yaml`: a case that
is listed as passing and fails, one that passes and is listed with a reason, and one that is not listed are errors.
Ray's files are no part of this project.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import yaml

TESTS = Path("python/ray/train/v2/tests")
LISTED = Path(__file__).with_name("upstream.yaml")
# Where what is imported from there is found here.
HOMES = {
    "ray.train": "shaketable.runtime",
    "ray.train.torch": "shaketable.runtime.torch",
    "ray.train.collective": "shaketable.runtime.collective",
    "ray.train.tests.util": "upstream_util",
    "ray.tests.client_test_utils": "upstream_util",
    "ray.train.examples.pytorch.torch_linear_example": "upstream_example",
}
_API = "ray.train.v2.api."
# Not the tests' subject: internals, environment variables.
_RAYS_OWN = r"(?!\.(?:v2|constants|backend|examples|tests)\b)"
_CASE_S = 300

UTIL = '''\
"""Like Ray's ray/train/tests/util.py and ray/tests/client_test_utils.py, which its wheel lacks."""
import asyncio, contextlib, os, pickle, tempfile
from shaketable.runtime import Checkpoint

@contextlib.contextmanager
def create_dict_checkpoint(data):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "data.pkl"), "wb") as file:
            pickle.dump(data, file)
        yield Checkpoint.from_directory(folder)

def load_dict_checkpoint(checkpoint):
    with checkpoint.as_directory() as folder, open(os.path.join(folder, "data.pkl"), "rb") as file:
        return pickle.load(file)

def create_remote_signal_actor(ray):
    @ray.remote(num_cpus=0)
    class SignalActor:
        def __init__(self):
            self.event = asyncio.Event()

        def send(self):
            self.event.set()

        async def wait(self):
            await self.event.wait()

    return SignalActor
'''

CONFTEST = '''\
"""A cluster, an object store, and a home directory that may be filled."""
import os, pytest, ray
from moto.server import ThreadedMotoServer

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"

@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory):
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ.update(
        HOME=str(tmp_path_factory.mktemp("home")), AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b",
        AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1", AWS_ALLOW_HTTP="true",
        AWS_ENDPOINT_URL=f"http://{host}:{port}", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1",
    )
    yield
    server.stop()

@pytest.fixture(scope="session", autouse=True)
def cluster(environment, tmp_path_factory):
    # agents of this machine in the place of Ray's: quicker, for all that asks nothing of Ray
    if not os.environ.get("UPSTREAM_WITHOUT_RAY"):
        yield
        return
    from shaketable.runtime import trainer
    from shaketable.suites.tests.rigs.process_runs import process_nodes
    ray.init = ray.shutdown = lambda *given, **named: None
    with process_nodes(4) as nodes:
        trainer.rays_nodes = lambda: nodes
        yield

@pytest.fixture(scope="module")
def ray_start_4_cpus():
    ray.init(num_cpus=4)
    yield
    ray.shutdown()

@pytest.fixture
def mock_s3_bucket_uri(environment, tmp_path):
    import boto3
    bucket = tmp_path.name.replace("_", "-").strip("-").lower()
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/runs"
'''


@dataclass(frozen=True, slots=True)
class Case:
    """`reason`: why it cannot pass; empty if it passes. `kind`: of the reason. `run`: False for one that would wait for
    ever."""

    name: str
    reason: str = ""
    kind: str = ""
    run: bool = True


def listed() -> dict[str, Case]:
    """By file and name, such as "test_config.py::test_scaling_config_validation"."""
    cases = {}
    for file, names in yaml.safe_load(LISTED.read_text())["cases"].items():
        for name, said in names.items():
            full = f"{file}::{name}"
            cases[full] = Case(full) if said == "passes" else Case(full, **said)
    return cases


# ---- rewriting


def rewritten(text: str) -> str:
    """The same program, with Ray Train's names from here. What is not offered here stays Ray's."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines[node.lineno - 1 : node.end_lineno] = list(_import(node))
    body = re.sub(rf"(?<![\w.\"'/])ray\.train\b{_RAYS_OWN}", "shaketable.runtime", "\n".join(lines))
    body = body.replace("`ray.train.", "`shaketable.runtime.")
    return f"import shaketable.runtime\nimport shaketable.runtime.collective\nimport shaketable.runtime.torch\n{body}\n"


def _import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            module = _home(alias.name) or alias.name
            yield f"import {module}" + (f" as {alias.asname}" if alias.asname else "")
        return
    for alias in node.names:
        as_name = f" as {alias.asname}" if alias.asname else ""
        if (node.module, alias.name) == ("ray", "train"):
            yield f"from shaketable import runtime as {alias.asname or 'train'}"
            continue
        home = _home(node.module or "")
        # spelled so that the names of Ray's own survive what is replaced in the rest of the text
        source = home if home is not None and _offered(home, alias.name) else node.module
        yield (
            # None: the Ray that is installed has none either
            f"{alias.asname or alias.name} = getattr(__import__('importlib').import_module({source!r}),"
            f" {alias.name!r}, None)"
            if (source or "").startswith("ray.train") and home is not None
            else f"from {source} import {alias.name}{as_name}"
        )


def _home(module: str) -> str | None:
    return "shaketable.runtime" if module.startswith(_API) else HOMES.get(module)


def _offered(home: str, name: str) -> bool:
    if not home.startswith("shaketable."):
        return True
    try:
        return hasattr(importlib.import_module(home), name)
    except ImportError:
        # refused by name
        return False


def prepare(checkout: Path, folder: Path) -> list[str]:
    """Rewritten copies in `folder`; the names of the files."""
    source = checkout / TESTS if (checkout / TESTS).is_dir() else checkout
    files = sorted({name.partition("::")[0] for name in listed()})
    missing = [name for name in files if not (source / name).is_file()]
    if missing:
        raise SystemExit(f"{source} has no {', '.join(missing)}: give a checkout of ray-project/ray near Ray 2.60")
    for name in files:
        (folder / name).write_text(rewritten((source / name).read_text()))
    example = inspect.getsource(importlib.import_module("ray.train.examples.pytorch.torch_linear_example"))
    (folder / "upstream_example.py").write_text(rewritten(example))
    (folder / "upstream_util.py").write_text(UTIL)
    (folder / "conftest.py").write_text(CONFTEST)
    return files


# ---- running and comparing


def run(folder: Path, files: list[str], keyword: str, without_ray: bool) -> dict[str, str]:
    """By case: empty if it passed, else the end of what went wrong."""
    report = folder / "report.xml"
    left_out = [arg for case in listed().values() if not case.run for arg in ("--deselect", case.name)]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "0", f"--timeout={_CASE_S}"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1", "--rootdir", str(folder), *left_out]
    command += [*(["-k", keyword] if keyword else []), *files]
    environment = os.environ | ({"UPSTREAM_WITHOUT_RAY": "1"} if without_ray else {})
    subprocess.run(command, cwd=folder, env=environment, check=False)
    return {
        f"{case.get('file')}::{case.get('name')}": "".join((bad.get("message") or "") for bad in case)
        for case in ElementTree.parse(report).getroot().iter("testcase")
        if case.find("skipped") is None
    }


def differences(outcomes: Mapping[str, str], known: Mapping[str, Case]) -> Iterator[str]:
    for name, wrong in sorted(outcomes.items()):
        case = known.get(name)
        if case is None:
            yield f"{name} is not listed, and {'fails: ' + wrong[-300:] if wrong else 'passes'}"
        elif wrong and not case.reason:
            yield f"{name} is listed as passing, and fails: {wrong[-300:]}"
        elif not wrong and case.reason and case.kind != "internals":
            yield f"{name} passes, and is listed with a reason: {case.reason}"


def share(known: Mapping[str, Case]) -> tuple[int, int]:
    """How many pass, of those that need nothing of Ray's own insides, and that Ray 2.60 itself passes."""
    fair = [case for case in known.values() if case.kind not in ("internals", "version")]
    return sum(not case.reason for case in fair), len(fair)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="FILE", help="such as test_result.py")
    parser.add_argument("-k", dest="keyword", default="", help="as pytest's")
    parser.add_argument("--without-ray", action="store_true", help="agents of this machine; cases that ask Ray fail")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upstream-") as name:
        folder = Path(name)
        files = prepare(given.checkout, folder)
        outcomes = run(folder, given.only or files, given.keyword, given.without_ray)
    wrong = list(differences(outcomes, listed()))
    passed, fair = share(listed())
    print(f"{len(outcomes)} cases run, {len(wrong)} not as listed; listed: {passed} of {fair} pass")
    print("\n".join(wrong))
    return 1 if wrong or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
