"""The thresholds of the accountant: how far each method goes, in one place, with what each trades.

None of them decides whether a number is sound.  Those of memory change no number; those of tightness make
answers larger where work ends.  What a caller chooses is the :class:`~quiltdp.work.WorkBudget`; margins for
rounding, and where doubles end, stand beside the formulas that need them.
"""

from __future__ import annotations

# -- quilts
QUILTS_ALL = 8  # nodes up to which every quilt is looked at: tightness for time
QUILTS_NEARBY = 4  # nearby records of a quilt: the bound lists the 2^nearby sets L
QUILTS_PATIENCE = 3  # rounds of growing a quilt without an improvement: tightness for time
QUILTS_PATH = 64  # on longer paths only the chain solver's blocks are looked at: time
QUILTS_UNITS = 100  # units' worth of quilts that one evaluation may look at: tightness for time
PRIOR_QUILTS_NODES = 300  # nodes up to which the prior adversary's quilts are worth their time
PRIOR_QUILTS_UNITS = 20  # units' worth of quilts that all units share: tightness for time

# -- chains
# transports of four states that one side may take, by work level: tightness for time
CHAIN_TRANSPORTS = {"quick": 1e5, "normal": 1e6, "thorough": 3e7, "custom": 1e6}
# how near the free tilt far evidence is merged, for a share of that work: tightness for time
CHAIN_MERGED = ((1e-6, 0.1), (1e-4, 1.0), (1e-2, 1.0), (1e-1, 1.0))
CHAIN_POSITIONS = 20_000  # of a chain that is read step by step
# positions from an end solved one by one; further in, the fixed point: tightness for time
CHAIN_WALKED = 4096
CHAIN_DISTANCE = 4096  # the longest block of the informed solver: tightness for time
CHAIN_FULL = 16  # every so many positions all distances are tried, else near ones: tightness for time
CHAIN_PERIODS = 400  # candidate periods looked at
CHAIN_SORTED = 3e7  # numbers sorted for the curves of one side of a homogeneous chain: tightness for time
CHAIN_CURVES = 4e7  # the same with one matrix per step; afterwards spreads must do
THRESHOLD_AT_ONCE = 200_000  # numbers per batch of pairs of rows: memory
THRESHOLD_FEW = 12  # vertices of a curve that are all tried
MQM_TABLES = 40  # tables of different steps per entry that the work budget allows one table
# numbers compared for the published formula beside another answer, which costs about as much
MQM_BESIDE = 4e7

# -- coupling and transport
COUPLING_NODES = 20_000  # of a model: time
COUPLING_PAIR = 16  # pairs of the budget that one pair counts as: it takes a transport
# values revealed together, in both orders, for a share of the budget
COUPLING_FINER = ((30, True, 16), (8, False, 1))
COUPLING_ENTRIES = 32  # times the budget's entries may all tables have: most of large ones are impossible
COUPLING_STATES = 10  # times the budget's states may a clique have: most are never looked at
COUPLING_WORTH = 1e-4  # the mass from which on a pair of states is compared: tightness for time
COUPLING_FAINT = 1 / 32  # share of that mass from which on a single change is: tightness for time
COSTS_AT_ONCE = 2**18  # of transports of all pairs, or of chosen ones: memory
CHOICES_AT_ONCE = 2**17  # costs looked at while pairs are chosen: memory
TREES_KEPT = 2**27  # bytes of trees kept from one evaluation to the next: memory for time
GUESSES_KEPT = 2**22  # numbers kept for one level of one reveal: memory for time
SINGLE_ENTRIES = 8  # times the budget's entries may a clique of single changes have
SINGLE_NODES = 4_000  # of a model up to which sets of kept nodes are looked for: time
SINGLE_TREES = 8  # sets of kept nodes that are tried: tightness for time
CHANGES_AT_ONCE = 2**14  # single changes looked at together: memory
KERNELS_AT_ONCE = 1 << 11  # closed forms computed together: they stay in the processor's cache
TRANSPORT_AT_ONCE = 1 << 19  # numbers per block of transports: it stays in the processor's cache
FLOWS_AT_ONCE = 1 << 20  # numbers per block of flows: memory

# -- forward-backward
ROWS_AT_ONCE = 1 << 18  # numbers per batch of pairs of rows: memory
ROWS_SOLVED = 500_000.0  # transports of four states for all tables; beyond, ceilings: tightness for time
DESCENDANTS_COUNTED = 2_500  # nodes of a model whose descendants are counted: tightness for memory
ROWS_LISTED = 2_000_000  # pairs of rows of one table; a larger one is answered by the largest distance
BACKWARD_AT_ONCE = 1 << 22  # distances held at once: memory
# transports of four states that one message may take; beyond, states are merged in stages
BACKWARD_SOLVED = 200.0
LOOPS_AT_ONCE = 1 << 17  # numbers per batch of a loop: memory
LOOPS_SOLVED = 50_000.0  # transports of four states in a batch; beyond, ceilings: tightness for time

# -- the exact limit, and what may be known
LIMIT_RECORDS = 16  # of which every subset may be known: time
LIMIT_AXES = 32  # records where nothing is known: a table has one axis for each
ADVERSARIES_AT_ONCE = 128  # looked at together
CEILINGS_AT_ONCE = 2**22  # pairs of states whose ceilings are computed before a limit is looked at: memory
HEIGHTS_LISTED = 60_000  # height functions; where there are more, a linear program: time
CONDITIONED_NODES = 2_000  # of a model that is conditioned on what may be known: time

# -- approximate DP
LAW_ENTRIES = 60_000  # of one law; what lies beyond counts as δ = 1
# entries of each of two laws that are joined; longer ones are made coarser: tightness for time
LAW_JOINED = 2048
UNIT_PARTS = 64  # of the largest sensitivity, to which unequal ones are rounded up: tightness for time
UNITS_TOGETHER = 8192  # units that all records have together, then
RATES_TRIED = 40  # rates at which pairings are looked for: tightness for time
STEP_BY_STEP = 600  # longest path that is paired position by position: tightness for time
RATE_PAIRS = 8  # pairs of states at which the rate is chosen
RATE_POSITIONS = 12  # positions at which the rate is chosen
PAIRED_SORTED = 2e7  # numbers sorted for the threshold curves of one side: tightness for time
PAIRED_STATES = 12  # states up to which every pair gets its own toll: tightness for time
PAIRED_ROUNDS = 40  # in which tolls settle
PAIRED_ENTRIES = 2048  # of one law: slower chains are counted in groups of steps: tightness for time
PAIRED_PATH = 40  # longer paths have pairings of their own, trees and networks none
SEPARATOR_PAIR = 4000  # pairs of the budget that one pair of separator states counts as
CARRIED_SPACING = 0.25  # of ln λ: what is found at one rate is kept for every noise and ε: tightness for time
CARRIED_LOWER = 4  # rates below the first that are looked at where it says nothing
CARRIED_UNITS = 100  # units beyond which an evaluation takes seconds, and only bounds that pay are asked
CARRIED_PAID = 8  # rates that ask what has paid at one of them: tightness for time
CARRIED_AT_ONCE = 64  # weights between two looks at the limits

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

# -- privacy losses
EVENT_STEPS = 4000  # of an event taken step by step
