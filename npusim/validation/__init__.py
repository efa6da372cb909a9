"""The simulator against published measurements of devices."""

from npusim.validation.validate import Validation, validate

__all__ = ["Validation", "validate"]
