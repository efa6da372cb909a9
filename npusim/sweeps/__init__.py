"""Sweeps: one program over many chips, parameters and settings, as rows that are kept as they come."""
