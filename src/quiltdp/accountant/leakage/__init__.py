"""From α to leakage: one bound per file, each sound."""
