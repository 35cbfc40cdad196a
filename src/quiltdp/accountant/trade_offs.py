"""The thresholds of the accountant: how far each method goes, in one place, with what each trades.

None of them decides whether a number is sound.  Those of memory change no number; those of tightness make
answers larger where work ends.  What a caller chooses is the :class:`~quiltdp.work.WorkBudget`; margins for
rounding, and where doubles end, stand beside the formulas that need them.
"""

from __future__ import annotations

# -- chains
# transports of four states that one side may take, by work level: tightness for time
CHAIN_TRANSPORTS = {"quick": 1e5, "normal": 1e6, "thorough": 3e7, "custom": 1e6}
# how near the free tilt far evidence is merged, for a share of that work: tightness for time
CHAIN_MERGED = ((1e-6, 0.1), (1e-4, 1.0), (1e-2, 1.0), (1e-1, 1.0))
CHAIN_POSITIONS = 20_000  # of a chain that is read step by step
# positions from an end solved one by one; further in, a bound for all of a phase: tightness for time
CHAIN_WALKED = 256
CHAIN_ROUNDS = 4000  # in which that bound comes down from Σ α: tightness for time
CHAIN_DISTANCE = 4096  # the longest block of the scalar recursion: tightness for time
CHAIN_CURVES = 1e7  # numbers sorted for the threshold curves of one side: tightness for time
THRESHOLD_AT_ONCE = 200_000  # numbers per batch of pairs of rows: memory
MQM_TABLES = 40  # tables of different steps per entry that the work budget allows one table
# numbers compared for the published formula beside another answer, which costs about as much
MQM_BESIDE = 4e7

# -- coupling and transport
COUPLING_NODES = 20_000  # of a model: time
COUPLING_PAIR = 16  # pairs of the budget that one pair counts as: it takes a transport
# values revealed together, in both orders, for a share of the budget
COUPLING_FINER = ((30, True, 16), (8, False, 1), (1, False, 1))
COUPLING_ENTRIES = 32  # times the budget's entries may all tables have: most of large ones are impossible
COUPLING_WORTH = 1e-4  # the mass from which on a pair of states is compared: tightness for time
COUPLING_FAINT = 1 / 32  # share of that mass from which on a single change is: tightness for time
COUPLING_LIGHT = 1e-3  # share of that mass below which a pair is bounded by Σ α: time
COSTS_AT_ONCE = 2**18  # of transports of all pairs, or of chosen ones: memory
CHANGES_AT_ONCE = 2**14  # single changes looked at together: memory
TRANSPORT_AT_ONCE = 1 << 19  # numbers per block of transports: it stays in the processor's cache

# -- forward-backward
ROWS_AT_ONCE = 1 << 18  # numbers per batch of pairs of rows: memory
ROWS_SOLVED = 500_000.0  # transports of four states for all tables; beyond, ceilings: tightness for time
DESCENDANTS_COUNTED = 2_500  # nodes of a model whose descendants are counted: tightness for memory
ROWS_LISTED = 2_000_000  # pairs of rows of one table; a larger one is answered by the largest distance
BACKWARD_AT_ONCE = 1 << 22  # distances held at once: memory
BACKWARD_SOLVED = 1000.0  # transports of four states for one node; beyond, ceilings: tightness for time
LOOPS_AT_ONCE = 1 << 17  # numbers per batch of a loop: memory
LOOPS_SOLVED = 50_000.0  # transports of four states in a batch; beyond, ceilings: tightness for time

# -- the exact limit, and what may be known
TREE_PATH = 1_000  # nodes of a path up to which trees are tried where the chain leaves something: time
LIMIT_RECORDS = 16  # of which every subset may be known: time
LIMIT_AXES = 32  # records where nothing is known: a table has one axis for each
ADVERSARIES_AT_ONCE = 512  # looked at together
CEILINGS_AT_ONCE = 2**21  # pairs of states whose ceilings are computed before a limit is looked at: memory

# -- approximate DP
UNIT_PARTS = 64  # of the largest sensitivity, to which unequal ones are rounded up: tightness for time
UNITS_APART = 600  # beyond, units of a component of equal sensitivity count for the worst: tightness for time
LEAKAGES_APART = 16  # of a component at one rate; those between are raised to the next: tightness for time
RATE_SPACING = 1 / 64  # of ln λ: what is found at one rate is kept for every noise and ε: tightness for time
RATES_APART = 16  # every so many of these rates leakages are computed to choose one: tightness for time
WEIGHTS_EXACT = 256  # weights one by one; beyond, in bins of this share of them: tightness for time

# -- attacks
BRACKET_NODES = 200  # of a model that is attacked beside every answer: it should not be felt
BRACKET_ENTRIES = 2**15  # of one of its tables
ATTACK_ROUNDS = 12  # of coordinate ascent; it settles after three or four
ATTACK_TARGETS = 6  # records that are attacked in earnest: strength for time
ATTACK_TRIALS = 3  # of what might be learned next, those that are followed up: strength for time
# propagations at most, by work level
ATTACK_RUNS = {"passing": 400, "quick": 400, "normal": 4_000, "thorough": 60_000}
# entries that they touch together
ATTACK_ENTRIES = {"passing": 4.8e6, "quick": 4e7, "normal": 6e8, "thorough": 2e10}
ATTACK_LEAST = 24  # propagations, however large the tree
SUM_VALUES = 4000  # of the sum that an attack on Gaussian noise reads: memory
SUM_PARTS = 8  # of the largest sensitivity: terms are whole multiples of it: strength for time
SUM_OUTPUTS = 2**12  # of discrete noise, looked at together: memory
SUM_GRID = 600  # points among which crossings are looked for
