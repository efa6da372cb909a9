"""Where the points of a sweep run: in this process, in worker processes, or on a Dask cluster."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Literal, get_args

from npusim.errors import ConfigError, did_you_mean
from npusim.sweeps.plan import Point
from npusim.sweeps.play import Player, run_point
from npusim.sweeps.rows import Row, failed_row

Backend = Literal["loky", "sequential", "dask"]


def check_backend(backend: str, jobs: int) -> None:
    """Raise `ConfigError` for a backend that does not exist or is not installed, and for jobs of 0 or -2."""
    known = get_args(Backend)
    if backend not in known:
        near = did_you_mean(backend, known) or f"; backends: {' '.join(known)}"
        raise ConfigError(f"sweep: no backend {backend!r}{near}")
    if jobs != -1 and jobs < 1:
        raise ConfigError(f"sweep: jobs must be 1 or more, or -1 for all cores, not {jobs}")
    if backend == "dask" and importlib.util.find_spec("distributed") is None:
        raise ConfigError("backend dask needs Dask; install it with pip install 'npusim[cluster]'")


def run_points(points: Sequence[Point], *, backend: Backend, jobs: int, client: Any = None) -> Iterator[Row]:
    """Yield the rows of the points as they finish.

    `client` is a `distributed.Client` for the backend dask; without one the current client is taken, and
    without any a cluster of `jobs` processes of this machine. A point that ends its loky worker, as a lack
    of memory does, is a row that failed; in this process, with one job, it ends the sweep.
    """
    workers = jobs if jobs > 0 else os.cpu_count() or 1
    if backend == "sequential" or (backend == "loky" and workers == 1):
        player = Player()
        for point in _by_stream(points, 1):
            yield run_point(point, player)
    elif backend == "loky":
        yield from _on_loky(points, workers)
    else:
        with ExitStack() as stack:
            client, workers = _client(stack, jobs, client)
            yield from _on_dask(_by_stream(points, workers), workers, client)


def _on_dask(points: Sequence[Point], workers: int, client: Any) -> Iterator[Row]:
    """Run points on a Dask cluster, two a worker at a time; Dask gives up one that ends several workers."""
    from distributed import KilledWorker, as_completed

    waiting = iter(points)
    given = {client.submit(run_point, p, pure=False): p for p in itertools.islice(waiting, 2 * workers)}
    done = as_completed(list(given))
    for future in done:
        point, error = given.pop(future), future.exception()
        if error is None:
            yield future.result()
        elif isinstance(error, KilledWorker):
            yield failed_row(point, f"{point.name}: the processes that ran it ended")
        else:
            raise error
        for more in itertools.islice(waiting, 1):
            following = client.submit(run_point, more, pure=False)
            given[following] = more
            done.add(following)


def _on_loky(points: Sequence[Point], workers: int) -> Iterator[Row]:
    """Run points in worker processes; where one of these is gone, the points under way run again alone."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = _by_stream(points, workers)
    while left:
        waiting, given, done = iter(left), list[Point](), set[str]()
        calls = (delayed(run_point)(point) for point in _noted(waiting, given))
        try:
            with parallel_config(backend="loky", inner_max_num_threads=1):
                parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
                for row in parallel(calls):
                    done.add(row["point"])
                    yield row
            return
        except TerminatedWorkerError:  # whose point it was is not told
            for point in given:
                if point.key not in done:
                    yield _alone(point)
        left = list(waiting)


def _noted(points: Iterable[Point], given: list[Point]) -> Iterator[Point]:
    """Yield points and note which of them were taken."""
    for point in points:
        given.append(point)
        yield point


def _alone(point: Point) -> Row:
    """Run a point in a process of its own; one that ends the process has failed."""
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pool = ProcessPoolExecutor(max_workers=1)
    try:
        row: Row = pool.submit(run_point, point).result()
        return row
    except TerminatedWorkerError as error:
        code = re.search(r"\{(\w+)\((-?\d+)\)", str(error))
        how = (
            "" if code is None else f" with {code[1]}" if code[1] != "EXIT" else f" with exit code {code[2]}"
        )
        hint = "; was memory short?" if how.endswith("SIGKILL") else ""
        return failed_row(point, f"{point.name}: its process ended{how}{hint}")
    finally:
        pool.shutdown(kill_workers=True)


def _client(stack: ExitStack, jobs: int, client: Any) -> tuple[Any, int]:
    """Return a Dask client, closed with the stack where it is made here, and its number of workers."""
    from distributed import Client, LocalCluster, get_client

    if client is None:
        try:
            client = get_client()
        except ValueError:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=None if jobs == -1 else jobs, threads_per_worker=1, dashboard_address=None
                )
            )
            client = stack.enter_context(Client(cluster))
    return client, len(client.nthreads()) or 1


def _by_stream(points: Sequence[Point], workers: int) -> list[Point]:
    """Put points with the same streams one behind the other, in as many lanes as there are workers.

    A worker keeps the streams that it played last, so points that share them are best given to one worker;
    lanes of equal speed come to that.
    """
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.stream_key, []).append(point)
    if len(groups) < workers:
        return [point for group in groups.values() for point in group]
    lanes: list[list[Point]] = [[] for _ in range(workers)]
    for group in groups.values():
        min(lanes, key=len).extend(group)
    rows = itertools.zip_longest(*lanes)
    return [point for row in rows for point in row if point is not None]
