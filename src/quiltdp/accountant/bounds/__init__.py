"""One bound per file; :mod:`~quiltdp.accountant.bounds.table` says when each is taken, and in which order."""
