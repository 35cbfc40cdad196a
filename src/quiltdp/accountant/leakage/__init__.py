"""One bound per file; this index says where each one lives, so that only what is needed is loaded.

Each line is (adversary, method, module); the order of ``AUTOMATIC`` is the order in which ``auto``
takes them, cheapest first.  ``ON_REQUEST`` are asked for by name only; the papers'
other statements stand outside the engine and are named in full.  ``RENAMED`` are names of the
version before, which are still understood, with a warning.
"""

__all__ = ["AUTOMATIC", "ON_REQUEST", "RENAMED"]

AUTOMATIC = (
    ("informed", "group", "group"),
    ("informed", "chain", "chain"),
    ("informed", "propagation", "propagation"),
    ("prior", "exact", "limit"),
    ("informed", "exact", "limit"),
    ("prior", "coupling", "coupling"),
    ("prior", "forward-backward", "forward_backward"),
    ("prior", "coupling@wide", "coupling_single"),
    ("informed", "informed-tree", "informed_tree"),
    ("informed", "every-adversary", "every_adversary"),
    ("informed", "quilts", "quilts"),
    ("prior", "quilts", "quilts"),
    ("informed", "conditioned", "conditioned"),
)
ON_REQUEST = (
    ("informed", "swing", "quilts"),
    ("informed", "published", "published"),
    ("informed", "published-blanket", "published"),
    ("informed", "lemma4", "quiltdp.papers.lemma4"),
    ("informed", "lange", "quiltdp.papers.lange"),
    ("prior", "published", "published"),
    ("prior", "mqm-approx", "quiltdp.papers.mqm_approx"),
    ("prior", "gk16", "quiltdp.papers.gk16"),
)
RENAMED = dict.fromkeys(("clique-tree", "coupling-chosen", "coupling-single"), "coupling")
