"""Laplace noise on a sum of values: what a change costs, and that nothing leaks more than is certified."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import parse_adversary
from quiltdp.accountant.ledger import Ledger
from quiltdp.accountant.methods import method_names
from quiltdp.accountant.verify import leakage_of
from quiltdp.domains.pedigree import Pedigree, Person, pedigree
from quiltdp.domains.pedigree.queries import QUERIES, query_by_name
from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.inference.brute_force import log_marginal
from quiltdp.mechanisms import Laplace, mechanism_from_dict
from quiltdp.mechanisms.laplace import LaplaceMechanism

TRIO = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))


def random_network(rng: np.random.Generator) -> qd.Model:
    """Three or four nodes of two or three states, with loops, zeros and perhaps a latent."""
    names = "ABCD"[: int(rng.integers(3, 5))]
    sizes = {n: int(rng.integers(2, 4)) for n in names}
    tables = {}
    for k, n in enumerate(names):
        parents = (
            sorted(rng.choice(list(names[:k]), size=min(k, int(rng.integers(1, 3))), replace=False))
            if k
            else []
        )
        table = rng.dirichlet(np.full(sizes[n], 0.6), size=[sizes[p] for p in parents])
        table[table < 0.05] = 0.0
        tables[n] = (parents, table / table.sum(axis=-1, keepdims=True))
    records = [n for n in names if n == "A" or rng.random() < 0.8]
    return qd.Model.from_tables(tables, records=records)


def random_family(rng: np.random.Generator) -> qd.Model:
    people = [Person("a"), Person("b"), Person("c", "a", "b"), Person("d", "c", "b")][
        : int(rng.integers(3, 5))
    ]
    study = [p.name for p in people if p.name == "a" or rng.random() < 0.8]
    return pedigree(Pedigree(tuple(people)), float(rng.uniform(0.05, 0.5)), study=study)


def attacks(
    model: qd.Model, values: dict[str, list[float]], sigma: float, most: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return what such noise may tell of every record to who knows up to ``most`` others.

    The likelihoods are those of the noisy sum itself, and random functions with steps of at most the prices.
    """
    records = model.records
    with np.errstate(divide="ignore"):
        joint = np.exp(log_marginal(model, list(records)))
    axes = [np.array(values[r]) for r in records]
    total = sum(v.reshape([-1 if k == j else 1 for k in range(len(axes))]) for j, v in enumerate(axes))
    points = np.unique(total)
    likelihoods = [np.exp(-np.abs(total - y) / sigma) for y in (points[0] - 1, *points, points[-1] + 1)]
    states = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(total.size, -1)
    apart = np.abs(states[:, None] - states).sum(axis=-1) / sigma
    for _ in range(6):
        start = rng.normal(scale=apart.max() + 0.1, size=total.size)
        likelihoods.append(np.exp((start[None, :] + apart).min(axis=1)).reshape(total.shape))
    worst = dict.fromkeys(records, 0.0)
    for target in range(len(records)):
        others = [k for k in range(len(records)) if k != target]
        for size in range(min(most, len(others)) + 1):
            for known in itertools.combinations(others, size):
                free = tuple(k for k in others if k not in known)
                mass = joint.sum(axis=free, keepdims=True)
                for h in likelihoods:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        told = np.log((joint * h).sum(axis=free, keepdims=True) / mass)
                    told = np.moveaxis(told, target, 0).reshape(len(axes[target]), -1)
                    possible = np.moveaxis(mass, target, 0).reshape(told.shape) > 0
                    for column, here in zip(told.T, possible.T, strict=True):
                        if here.sum() > 1:
                            worst[records[target]] = max(worst[records[target]], float(np.ptp(column[here])))
    return worst


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [random_network, random_family])
def test_no_noisy_sum_leaks_more_than_is_certified(make, seed):
    rng = np.random.default_rng(seed)
    model = make(rng)
    values = {r: rng.choice([0.0, 0.3, 1.0, 2.0, -1.0], model.cardinality(r)).tolist() for r in model.records}
    values["A" if "A" in values else "a"][:2] = [0.0, 1.0]
    noise, sigma = Laplace(values=values), float(rng.uniform(0.3, 6.0))
    for who, most in (("prior", 0), ("knows:1", 1), ("informed", len(model.records))):
        truth = attacks(model, values, sigma, most, rng)
        exact = leakage_of(model, noise, scale=sigma, adversary=who, method="exact").per_record
        flat = qd.leakage(model, noise.dp_epsilon(sigma), adversary=who).per_record
        for name in ("auto", *method_names(parse_adversary(who))):
            if name == "published":
                continue
            try:
                found = leakage_of(model, noise, scale=sigma, adversary=who, method=name).per_record
            except QuiltdpError:
                continue  # not for this model
            for r in model.records:
                assert truth[r] <= found[r] * (1 + 1e-9), (name, who, r)
                assert exact[r] <= found[r] * (1 + 1e-7) + 1e-9, (name, who, r)
                assert name != "auto" or found[r] <= flat[r] * (1 + 1e-9)


