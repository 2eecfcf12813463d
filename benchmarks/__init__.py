"""Benchmarks: ratios from one interleaved run, because machines are shared and noisy. `make bench` runs them all."""
