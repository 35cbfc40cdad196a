"""Why the order rule of max-information exists: two harmless steps that reveal the whole dataset.

Step 1 publishes the syndrome of the data, a short description: few bits, small max-information for
every law.  Step 2 is (ε, δ)-DP: it decodes.  On product data each step alone has small
max-information; after step 1 the data are no longer a product law, they are a coset of an
error-correcting code whose points are far apart, so step 2 can name the point without depending
on any single record.  Together they reconstruct all n bits with probability at least 1 − δ.

    pip install galois; python benchmarks/reconstruction.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import DependencyMissing, InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_up
from quiltdp.generalization.max_information import (
    approximate_dp_max_information,
    description_length_max_information,
)

__all__ = ["Reconstruction", "reconstruction"]

Bits = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The two steps, for datasets of n bits.

    Attributes
    ----------
    n
        The number of records, one bit each.
    published_bits
        How many bits step 1 publishes.
    corrects
        t, how many errors the code corrects.
    dp_epsilon, delta
        The privacy of step 2.
    threshold
        Step 2 answers when its noisy distance is at most this.
    """

    n: int
    published_bits: int
    corrects: int
    dp_epsilon: float
    delta: float
    threshold: float
    _code: Any = field(repr=False)

    def describe(self, data: Bits) -> Bits:
        """Step 1: the remainder of the data, as a polynomial, by the code's generator.

        ``published_bits`` bits, so its max-information is at most that many bits (+ log 1/β), for
        every law.
        """
        record = self._bits(data)
        codeword = self._codeword_of_message(record)
        parity = record[self.n - self.published_bits :] ^ codeword[self.n - self.published_bits :]
        result: Bits = parity.astype(np.uint8)
        return result

    def _codeword_of_message(self, record: Bits) -> Bits:
        import galois

        message = galois.GF2(record[: self.n - self.published_bits])
        return np.asarray(self._code.encode(message), dtype=np.uint8)

    def answer(self, data: Bits, described: Bits, *, rng: np.random.Generator) -> Bits | None:
        """Step 2: name the coset's point next to the data, or nothing; (ε, δ)-DP in ``data``.

        Claim: the distance d of the data to the coset, capped at t + 1, moves by at most 1 with one
        record, so d + Lap(1/ε) ≤ threshold is ε-DP.  Neighbours with the same nearest point give
        the same answer; otherwise both distances are at least t, and an answer then has
        probability at most ½ e^{−ε(t − threshold)} ≤ δ.
        """
        record = self._bits(data)
        distance, point = self._nearest(record, described)
        noisy = distance + rng.laplace(scale=1 / self.dp_epsilon)
        return point if point is not None and noisy <= self.threshold else None

    def _nearest(self, record: Bits, described: Bits) -> tuple[int, Bits | None]:
        """Return min(distance to the coset, t + 1) and the coset's point within t, if there is one."""
        import galois

        shifted = record.copy()
        shifted[self.n - self.published_bits :] ^= np.asarray(described, dtype=np.uint8)
        codeword, errors = self._code.decode(galois.GF2(shifted), output="codeword", errors=True)
        if int(errors) < 0:
            return self.corrects + 1, None
        point = np.asarray(codeword, dtype=np.uint8)
        point = point.copy()
        point[self.n - self.published_bits :] ^= np.asarray(described, dtype=np.uint8)
        return int(errors), point

    def success_probability(self) -> float:
        """Return the exact chance that the answer to the described dataset is the dataset."""
        return 1 - 0.5 * math.exp(-self.dp_epsilon * self.threshold)

    def answer_chance_alone(self) -> float:
        """Return the exact chance that step 2 answers at all on uniform data and a fixed description.

        Σ_{d ≤ t} 2^k C(n, d)/2^n · P[d + Lap(1/ε) ≤ threshold]: balls around the coset's points are disjoint.
        """
        total = 0.0
        for d in range(self.corrects + 1):
            share = math.comb(self.n, d) / 2**self.published_bits
            gap = self.threshold - d
            tail = 0.5 * math.exp(-self.dp_epsilon * abs(gap))
            total += share * (1 - tail if gap >= 0 else tail)
        return min(1.0, round_up(total))

    def alone_bits(self) -> tuple[float, float]:
        """Return (bits, β) with I^β_∞ of step 2 alone at most that, on uniform data, the description fixed.

        Claim: answering has probability p, so P[⊥ | x]/P[⊥] ≤ 1/(1 − p), and everything else has
        probability at most p = β.  The paper's version: 1 bit for β ≥ 2δ.

        References
        ----------
        Rogers et al. (2016), Theorem 3.9(2) (line 386), (19) and (20).
        """
        p = self.answer_chance_alone()
        return (round_up(-math.log2(1 - p)) if p < 1 else math.inf), p

    def separate_bits(self, beta: float) -> float:
        """Return the bits the two steps *would* have together if their bounds could be added.

        The description-length bound of step 1 plus the product-data bound of step 2, each at β/2.
        The true joint max-information is about n bits.
        """
        beta = probability("beta", beta)
        first = description_length_max_information(self.published_bits, beta / 2)
        second = approximate_dp_max_information(self.dp_epsilon, self.delta, self.n, beta / 2)
        return first.bits + second.bits

    def revealed_bits(self, beta: float) -> float:
        """Return a lower bound on the joint β-approximate max-information of both steps, uniform data.

        The event "the answer is the dataset" has probability at least 1 − δ together and 2^{−n} apart,
        so I^β ≥ n + log₂(1 − δ − β).
        """
        beta = probability("beta", beta)
        rest = self.success_probability() - beta
        if rest <= 0:
            raise InvalidArgument(f"beta = {beta:g} must be below the success probability")
        return self.n + math.log2(rest)

    def _bits(self, data: Bits) -> Bits:
        record = np.asarray(data)
        if record.shape != (self.n,) or not np.isin(record, (0, 1)).all():
            raise InvalidArgument(f"data must be {self.n} bits")
        result: Bits = record.astype(np.uint8)
        return result


