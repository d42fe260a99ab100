"""The commands of `shaketable`: they read the command line, call one function each, and turn its answer into text,
JSON and an exit code. Whatever escapes unexpectedly is a harness error, exit code 4.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TextIO

import msgspec
import typer
from typer.core import TyperCommand

from shaketable.chaos.errors import ExperimentError
from shaketable.reports import results
from shaketable.suites import mutants
from shaketable.suites.command import own_job
from shaketable.suites.command.own_job import WithOwnCommand
from shaketable.suites.gate import catalogue
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.environment import machine_problem, version_of

if TYPE_CHECKING:
    from shaketable.suites.gate import runner

P = ParamSpec("P")
_json_out: TextIO = sys.stdout
EXIT_CODES = """Exit codes: 0 pass; 1 fail; 2 usage error; 3 invalid: a planned fault did not happen, so nothing is
proved; 4 harness error: a bug in shaketable, not in your job; 130 Ctrl-C."""
app = typer.Typer(
    name="shaketable",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Make workers, nodes and drivers fail under an elastic training job. Judge from the recorded history "
    "whether the job resumed correctly.",
    epilog=EXIT_CODES,
)

STDOUT = Path("-")
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Also write the results to FILE, as JSON. - is stdout; the text goes to stderr."
    ),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Only experiments with this tag. Repeatable.")
]


def experiment_names(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [entry.name for entry in catalogue.shipped() if entry.name.startswith(incomplete)]


def command(
    *,
    examples: str,
    cls: type[TyperCommand] = TyperCommand,
    text_apart: Sequence[str] = ("json",),
    group: typer.Typer = app,
) -> Callable[[Callable[P, int]], Callable[P, None]]:
    """A command is a function that returns its exit code; here is what all of them have in common. `text_apart`: the
    options whose file may be stdout, and then stands there alone. `group`: the commands that it is one of."""

    def register(body: Callable[P, int]) -> Callable[P, None]:
        @functools.wraps(body)
        def guarded(*arguments: P.args, **keywords: P.kwargs) -> None:
            with _text_apart(any(keywords.get(name) == STDOUT for name in text_apart)):
                code = _guarded(lambda: body(*arguments, **keywords))
            raise typer.Exit(code)

        guarded.__annotations__["return"] = None
        text = "\n".join(f"  {line}" for line in examples.strip().splitlines())
        group.command(name=body.__name__.rstrip("_").replace("_", "-"), cls=cls, epilog=f"\b\nExamples:\n{text}")(
            guarded
        )
        return guarded

    return register


@contextmanager
def _text_apart(apart: bool) -> Iterator[None]:
    """What a command prints goes to stderr inside, where JSON alone is to be on stdout (`_json_out`)."""
    global _json_out
    _json_out = sys.stdout
    with redirect_stdout(sys.stderr) if apart else nullcontext():
        yield


def _guarded(body: Callable[[], int]) -> int:
    try:
        return body()
    except (UsageError, ExperimentError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return results.EXIT_USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return results.EXIT_INTERRUPTED
    # `shaketable list | head`: not an error, and Python must not complain at exit either.
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return results.EXIT_PASS
    # The outermost boundary: a crash must not look like a verdict.
    except Exception as error:  # noqa: BLE001
        if said := machine_problem(error):
            print(f"Error: {said}", file=sys.stderr)
            return results.EXIT_USAGE
        return _harness_error(error)


def _harness_error(error: Exception) -> int:
    from shaketable.suites.gate.runner import HarnessError

    where = error.traceback if isinstance(error, HarnessError) else _saved(error)
    print(f"Harness error: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"{results.NOT_YOUR_JOB}; traceback in {where}", file=sys.stderr)
    return results.EXIT_HARNESS


def _saved(error: Exception) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="shaketable-harness-error-", suffix=".txt")
    with os.fdopen(descriptor, "w") as file:
        file.write("".join(traceback.format_exception(error)))
    return Path(name)


def _version(asked: bool) -> None:
    if asked:
        print(f"shaketable {version_of('shaketable')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@command(
    examples="""
