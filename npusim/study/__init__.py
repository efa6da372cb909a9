"""Studies of numerical methods in plain NumPy: models of algorithms apart from any machine."""