def reconstruction(*, n: int, dp_epsilon: float, delta: float) -> Reconstruction:
    """Build the two steps from a BCH code of length n.

    Claim: with θ = ln(1/2δ)/ε and a code that corrects t ≥ 2θ errors, step 1 publishes
    n − k ≤ t log₂(n + 1) bits, step 2 is (ε, δ)-DP, and together they return the dataset with probability
    at least 1 − δ.

    Parameters
    ----------
    n
        The number of records, 2^m − 1 for a primitive BCH code.
    dp_epsilon, delta
        The privacy of step 2.

    Raises
    ------
    InvalidArgument
        If no BCH code of this length corrects enough errors.
    DependencyMissing
        Without galois.

    Examples
    --------
    >>> attack = reconstruction(n=127, dp_epsilon=1.0, delta=0.05)        # doctest: +SKIP
    >>> attack.published_bits, attack.corrects, round(attack.revealed_bits(0.01))  # doctest: +SKIP
    (35, 5, 127)

    References
    ----------
    Rogers et al. (2016), Theorem 3.9, Algorithms 1 and 2 (with a BCH code and natural logarithms); the
    construction goes back to De (2012).
    """
    n = count("n", n)
    if n < 7 or (n + 1) & n:
        raise InvalidArgument(f"n = {n} must be 2^m − 1 (7, 15, 31, 63, …), the length of a BCH code")
    eps = positive("dp_epsilon", dp_epsilon)
    small = probability("delta", delta)
    if small >= 0.5:
        raise InvalidArgument(f"delta = {delta!r} must be below 1/2")
    threshold = round_up(math.log(1 / (2 * small)) / eps)
    errors = max(1, math.ceil(2 * threshold))
    code = _bch(n, 2 * errors + 1) if 2 * errors + 1 <= n else None
    if code is None:
        raise InvalidArgument(
            f"no BCH code of length {n} corrects {errors} = ⌈2 ln(1/2δ)/ε⌉ errors: use more records,"
            " a larger ε or a larger δ"
        )
    return Reconstruction(n, n - int(code.k), int(code.t), eps, small, threshold, code)


def _bch(n: int, distance: int) -> Any:
    try:
        import galois
    except ImportError:
        raise DependencyMissing("this needs an error-correcting code: pip install galois") from None
    try:
        return galois.BCH(n, d=distance)
    except (ValueError, IndexError):  # no such code, or one without messages
        return None


if __name__ == "__main__":
    attack = reconstruction(n=127, dp_epsilon=1.0, delta=0.05)
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, attack.n).astype(np.uint8)
    again = attack.answer(data, attack.describe(data), rng=rng)
    print(f"{attack.n} bits, {attack.published_bits} published, then a (1, 0.05)-DP step")
    print(
        "the data set, bit by bit" if again is not None and (again == data).all() else "no answer this time"
    )
    print(f"bounds added: {attack.separate_bits(0.5):.1f} bits; the truth: {attack.revealed_bits(0.01):.1f}")