shaketable run                                              the gate, with a canary that must fail
shaketable run worker-crash node-sigkill                    two experiments by name
shaketable run --all --cluster simulated                    the whole catalogue, in virtual time
shaketable run --all --cluster processes                    the same with real processes, without Ray
shaketable run --incidents --cluster simulated              what has happened elsewhere, in virtual time
shaketable run --tag node --jobs 2 --seed 7                 all experiments with a tag
shaketable run --fail-fast --quiet                          stop at the first red one; print little
shaketable run my-experiment.yaml --var nodes=4             your file, with one key overridden
shaketable run worker-crash --subject ray-train             the same experiment against Ray Train
shaketable run worker-crash --cluster attach:10.0.0.1:6379  on a Ray cluster that is already running
shaketable run worker-crash --cluster kind --image IMAGE    on a kind cluster that is made for the run
shaketable run partition-worker --cluster containers        on containers, each a machine with a network of its own
shaketable run --repeat 5 --jobs 1 --compare-with old-results --max-slower 2x
shaketable run worker-crash --mutant resume-from-scratch    is a broken runtime caught?
shaketable run worker-crash -- python train.py --epochs 3   your own Ray Train script, unmodified
shaketable run worker-crash --step-key epoch -- python train.py
shaketable run node-sigkill --train my_package.my_job:train --config job.yaml
shaketable run --kill-at-each write -- python train.py      does your own save survive SIGKILL?
""",
    cls=WithOwnCommand,
)
def run(
    context: typer.Context,
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPERIMENT", help="Experiment names or files. Default: the gate.", autocompletion=experiment_names
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run the whole catalogue.")] = False,
    incidents: Annotated[bool, typer.Option("--incidents", help="Run every incident.")] = False,
    tag: Tags = None,
    subject: Annotated[
        str | None, typer.Option(metavar="NAME", help="System under test: bundled or ray-train.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where to run: local, processes, simulated, containers, kuberay, kind, or attach:ADDRESS (of Ray).",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Image of the nodes; for kuberay and kind with your job in it. Default for --cluster containers: what"
            " `image build` made.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Seed for all randomness. Default: today's date, or the seed in the file."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=64, help="Experiments to run in parallel. Default: 2.")
    ] = None,
    var: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Override a configuration key. Repeatable.")
    ] = None,
    mutant: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Plant this bug, or several (with commas). List: `python -m shaketable.suites.mutants --list`.",
        ),
    ] = "",
    train: Annotated[
        str, typer.Option(metavar="PKG.MOD:FUNC", help="Run your own training function instead of the file's job.")
    ] = "",
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Arguments for --train, as JSON or YAML.")] = None,
    step_key: Annotated[
        str, typer.Option(metavar="NAME", help="Reported metric that counts steps. Default: count reports.")
    ] = "",
    repeat: Annotated[
        int, typer.Option(metavar="N", min=1, max=100, help="Run every experiment so many times, for `compare`.")
    ] = 1,
    retry_invalid: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=10,
            help="Run an INVALID experiment again, up to N times. Useful on busy machines. Default: 0.",
            show_default=False,
        ),
    ] = 0,
    compare_with: Annotated[
        Path | None,
        typer.Option(metavar="RESULTS", help="Compare with this earlier run at the end, as `shaketable compare`."),
    ] = None,
    max_slower: Annotated[
        str | None,
        typer.Option(metavar="2x", help="With --compare-with: exit code 1 if a recovery takes so many times as long."),
    ] = None,
    kill_at_each: Annotated[
        list[own_job.FileEvents] | None,
        typer.Option(
            help="Kill your command at every such event of its files in one checkpoint: which lose it? Repeatable."
        ),
    ] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first experiment that is red.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what is red, and the last line.")] = False,
    within: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, show_default=False, help="Time limit for your job. Default: 300.")
    ] = 0,
    results_dir: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", help="Where to write results. Default: ./shaketable-results/<time>."),
    ] = None,
    json: Json = None,
) -> int:
    """Run experiments and judge them.

    A command after `--` is your own Ray Train script. It runs unmodified: first without faults, then under each
    experiment. `python` in it is the interpreter that runs shaketable.

    [tool.shaketable] in pyproject.toml sets subject, cluster, tags, jobs, results, compare_with and max_slower. An
    option wins."""
    from shaketable.suites.gate import runner
    from shaketable.suites.gate.outputs import ROOT, as_json
    from shaketable.suites.tools import project

    settings = project.read(Path.cwd())
    if settings.says_something and not quiet:
        print(settings)
    words = own_job.command(context)
    if kill_at_each:
        check_json(json)
        beside: dict[str, object] = {
            "EXPERIMENT": experiments,
            "--all": everything,
            "--incidents": incidents,
            "--tag": tag,
        }
        beside |= {"--subject": subject, "--cluster": cluster, "--var": var, "--mutant": mutant, "--train": train}
        beside |= {
            "--seed": seed,
            "--repeat": repeat > 1,
            "--retry-invalid": retry_invalid,
            "--compare-with": compare_with,
            "--fail-fast": fail_fast,
        }
        folders = results_dir, settings.below(settings.results) or ROOT
        killed = own_job.killed_at_each(kill_at_each, words, step_key, within, folders, quiet, beside)
        write(json, as_json(killed))
        return results.exit_code(killed)
    own = own_job.variables(words, train, config, step_key, within, subject or settings.subject)
    usual = _variables((), subject=settings.subject, cluster=settings.cluster)
    variables = usual | own | _variables(var or (), subject=subject, cluster=cluster, image=image)
    mutants.known(mutant)
    named = experiments or everything or incidents
    chosen = tag or ([] if named or mutant or own else list(settings.tags))
    request = runner.Request(
        tuple(experiments or ()),
        everything,
        tuple(chosen),
        variables,
        seed,
        jobs or settings.jobs or 2,
        results_dir,
        mutant,
        repeat,
        retry_invalid,
        fail_fast,
        quiet,
        settings.below(settings.results) or ROOT,
        incidents,
    )
    check_json(json)
    earlier = compare_with or settings.below(settings.compare_with)
    limit = max_slower or (settings.max_slower if earlier is not None else None)
    finished = runner.run(request, sys.stdout, _comparison(earlier, limit))
    write(json, as_json(finished))
    return results.exit_code(finished)


def _comparison(compare_with: Path | None, max_slower: str | None) -> runner.Conclude:
    """Raises UsageError before anything runs."""
    from shaketable.suites.tools import comparing

    limit = comparing.times(max_slower)
    if compare_with is None:
        if limit is not None:
            raise UsageError("--max-slower is a limit of a comparison; give --compare-with RESULTS too")
        return lambda run, folder: (run, [])
    return comparing.at_the_end(comparing.load(compare_with), limit)


@command(
    examples="""
