"""What the leakage means for conclusions drawn adaptively from correlated data."""
