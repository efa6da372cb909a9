"""The commands, each a call into the library."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import typer

import npusim
from npusim.cli.options import (
    ARGV,
    DEFAULT_CHIP,
    AsJson,
    ChipName,
    Inputs,
    Numerics,
    Overrides,
    Params,
    ProgramName,
    Request,
    Seed,
    build,
    load,
)
from npusim.cli.screen import document, progress, show, show_report, width
from npusim.config.resolved import resolved_yaml
from npusim.config.schema import schema_text as chip_schema_text
from npusim.errors import ConfigError, MismatchError
from npusim.machine.resolve import Resolved
from npusim.program.asm import asm_header, asm_launch
from npusim.program.core import Launch
from npusim.program.discover import find_program, plugged_programs, shipped_programs
from npusim.report import listing, reference
from npusim.report.checked import check as check_built
from npusim.report.checked import streams_of
from npusim.report.manifest import RunFolder
from npusim.report.model import Values
from npusim.report.schema import schema_text as report_schema_text
from npusim.report.simulate import run as run_built
from npusim.report.text import check_text, report_text, values_words
from npusim.report.timeline import timeline
from npusim.trace.write import check_trace_file, write_trace

app = typer.Typer(
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        show(f"npusim {npusim.__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Run instruction streams on a model of an Ascend-like cube/vector NPU: values, cycles and waits."""


