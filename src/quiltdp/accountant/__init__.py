"""The accountant layer: leakage bounds, calibration, composition."""
