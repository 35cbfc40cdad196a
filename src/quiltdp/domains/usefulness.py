"""Can a noisy table be read?  Judged by what its reader sees, never by the true counts.

Laplace noise of scale σ is within ± σ ln 20 in 95 % of all cases; the largest of n such values is
about σ ln(2n), and in 95 % of all tables none is above σ ln(10n), as n · ½ e^(−ln 10n) = 0.05.  A count
stands above the noise when it is larger than all of these.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def noise_reach(sigma: float, cells: int) -> tuple[float, float]:
    """Return how far one noise value reaches (95 %), and about the largest of ``cells``.

    Examples
    --------
    >>> [round(x) for x in noise_reach(2352.0, 506)]
    [7046, 16275]
    """
    return sigma * math.log(20.0), sigma * math.log(2.0 * cells)


def judge_noise(sigma: float, cells: int, most: float) -> str | None:
    """Say what noise of this scale will hide in ``cells`` counts of at most ``most``; None if little.

    Only what is public enters, so it may be asked before a release.

    Examples
    --------
    >>> print(judge_noise(90.0, 5, most=100.0))
    the noise hides everything: a count is known to ± 270 (95 %), and none can exceed 100
    >>> judge_noise(1.0, 5, most=100.0)
    """
    one, largest = noise_reach(sigma, cells)
    if one >= most / 2:
        return (
            f"the noise hides everything: a count is known to ± {_rounded(one)} (95 %), and none can"
            f" exceed {most:g}"
        )
    if largest >= most / 2:
        return (
            f"a single count is known to ± {_rounded(one)} (95 %), but the largest of {cells:,} noise values"
            f" is about {_rounded(largest)}, and no count can exceed {most:g}: the largest counts are not"
            " to be trusted"
        )
    return None


def judge_table(noisy: ArrayLike, sigmas: ArrayLike) -> tuple[int, str]:
    """Return how many noisy counts stand above the noise, and that in a sentence.

    It is computed from the released numbers, so it tells nothing more and may be published with them.
    Of a table of noise alone it is "none" with probability 0.95.

    Examples
    --------
    >>> above, said = judge_table([3.0, -40.0, 900.0], 20.0)
    >>> print(said)
    1 of the 3 cells stands above the noise (each ± 59.9 in 95 %, the largest about 35.8, at most 68 in 95 %)
    """
    values = np.asarray(noisy, dtype=np.float64)
    scales = np.broadcast_to(np.asarray(sigmas, dtype=np.float64), values.shape)
    widest = float(scales.max())
    one, largest = noise_reach(widest, values.size)
    reach = math.log(max(20.0, 10.0 * values.size))
    above = int(np.count_nonzero(values > scales * reach))
    count = f"{above:,}" if above else "none"
    stand = "stand" if above > 1 else "stands"
    return above, (
        f"{count} of the {values.size:,} cells {stand} above the noise (each ± {_rounded(one)} in 95 %, the"
        f" largest about {_rounded(largest)}, at most {_rounded(widest * reach)} in 95 %)"
    )


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
