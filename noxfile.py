"""Everything a contributor or CI runs, as nox sessions: `nox -l` lists them, `nox -s chaos` shakes the runtime.

Each session has an environment of its own below `.nox/`, made from `constraints.txt` on the first run and reused until
`pyproject.toml` or `constraints.txt` change, so that a second run starts at once.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
CONSTRAINTS = "constraints.txt"
# what an installed environment depends on
ENVIRONMENT_FROM = ("pyproject.toml", CONSTRAINTS)
# more than cores: tests with real processes wait for most of their time
TESTS_AT_ONCE = os.environ.get("SHAKETABLE_TEST_JOBS", str(min(2 * len(os.sched_getaffinity(0)) + 1, 16)))
# a safety net for a hung test; every wait in the code has a deadline of its own
TEST_TIMEOUT_S = 300
# nox would kill 0.3 s after Ctrl-C; clusters need longer than that to leave nothing behind
TEARDOWN_S = 60.0

# uv compiles nothing unless told to, and a container may forbid Python to keep what it has compiled. Hundreds of
# processes would each compile Ray again, which doubles the CPU time of nearly every test.
COMPILED = {"UV_COMPILE_BYTECODE": "1", "PYTHONDONTWRITEBYTECODE": ""}

nox.needs_version = ">=2025.2.9"
# uv links an environment to its cache where it can, so that a second one with torch takes seconds and no space.
# Without uv it is virtualenv and pip: slower, and the same packages.
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests", "chaos"]
# schedules: half a minute
EXPLORED = "4000"
# Machines that share two cores are slow at times, and a fault then comes when a run is over.
BUSY = ("--retry-invalid", "2")
# what has to work where shaketable was installed -> the exit code
FROM_THE_WHEEL = {
    "doctor": 0,
    "run worker-crash": 0,
    "run worker-crash --mutant resume-from-scratch": 1,
    "run worker-crash --mutant resume-not-passed-on --cluster simulated": 1,
    "explore --schedules 500 --seed 1": 0,
    "run --cluster simulated": 0,
}


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and imports (ruff, import-linter)."""
    _install(session, tools="lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", env={"PYTHONPATH": "src"})
    session.run("python", "suites/tools/house.py", env={"PYTHONPATH": "src"})


