"""Mechanisms with secure noise, Thresholdout, and the reusable holdout."""
