"""The five source papers as printed, their exhibits, and the mechanisms that ours are compared with.

No answer of the engine rests on this package, and nothing in it is loaded before somebody imports it.
Importing it registers the comparisons: ``method="lemma4"``, ``"lange"``, ``"mqm-approx"`` and ``"gk16"``.

* :mod:`~quiltdp.papers.zhao`: Lemmas 1 and 4, Theorems 1 and 2 (Lemmas 2 and 3 are bounds of the engine);
* :mod:`~quiltdp.papers.rogers`: max-information of (ε, δ)-DP, indistinguishability, the lower bound;
* :mod:`~quiltdp.papers.kl_privacy` and :mod:`~quiltdp.papers.privacy_definitions`: Wang, Lei and Fienberg;
* :mod:`~quiltdp.papers.typical_stability`: Bassily and Freund;
* :mod:`~quiltdp.papers.monitor`: the lecture on the transfer theorem;
* :mod:`~quiltdp.papers.comparisons`: Lemma 4, Song et al., Ghosh and Kleinberg, Lange et al.;
* :mod:`~quiltdp.papers.cao`: temporal privacy leakage, Cao et al.
"""

from __future__ import annotations

from quiltdp.papers import comparisons as comparisons