@nox.session
def types(session: nox.Session) -> None:
    """Check types of the product and its tests (mypy, strict)."""
    _install(
        session, "chaos", "explore", "torch", "jax", "ray-train", "storage", "kubernetes", "containers", tools="types"
    )
    session.run("mypy", "-p", "shaketable")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the project's own tests, with torch and jax. `nox -s tests -- -k words` runs some of them."""
    _install(session, "chaos", "explore", "torch", "jax", "ray-train", "storage", "kubernetes", tools="tests")
    limits = ["-n", TESTS_AT_ONCE, "--dist", "loadgroup", f"--timeout={TEST_TIMEOUT_S}"]
    _run(session, "pytest", *limits, *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Run the gate (`shaketable run`), without torch and jax. Passes on arguments after `--`."""
    _install(session, "chaos", "storage", *_asked_for(session))
    _run(session, "shaketable", "run", *session.posargs)


@nox.session
def on_demand(session: nox.Session) -> None:
    """Run the tests that take a minute or more each: own jobs, Ray Train under the Recorder, the README's test."""
    _install(session, "chaos", "explore", "torch", "jax", "ray-train", "storage", "kubernetes", tools="tests")
    session.env["SHAKETABLE_ON_DEMAND"] = "1"
    _run(session, "pytest", "-m", "on_demand", f"--timeout={3 * TEST_TIMEOUT_S}", *session.posargs)


@nox.session
def minio(session: nox.Session) -> None:
    """Run the tests of object stores against MinIO instead of moto. Needs a container engine."""
    _install(session, "chaos", "explore", "storage", tools="minio")
    files = [
        f"src/shaketable/suites/tests/{name}.py" for name in ("runtime/test_objects_s3", "chaos/test_storage_gateway")
    ]
    session.env["SHAKETABLE_MINIO"] = "1"
    _run(session, "pytest", *files, f"--timeout={TEST_TIMEOUT_S}", *session.posargs)


@nox.session
def kubernetes(session: nox.Session) -> None:
    """Run the gate on pods, and what only Kubernetes does (docs/kubernetes.md), or what is given after `--`. On the
    cluster of KUBECONFIG with the image SHAKETABLE_IMAGE, or else on a kind cluster, for which all is built once."""
    given = [os.environ.get(name, "") for name in ("KUBECONFIG", "SHAKETABLE_IMAGE")]
    asked = session.posargs or ("--tag", "gate", "--tag", "pods", *BUSY)
    _install(session, "chaos", "kubernetes")
    if all(given):
        _run(session, "shaketable", "run", "--cluster", "kuberay", "--image", given[1], *asked)
        return
    kind = ("python", "-m", "shaketable.suites.tools.kind")
    reason = session.run(*kind, "why-not", silent=True)
    if isinstance(reason, str) and reason.strip():
        session.skip(f"{reason.strip()} (or KUBECONFIG and SHAKETABLE_IMAGE: docs/kubernetes.md)")
    _run(session, *kind, "run", "--", *asked)


@nox.session
def containers(session: nox.Session) -> None:
    """Run the gate, and what only machines of their own show, on containers. Needs a container engine."""
    _install(session, "chaos", "explore", "storage", "containers", tools="tests")
    reason = session.run("python", "-m", "shaketable.clusters.containers.engine", silent=True)
    if isinstance(reason, str) and reason.strip():
        session.skip(reason.strip())
    base = os.environ.get("SHAKETABLE_IMAGE_BASE")
    _run(session, "shaketable", "image", "build", *(["--base", base] if base else []))
    session.env["SHAKETABLE_ON_DEMAND"] = "1"
    _run(
        session, "pytest", "src/shaketable/suites/tests/clusters/test_containers.py", f"--timeout={2 * TEST_TIMEOUT_S}"
    )
    tags = ("--tag", "gate", "--tag", "apart", "--tag", "network", "--jobs", "1", *BUSY)
    _run(session, "shaketable", "run", "--cluster", "containers", *(session.posargs or tags))


@nox.session
def examples(session: nox.Session) -> None:
    """Run every job of docs/examples, healthy and with each planted bug, under a fault. Takes up to an hour."""
    _install(session, "chaos", "explore", "torch", "jax", "ray-train", tools="examples")
    session.env.update(SHAKETABLE_EXAMPLES="all", SHAKETABLE_ON_DEMAND="1")
    files = [f"src/shaketable/suites/tests/suites/test_{name}.py" for name in ("planted_bugs", "examples")]
    _run(session, "pytest", *files, *session.posargs)


@nox.session
def explore(session: nox.Session) -> None:
    """Play random fault schedules in simulation. Passes on arguments after `--` to `shaketable explore`."""
    _install(session, "chaos", "explore")
    _run(session, "shaketable", "explore", *(session.posargs or ("--schedules", EXPLORED, "--seed", "1")))


@nox.session
def mutants(session: nox.Session) -> None:
    """Check that every planted bug is caught. `nox -s mutants -- --simulated-only` needs no cluster."""
    # some are caught by tests of the project, and by jobs of torch and jax
    _install(session, "chaos", "explore", "torch", "jax", "ray-train", "storage", "kubernetes", tools="tests")
    _run(session, "python", "-m", "shaketable.suites.mutants", *session.posargs)


@nox.session
def mutation(session: nox.Session) -> None:
    """Change places of the runtime by chance (cosmic-ray), and count what the tests notice. Takes an hour or more."""
    _install(session, "chaos", "explore", "torch", "jax", "ray-train", "storage", tools="mutation")
    _run(session, "python", "-m", "shaketable.suites.mutants", *(session.posargs or ("--systematic", "60")))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the figures of docs/performance.md. `nox -s bench -- --peer ray-train` also measures Ray Train."""
    _install(session, "chaos", "torch", "jax", "storage", *_asked_for(session))
    _run(session, "python", "-m", "shaketable.suites.bench", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into site/, without a network. A warning is an error."""
    _install(session, "chaos", tools="docs")
    # what its makers say of its next version is no warning of ours
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    _run(session, "mkdocs", "build", "--strict", "--clean", "--quiet")
    session.log(f"open {ROOT / 'site' / 'index.html'}")


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheel, check its contents, and use it in an empty environment as a user would."""
    session.install("-c", CONSTRAINTS, "build")
    out = Path(session.create_tmp()).resolve()
    session.run("python", "-m", "build", "--outdir", str(out), str(ROOT), silent=True)
    wheel = max(out.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    _check_wheel(session, wheel)
    bin_ = _empty_environment(session, out, wheel)
    # only the wheel can answer there
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        for command, code in FROM_THE_WHEEL.items():
            _run(session, str(bin_ / "shaketable"), *command.split(), success_codes=[code])
    session.log(f"{wheel} is complete and works")


def _empty_environment(session: nox.Session, out: Path, wheel: Path) -> Path:
    """The `bin` of a fresh environment that holds the wheel, its extra `chaos`, and nothing of this session."""
    empty = out / "empty"
    session.run("python", "-m", "venv", "--clear", str(empty))
    wanted = ["--quiet", "-c", str(ROOT / CONSTRAINTS), f"{wheel}[chaos]"]
    session.run(str(empty / "bin" / "python"), "-m", "pip", "install", *wanted, external=True)
    return empty / "bin"


def _install(session: nox.Session, *extras: str, tools: str | None = None) -> None:
    """The package, editable, with these extras and the tools of one dependency group. Does nothing when that was
    done before from the same files."""
    wanted = nox.project.dependency_groups(PYPROJECT, tools) if tools else ()
    if extras:
        wanted = ("-e", f".[{','.join(extras)}]", *wanted)
    stamp = Path(session.virtualenv.location) / f"installed-{'-'.join(extras) or 'tools'}"
    print_of_files = _fingerprint(wanted)
    if stamp.exists() and stamp.read_text() == print_of_files:
        return
    session.install("-c", CONSTRAINTS, *wanted, env=COMPILED)
    stamp.write_text(print_of_files)


def _fingerprint(wanted: Iterable[str]) -> str:
    """What an environment was made from: place, interpreter, files, and what was asked for."""
    digest = hashlib.sha256("\n".join([str(ROOT), sys.version, *wanted]).encode())
    for name in ENVIRONMENT_FROM:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _run(session: nox.Session, *command: str, success_codes: Iterable[int] = (0,)) -> None:
    """With one thread per worker (the machine is shared by all of them) and time to clean up after Ctrl-C."""
    session.run(
        *command,
        env={"OMP_NUM_THREADS": "1", **COMPILED},
        success_codes=success_codes,
        external=Path(command[0]).is_absolute(),
        interrupt_timeout=TEARDOWN_S,
        terminate_timeout=TEARDOWN_S,
    )


def _asked_for(session: nox.Session) -> tuple[str, ...]:
    """The extras that the arguments need: Ray Train as subject or peer, and what the whole catalogue takes."""
    peer = any("ray-train" in argument for argument in session.posargs)
    return (*(("ray-train",) if peer else ()), *(("torch", "jax") if "--all" in session.posargs else ()))


def _check_wheel(session: nox.Session, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    sources = {
        f"shaketable/suites/{path.relative_to(ROOT / 'suites')}"
        for folder in ("experiments", "incidents", "deviations")
        for path in ROOT.glob(f"suites/{folder}/*.yaml")
    }
    missing = sorted(sources - set(names))
    strays = [name for name in names if name.startswith(("shaketable/suites/tests", "shaketable/suites/tools/kind"))]
    if missing or strays or not sources:
        session.error(f"{wheel.name}: missing {missing or 'every experiment'}, must not carry {strays}")
