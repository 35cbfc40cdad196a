"""Why the order rule of max-information exists: two harmless steps that reveal the whole dataset.

Step 1 publishes the syndrome of the data, a short description: few bits, small max-information for
every law.  Step 2 is (ε, δ)-DP: it decodes.  On product data each step alone has small
max-information; after step 1 the data are no longer a product law, they are a coset of an
error-correcting code whose points are far apart, so step 2 can name the point without depending
on any single record.  Together they reconstruct all n bits with probability at least 1 − δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import DependencyMissing, InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_down, round_up
from quiltdp.generalization.approximate_dp import approximate_dp_max_information
from quiltdp.generalization.max_information import description_length_max_information

__all__ = [
    "PrintedReconstruction",
    "Reconstruction",
    "no_product_bound",
    "printed_reconstruction",
    "reconstruction",
]

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
        Without the extra ``codes`` (galois).

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


@dataclass(frozen=True)
class PrintedReconstruction:
    """The parameters of the paper's own construction (log = log₂), without a code to run it.

    Attributes
    ----------
    distance
        t = 8 log(1/δ)/ε + 1, the minimum distance of the code.
    published_bits
        r = 3 t log n.
    threshold
        w = (t − 1)/4 − log(1/δ)/ε, below which the second step answers.
    needs
        2e(t − 1) = 16e log(1/δ)/ε: what n must exceed for (17); the theorem says 64e.
    answer_chance
        s (4es/n)^s + δ with s = (t − 1)/4: the bound (17) on answering alone; above 2δ nothing is promised.
    """

    distance: float
    published_bits: float
    threshold: float
    needs: float
    answer_chance: float


def printed_reconstruction(*, n: int, dp_epsilon: float, delta: float) -> PrintedReconstruction:
    """Return the paper's parameters for n bits, 0 < ε ≤ ½ and 0 < δ ≤ ¼.

    Examples
    --------
    >>> small = printed_reconstruction(n=200, dp_epsilon=0.1, delta=0.01)     # n > 64e = 174, as printed
    >>> round(small.needs), small.answer_chance > 1
    (2890, True)
    >>> printed_reconstruction(n=3000, dp_epsilon=0.1, delta=0.01).answer_chance <= 0.02
    True

    References
    ----------
    Rogers et al. (2016), Theorem 3.9 (line 380), its proof (lines 440, 450, 542-544).
    """
    size = count("n", n, least=2)
    eps, small = positive("dp_epsilon", dp_epsilon), probability("delta", delta)
    if eps > 0.5 or small > 0.25:
        raise InvalidArgument(f"Theorem 3.9 covers ε ≤ ½ and δ ≤ ¼, not ε = {eps:g}, δ = {small:g}")
    logs = math.log2(1 / small)
    t = 8 * logs / eps + 1
    s = (t - 1) / 4
    ball = math.exp(min(s * math.log(4 * math.e * s / size) + math.log(s), 700.0))
    return PrintedReconstruction(
        t, 3 * t * math.log2(size), s - logs / eps, 2 * math.e * (t - 1), ball + small
    )


def no_product_bound(*, n: int, published_bits: float, delta: float, beta_first: float) -> float:
    """Return n − 1 − r − log₂(1/β₁) bits: some (ε, δ)-DP mechanism has that much max-information on some law.

    Claim: for every β₂ < ½ − δ − β₁.  So no bound like that for product data can hold for all laws.

    Examples
    --------
    >>> round(no_product_bound(n=10_000, published_bits=35, delta=0.05, beta_first=0.01), 1)
    9957.4

    References
    ----------
    Rogers et al. (2016), Corollary 3.10 (line 393); the proof by contradiction is on lines 860-878.
    """
    small = probability("delta", delta)
    first = probability("beta_first", beta_first)
    if first >= 0.5 - small:
        raise InvalidArgument(f"beta_first = {first:g} must be below ½ − δ = {0.5 - small:g}")
    return round_down(count("n", n) - 1 - positive("published_bits", published_bits) - math.log2(1 / first))


def _bch(n: int, distance: int) -> Any:
    try:
        import galois
    except ImportError:
        raise DependencyMissing(
            "the lower bound needs an error-correcting code: pip install 'quiltdp[codes]'"
        ) from None
    try:
        return galois.BCH(n, d=distance)
    except (ValueError, IndexError):  # no such code, or one without messages
        return None
