"""Chips without overheads and launches from plain lists, for the tests of the components."""

from __future__ import annotations

from npusim import components, load_chip, program, simulate
from npusim.program.inputs import make_inputs

PATHS = ["l1_to_l0a", "l1_to_l0b", "fill_l1", "l0c_to_ub", "ub_to_l1", "l1_to_ub"]
PORTS = ["gm_to_ub", "gm_to_l1", "ub_to_gm"]


def plain_chip(**overrides):
    """Return a coupled chip on which only bytes and products take time."""
    zero = {f"paths.{p}.{n}": 0 for p in PATHS for n in ("issue_cycles", "latency_cycles")}
    zero |= {f"ports.{p}.issue_cycles": 0 for p in PORTS}
    zero |= {f"cube.head_{n}_cycles": 0 for n in ("streamed", "isolated")}
    zero |= {"vector.head_cycles": 0, "scalar.issue_cycles": 0, "flags.latency_cycles": 0}
    zero |= {f"{m}.read_latency_ns": 0 for m in ("l2", "hbm")} | {"l2.write_latency_ns": 0}
    wide = {"l2.read_bytes_per_cycle": 1e9, "l2.write_bytes_per_cycle": 1e9, "hbm.nominal_gb_per_s": 1e9}
    dotted = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_chip("ascend-310", overrides=zero | wide | dotted)


def built(stream, segments):
    """Return a program of a stream function on coupled or vector cores; `segments` makes its arrays."""

    @program(name="bench")
    def bench(k, *, blocks: int = 1):
        """Run a stream."""
        made = segments(k) if segments else ()
        kind = "coupled" if k.chip.coupled else "vector"
        k.launch("bench", blocks=blocks, **{kind: lambda c: stream(c, *made)})

    return bench


def run(stream, chip, segments=None, *, blocks=1, l2="warm"):
    """Time a stream function and return its components."""
    options = {"l2": l2, "timing_only": True, "spans": True}
    return components(simulate(built(stream, segments), chip, blocks=blocks, **options))


def outputs(stream, chip, segments, *, blocks=1):
    """Run a stream function with all checks and return inputs and outputs by name."""
    maker = built(stream, segments)
    inputs = make_inputs(maker.build(chip, {"blocks": blocks}), 0)
    report = simulate(maker, chip, inputs=inputs, blocks=blocks)
    return inputs, report.outputs
