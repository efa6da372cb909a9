"""What the hardware is: chip descriptions, how they are found and loaded."""

from npusim.config.chip import Chip
from npusim.config.find import chip_names
from npusim.config.load import load_chip
from npusim.config.resolved import resolved_yaml

__all__ = ["Chip", "chip_names", "load_chip", "resolved_yaml"]