@pytest.mark.parametrize("who", ["prior", "informed"])
def test_alleles_cost_as_much_as_they_move_the_count(who):
    model = pedigree(TRIO, 0.1)
    count = query_by_name(model, "allele-count").mechanism
    assert qd.calibrate(model, 1.0, Laplace(2.0), adversary=who).sigma == pytest.approx(5.658, abs=1e-3)
    found = qd.calibrate(model, 1.0, count, adversary=who)
    assert found.sigma == pytest.approx(4.0, abs=1e-3)
    assert found.sigma == qd.calibrate(model, 1.0, Laplace(values=[0, 1, 2]), adversary=who).sigma
    assert "for a sum of these values only" in found.certificate.statement
    again = qd.Calibration.from_json(found.to_json())
    assert again.mechanism == count
    assert leakage_of(model, again).epsilon <= 1.0
    several = qd.calibrate(model, 1.0, count, adversary=who, releases=3)
    assert several.sigma == pytest.approx(3 * found.sigma, rel=1e-6)


def test_whole_families_need_less_noise_for_their_allele_count():
    large = qd.pedigree("models/pedigree/ceph1463.fam", allele_frequency=0.1)
    two = qd.load_model("models/two_families.json")
    noise = Laplace(values=[0, 1, 2])
    assert qd.calibrate(large, 1.0, noise, adversary="prior", compare=False).sigma <= 16.3
    assert qd.calibrate(two, 1.0, noise, adversary="prior", compare=False).sigma <= 8.1


def test_every_other_mechanism_has_the_flat_price():
    model = pedigree(TRIO, 0.1)
    others = (
        qd.Thresholdout(10, 0.5),
        qd.Gaussian(1.0, 1e-6),
        Laplace(2.0),
        Laplace({"dad": 2.0, "mum": 1.0, "kid": 0.0}),
    )
    assert all(not noise.prices(model) for noise in others)
    assert not query_by_name(model, "genotype-histogram").mechanism.prices(model)
    for name in QUERIES:
        query = query_by_name(model, name)
        assert query.mechanism.deltas == query.sensitivities
    table = query_by_name(model, "carrier-count").mechanism.prices(model)["kid"]
    assert table.tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]


def test_values_are_a_mechanism_like_any_other():
    noise = Laplace(values=[0.0, 1.0, 3.0])
    assert (noise.deltas, noise.dp_epsilon(6.0)) == (3.0, 0.5)
    per_record = Laplace(values={"a": [0, 1], "b": (2.0, 2.0)})
    assert dict(per_record.deltas) == {"a": 1.0, "b": 0.0}
    for one in (noise, per_record, Laplace(2.0)):
        written = json.loads(json.dumps(one.to_dict()))
        assert mechanism_from_dict(written) == one
        assert pickle.loads(pickle.dumps(one)) == one
        assert hash(one) == hash(mechanism_from_dict(written))
    assert "values" not in Laplace(2.0).to_dict()
    assert repr(noise) == "Laplace(values=(0.0, 1.0, 3.0))"
    assert noise.with_sensitivity(2.0) == Laplace(2.0)
    for bad in ([], [1.0, math.nan], [1.0, "x"], 7, [1.0, 1.0], {"a": [0, 0]}, [-1e308, 1e308]):
        with pytest.raises(InvalidArgument):
            Laplace(values=bad)
    with pytest.raises(InvalidArgument, match="leave sensitivity out"):
        Laplace(2.0, values=[0, 1])
    with pytest.raises(InvalidArgument, match="'dad' has 3 states, not 2"):
        qd.calibrate(pedigree(TRIO, 0.1), 1.0, Laplace(values=[0, 1]))


def test_rounding_to_the_grid_is_charged_to_the_smallest_change():
    noise = LaplaceMechanism(Laplace(values=[0.0, 0.001, 1.0]), scale=2.0)
    drawn, step = Fraction(noise.noise_scale), noise.grid.exact_step
    for moved in (0.001, 0.999, 1.0):
        assert (Fraction(moved) + step) / drawn <= Fraction(moved) / 2


def test_a_ledger_of_one_sum_takes_that_sum_only(tmp_path):
    model = pedigree(TRIO, 0.1)
    noise = Laplace(values=[0, 1, 2])
    cal = qd.calibrate(model, 1.0, noise)
    ledger = Ledger.create(tmp_path / "a.db", cal, model=model)
    ledger.charge_mechanism(noise, 2 * cal.sigma)
    for other in (Laplace(2.0), Laplace(values=[0, 2, 2])):
        with pytest.raises(InvalidArgument, match="calibrated for one sum"):
            ledger.charge_mechanism(other, 10 * cal.sigma)
    with pytest.raises(InvalidArgument, match="calibrated for one sum"):
        ledger.charge(1e-3)
    with pytest.raises(InvalidArgument, match="chooses a mechanism of its own"):
        cal.bracket()