shaketable judge shaketable-results/latest                 every experiment of a run, with its canary
shaketable judge shaketable-results/latest/worker-crash    one experiment
shaketable judge /media/usb/worker-crash                   a copy on another machine: the same verdict
"""
)
def judge(
    result_dir: Annotated[
        Path, typer.Argument(metavar="RESULT_DIR", help="A result folder, or a directory of result folders.")
    ],
    json: Json = None,
) -> int:
    """Judge recorded histories again.

    Runs nothing. Writes nothing to RESULT_DIR."""
    from shaketable.reports.console import Console, canary_line, detail_lines, last_line, verdict_line
    from shaketable.suites.command.judging import judge_folder
    from shaketable.suites.gate.outputs import as_json

    check_json(json)
    judged = judge_folder(result_dir)
    console, width = Console(sys.stdout), max((len(result.name) for result in judged.results), default=0)
    for result in judged.results:
        for line in (verdict_line(result, width), *detail_lines(result)):
            console.line(line)
    for line in filter(None, (canary_line(judged), last_line(judged, ""))):
        console.line(line)
    write(json, as_json(judged))
    return results.exit_code(judged)


@command(
    examples="""
shaketable doctor                     what is missing, with the fix
shaketable doctor --json doctor.json
"""
)
def doctor(json: Json = None) -> int:
    """Check this machine.

    Looks at versions, memory, disk, limits, ports and extras. Exit code 2 if experiments cannot run here."""
    from shaketable.suites.command.doctor import examine

    check_json(json)
    checks = examine()
    for check in checks:
        advice = f"  -> {check.advice}" if check.advice else ""
        print(f"{check.status:<8} {check.name:<17} {check.seen}{advice}")
    write(json, encoded({"checks": checks}))
    wrong = any(check.status == "wrong" for check in checks)
    print("experiments cannot run here: fix the lines marked wrong" if wrong else "ready: shaketable run")
    return results.EXIT_USAGE if wrong else results.EXIT_PASS


def _variables(pairs: list[str] | tuple[()], **flags: str | None) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--var {pair}: write KEY=VALUE, such as --var nodes=4")
        variables[key] = value
    return variables | {key: value for key, value in flags.items() if value is not None}


def check_json(path: Path | None) -> None:
    check_file(path, "--json")


def check_file(path: Path | None, option: str) -> None:
    """Before minutes of work are done for a file that cannot be written. Leaves none behind."""
    if path is not None and path != STDOUT:
        there = path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            raise UsageError(f"cannot write {option} {path}: {error.strerror}") from None
        if not there:
            path.unlink()


def write(path: Path | None, content: bytes) -> None:
    if path == STDOUT:
        _json_out.write(content.decode())
        _json_out.flush()
    elif path is not None:
        path.write_bytes(content)


def encoded(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode({"schema": results.SCHEMA, **content})) + b"\n"
