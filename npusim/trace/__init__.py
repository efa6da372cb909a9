"""Traces of runs: files for viewers of timelines and for readers of the vendor's profiler."""