@app.command()
def run(
    program: ProgramName,
    chip: ChipName = DEFAULT_CHIP,
    param: Params = [],  # noqa: B006  # typer takes the default as it is and never changes it
    overrides: Overrides = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    seed: Seed = 0,
    numerics: Numerics = None,
    l2: Annotated[
        Literal["cold", "warm", "dirty"], typer.Option("--l2", help="State of L2 at the start.")
    ] = "cold",
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Compute no values, only time.")] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Skip the checks for hazards and limits.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Keep outputs, report, stream and manifest there."
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write who did what when: Chrome JSON, or Perfetto in a .pftrace."
        ),
    ] = None,
    spans: Annotated[
        bool, typer.Option("--spans", help="Keep in DIR what trace, plot and export need.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a program: its values, its time, and where the cycles went."""
    if timing_only and no_check:
        raise ConfigError("--no-check has no effect with --timing-only, which checks nothing; leave it out")
    if spans and output is None:
        raise ConfigError("--spans keeps something in the folder of -o DIR; add it, or leave --spans out")
    if trace is not None:
        check_trace_file(trace)
    with document(as_json):
        request = build(program, chip, param, overrides, inputs)
        folder = RunFolder(output, request.program) if output is not None else nullcontext()
        with folder as kept, progress() as line:
            report = run_built(
                request.program,
                request.chip,
                inputs=request.inputs,
                seed=seed,
                numerics=numerics,
                l2=l2,
                check=not no_check,
                timing_only=timing_only,
                spans=spans or trace is not None,
                progress=line,
                observe=kept.observe if kept is not None else None,
            )
            if kept is not None:
                kept.finish(report, request.chip, argv=["npusim", *ARGV.get()], inputs=request.files)
            if trace is not None:
                write_trace(timeline(report), trace)
    if as_json:
        show(report.to_json())
    else:
        step = _next_step(output, report.values, trace)
        show_report(report_text(report, width(), next_step=step))
    _settle(request, report.values)


@app.command()
def check(
    program: ProgramName,
    chip: ChipName = DEFAULT_CHIP,
    param: Params = [],  # noqa: B006
    overrides: Overrides = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    seed: Seed = 0,
    numerics: Numerics = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Print the streams first, with the origin of every instruction.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check limits, hazards, flags and values of a program without timing it, and bound its time."""
    if listed and as_json:
        raise ConfigError("--list prints text and --json one document; leave one of them out")
    with document(as_json):
        request = build(program, chip, param, overrides, inputs)
        with progress() as line:
            report = check_built(
                request.program,
                request.chip,
                inputs=request.inputs,
                seed=seed,
                numerics=numerics,
                progress=line,
                observe=_list_launch if listed else None,
            )
    if as_json:
        show(report.to_json())
    else:
        show("\n" if listed else "")
        step = f"{_again('run')}   (cycles, and why every pipe waits)"
        show_report(check_text(report, width(), next_step=step))
    _settle(request, report.values)


@app.command()
def asm(
    program: ProgramName,
    chip: ChipName = DEFAULT_CHIP,
    param: Params = [],  # noqa: B006
    overrides: Overrides = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    seed: Seed = 0,
    numerics: Numerics = None,
    origins: Annotated[
        bool, typer.Option("--origins", help="Add to every instruction why it is there and its source line.")
    ] = False,
) -> None:
    """Print a program as assembly text, which `npusim run FILE.asm` runs again."""
    request = build(program, chip, param, overrides, inputs)
    streams = streams_of(request.program, request.chip, inputs=request.inputs, seed=seed, numerics=numerics)
    show(_lines(asm_header(request.program)))
    for launch, resolved in streams:
        show(_lines(asm_launch(launch, resolved, origins=origins)))


@app.command()
def isa(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Instruction to explain.", show_default=False)
    ] = None,
    chip: ChipName = DEFAULT_CHIP,
    page: Annotated[bool, typer.Option("--page", help="Print the reference of all as Markdown.")] = False,
) -> None:
    """List the instructions, or explain one: fields, an example, and its cost on a chip."""
    if page:
        if name is not None:
            raise ConfigError(f"--page prints all instructions; leave {name} out")
        show(reference.page_text())
    elif name is None:
        show(reference.list_text(width()))
    else:
        show(reference.instruction_text(reference.find_instruction(name), load(chip), width()))


@app.command()
def chips(as_json: AsJson = False) -> None:
    """List the chips."""
    data = listing.chips_data()
    show(_dump(data) if as_json else listing.chips_text(data, width()))


@app.command("chip")
def show_chip(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A chip file or a name.", show_default=False)],
    overrides: Overrides = [],  # noqa: B006
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print every number with its source, as a complete chip file.")
    ] = False,
) -> None:
    """Describe a chip."""
    chip = load(name, overrides)
    show(resolved_yaml(chip) if resolved else listing.chip_text(chip, width()))


@app.command()
def programs(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Program to describe: a name or a file.", show_default=False),
    ] = None,
    chip: ChipName = DEFAULT_CHIP,
    as_json: AsJson = False,
) -> None:
    """List the programs, or describe one: its parameters, and its arrays on a chip."""
    with document(as_json):
        known = shipped_programs() | plugged_programs() if name is None else {name: find_program(name)}
        data = listing.programs_data(known)
    if as_json:
        show(_dump(data))
    elif name is None:
        show(listing.programs_text(known, width()))
    else:
        show(listing.program_text(name, known[name], load(chip), width()))


@app.command()
def schema(
    kind: Annotated[
        Literal["chip", "report", "sweep"], typer.Argument(metavar="chip|report|sweep", show_default=False)
    ],
) -> None:
    """Print the JSON Schema of chip files, of reports, or of the space files of sweeps."""
    from npusim.sweeps.schema import schema_text as sweep_schema_text  # for this command alone

    texts = {"chip": chip_schema_text, "report": report_schema_text, "sweep": sweep_schema_text}
    show(texts[kind]())


# ---- what the commands share -------------------------------------------------------------------------------


def _settle(request: Request, values: Values) -> None:
    """Raise where the outputs are wrong, once everything has been shown."""
    if values.ok is False:
        words = values_words(values, computed=True).removeprefix("WRONG: ")
        raise MismatchError(f"{request.program.name}: values differ from the reference: {words}")


def _again(command: str) -> str:
    """Return the command line that does something else with the same program."""
    return shlex.join(["npusim", command, *(a for a in ARGV.get()[1:] if a != "--list")])


def _next_step(output: str | None, values: Values, trace: str | None) -> str:
    if trace is not None:
        return f"open {trace} in ui.perfetto.dev"
    if output is not None:
        return f"{output} holds report.json, stream.asm and the outputs"
    if values.ok is False:
        return f"{_again('run')} -o DIR   (keeps the outputs to compare)"
    return f"{_again('run')} -o DIR   (keeps outputs, report and stream)"


def _list_launch(launch: Launch, streams: list[Resolved]) -> None:
    show(_lines(asm_launch(launch, streams, origins=True)))


def _lines(lines: Iterable[str]) -> Iterator[str]:
    return (f"{line}\n" for line in lines)


def _dump(data: Any) -> str:
    return json.dumps(data, indent=2, default=str) + "\n"
