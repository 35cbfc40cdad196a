"""Many loci of one person: leakages add, frequencies are rounded at a price, and the noise is certified."""

from __future__ import annotations

import gzip
from itertools import chain, combinations, permutations

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.shared_work import SharedWork
from quiltdp.accountant.verify import leakage_of
from quiltdp.domains.pedigree import Pedigree, Person, pedigree
from quiltdp.domains.pedigree.frequencies import Panel, read_frequencies
from quiltdp.domains.pedigree.panel import analyze_panel
from quiltdp.domains.pedigree.panel_calibration import calibrate_panel
from quiltdp.domains.pedigree.panel_loci import Kind, choose_frequencies, drop_uninformative_people
from quiltdp.domains.pedigree.queries import query_by_name, records_by_person
from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.inference.brute_force import log_marginal

TRIO = Pedigree(
    (Person("dad", sex="male"), Person("mum", sex="female"), Person("kid", "dad", "mum", "female"))
)
TWINS = Pedigree((*TRIO.people[:2], Person("kid", "dad", "mum", "male", also=("bro",))))
LOCI = {"rs1": 0.1, "rs2": 0.35, "rs3": 0.9}


@pytest.mark.parametrize("family", [TRIO, TWINS])
@pytest.mark.parametrize("query", ["allele-count", "carrier-count", "genotype-histogram"])
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_the_sum_over_loci_is_what_one_large_model_says(family, query, adversary):
    sigma = 7.0
    found = analyze_panel(family, LOCI, query).leakage(sigma, adversary)
    model = pedigree(family, LOCI)
    noise = query_by_name(model, query).mechanism
    whole = leakage_of(model, noise, sigma, adversary=adversary, protect=records_by_person(model))
    assert found == pytest.approx([whole.per_record[n] for n in ("dad", "mum", "kid")], rel=1e-9)


def test_calibration_meets_its_target_and_no_smaller_noise_does():
    profile = analyze_panel(TRIO, LOCI)
    for adversary in ("informed", "prior"):
        cal = calibrate_panel(profile, 1.0, adversary=adversary)
        assert 0.998 < max(cal.leakage.values()) <= 1.0
        assert max(profile.leakage(cal.sigma, adversary)) <= 1.0
        assert max(profile.leakage(cal.sigma / 1.01, adversary)) > 1.0
        model = pedigree(TRIO, LOCI)
        same = qd.calibrate(
            model,
            1.0,
            query_by_name(model, "allele-count").mechanism,
            adversary=adversary,
            protect=records_by_person(model),
        )
        assert cal.sigma == pytest.approx(same.sigma, rel=2e-3)
        assert cal.dp_epsilon == pytest.approx(6 / cal.sigma)
    assert calibrate_panel(profile, 1.0).sigma >= calibrate_panel(profile, 1.0, adversary="prior").sigma


def test_the_least_error_split_has_less_error_at_the_same_leakage():
    loci = {f"a{k}": 0.001 for k in range(6)} | {f"b{k}": 0.5 for k in range(6)}
    profile = analyze_panel(TRIO, loci, "genotype-histogram")
    one = calibrate_panel(profile, 1.0, adversary="prior")
    each = calibrate_panel(profile, 1.0, adversary="prior", split="least-error")
    assert (each.sigmas**2).sum() < (one.sigmas**2).sum() * 0.998
    assert max(each.leakage.values()) <= 1.0
    assert len(np.unique(each.sigmas)) == 2
    assert each.sigmas[0] > each.sigmas[-1]  # a rare allele tells more, and gets more noise
    assert (one.sigmas == one.sigma).all()


def test_per_locus_is_another_promise_and_says_so():
    profile = analyze_panel(TRIO, LOCI, "genotype-histogram")
    alone = calibrate_panel(profile, 1.0, per_locus=True)
    together = calibrate_panel(profile, 1.0)
    assert (alone.unit, together.unit) == ("one person at one locus", "one person, all 3 loci together")
    assert 2.7 * alone.sigma < together.sigma <= 3.001 * alone.sigma
    assert max(profile.leakage(alone.sigma, "informed")) > 2.7
    prior = calibrate_panel(profile, 1.0, per_locus=True, adversary="prior")
    worst = max(
        max(qd.leakage(pedigree(TRIO, p), 2 / prior.sigma, adversary="prior").per_record.values())
        for p in LOCI.values()
    )
    assert 0.998 < worst <= 1.0


@pytest.mark.parametrize("query", ["allele-count", "carrier-count", "genotype-histogram"])
@pytest.mark.parametrize("adversary", ["prior", "informed", "knows:1"])
def test_more_frequencies_than_nodes_cost_a_little_and_never_less(query, adversary):
    rng = np.random.default_rng(5)
    loci = {f"rs{k}": float(p) for k, p in enumerate(rng.uniform(0.02, 0.98, 24))}
    exact, rough, finer = (analyze_panel(TRIO, loci, query, nodes=k) for k in (100, 5, 12))
    assert (len(exact.kinds[0].nodes), len(rough.kinds[0].nodes)) == (24, 5)
    a, b, c = (p.leakage(500.0, adversary) for p in (exact, rough, finer))
    assert (a <= b).all()
    assert (c <= 1.1 * a).all()
    assert (c <= b).all()
    assert any("5 were analysed" in note for note in rough.notes)
    alone = calibrate_panel(rough, 1.0, adversary=adversary, per_locus=True)
    worst = 0.0
    for p in loci.values():
        model = pedigree(TRIO, p)
        noise = query_by_name(model, query).mechanism
        worst = max(worst, leakage_of(model, noise, alone.sigma, adversary=adversary).epsilon)
    assert worst <= 1.0


GENETICS = [
    {},
    {"mutation_rate": 0.05},
    {"error_rate": 0.1},
    {"inbreeding": 0.3},
    {"x_linked": True},
    {"mutation_rate": 0.1, "error_rate": 0.05, "inbreeding": 0.2},
]


@pytest.mark.parametrize("genetics", GENETICS)
@pytest.mark.parametrize("study", [("dad", "mum", "kid"), ("dad", "kid")])
def test_between_two_frequencies_nobody_learns_more_than_the_chord_and_its_price(genetics, study):
    """Every adversary, random likelihoods of any range, by enumeration; without the price it is false."""
    rng = np.random.default_rng(7)
    ends = np.sort(rng.uniform(-4.0, 4.0, (3, 2)), axis=1)
    above_the_chord = 0
    for a, b in ends:
        thetas = np.linspace(a, b, 9)
        joints = []
        for theta in thetas:
            model = pedigree(TRIO, float(1 / (1 + np.exp(-theta))), study=study, **genetics)
            joints.append(np.exp(log_marginal(model, list(model.records))))
        laws = np.stack(joints)
        kind = Kind.of(
            TRIO, "genotype-histogram", np.arange(2), np.array([0.1, 0.2]), np.ones(2, dtype=np.int64), study,
            {"x_linked": False} | genetics, 2, shared=SharedWork(),
        )  # fmt: skip
        for spread in (0.05, 0.5, 3.0):
            for _ in range(6):
                logs = rng.choice([-1.0, 0.0, 1.0], laws.shape[1:]) * spread
                for target, record in enumerate(model.records):
                    others = [k for k in range(len(model.records)) if k != target]
                    cost = float(np.ptp(logs, axis=tuple(others)).max())  # A: how far ln h goes given x
                    alleles = kind.alleles[kind.model.records.index(record)]
                    bend = 2 * alleles**2 * min(cost / (6 * 3**0.5), 0.25)
                    price = 0.5 * (thetas - a) * (b - thetas) * bend
                    for f in _log_ratios(laws, np.exp(logs), target, others):
                        chord = f[0] + (f[-1] - f[0]) * (thetas - a) / (b - a)
                        assert (f <= chord + price + 1e-9).all()
                        above_the_chord += bool((f > chord + 1e-6).any())
    assert above_the_chord > 0


def _log_ratios(laws, likelihood, target, others):
    """Yield ln E[h | x, e] − ln E[h | x', e] at every frequency, for all x, x' and all that may be known."""
    for known in chain.from_iterable(combinations(others, k) for k in range(len(others) + 1)):
        free = tuple(k + 1 for k in others if k not in known)
        mass = laws.sum(axis=free, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            told = np.log((laws * likelihood).sum(axis=free, keepdims=True) / mass)
        rows = np.moveaxis(told, target + 1, 1).reshape(len(laws), laws.shape[target + 1], -1)
        seen = np.moveaxis(mass, target + 1, 1).reshape(rows.shape).min(axis=0) > 0
        for x, y in permutations(range(rows.shape[1]), 2):
            for e in np.flatnonzero(seen[x] & seen[y]):
                yield rows[:, x, e] - rows[:, y, e]


def test_no_covariance_with_a_squared_distance_is_larger_than_the_proof_says():
    rng = np.random.default_rng(3)
    most, largest = 6, 0.0
    numbers = np.arange(most + 1)
    for _ in range(4000):
        law = rng.dirichlet(np.full(most + 1, 0.15))
        squares = (numbers - law @ numbers) ** 2
        above = squares > law @ squares
        largest = max(largest, float(law @ (above * squares) - (law @ above) * (law @ squares)))
    assert 0.9 < largest / (most**2 / (6 * 3**0.5)) <= 1.0


def test_people_who_meet_only_in_unseen_children_are_independent():
    family = Pedigree((Person("a"), Person("b"), Person("c", "a", "b"), Person("d"), Person("e", "c", "d")))
    assert [p.name for p in drop_uninformative_people(family, ["a", "b", "d"]).people] == ["a", "b", "d"]
    assert len(drop_uninformative_people(family, ["a", "e"]).people) == 5
    rng = np.random.default_rng(1)
    loci = {f"rs{k}": float(p) for k, p in enumerate(rng.uniform(0.02, 0.98, 60))}
    profile = analyze_panel(family, loci, study=["a", "b", "d"])
    for adversary in ("informed", "prior"):
        assert calibrate_panel(profile, 1.0, adversary=adversary).sigma == pytest.approx(120.0, rel=2e-3)


def test_more_than_four_frequencies_are_not_group_privacy():
    people = [Person(n) for n in ("g1", "g2", "g3", "g4")]
    people += [Person("dad", "g1", "g2"), Person("mum", "g3", "g4")]
    people += [Person(f"kid{k}", "dad", "mum") for k in range(3)]
    loci = {f"rs{k}": p for k, p in enumerate((0.05, 0.1, 0.2, 0.3, 0.45))}
    profile = analyze_panel(Pedigree(tuple(people)), loci, "genotype-histogram")
    assert calibrate_panel(profile, 1.0).sigma <= 60.0  # group privacy: 90
    assert calibrate_panel(profile, 1.0, adversary="prior").sigma <= 57.0


def test_the_carrier_count_tells_a_rare_allele_from_a_common_one():
    """Its prices know which allele is counted, so p and 1 − p are not alike."""
    rare, common = (analyze_panel(TRIO, {"a": p}, "carrier-count") for p in (0.1, 0.9))
    assert rare.kinds[0].nodes.tolist() == [0.1]
    assert common.kinds[0].nodes.tolist() == [0.9]
    assert rare.leakage(2.0, "prior").max() != common.leakage(2.0, "prior").max()
    alike = [analyze_panel(TRIO, {"a": p}).leakage(2.0, "prior").max() for p in (0.1, 0.9)]
    assert alike[0] == pytest.approx(alike[1], rel=1e-12)


def test_loci_without_a_frequency_have_a_bound_for_every_frequency():
    panel = Panel.of({"a": 0.0, "b": 1.0, "c": float("nan"), "d": 0.2})
    profile = analyze_panel(TRIO, panel, "genotype-histogram")
    assert "3 loci have no frequency, or one of 0 or 1" in profile.notes[-1]
    found = profile.leakage(40.0, "prior")
    for p in (1e-9, 0.01, 0.2, 0.5):
        three, one = (qd.leakage(pedigree(TRIO, q), 2 / 40, adversary="prior") for q in (p, 0.2))
        whole = [3 * three.per_record[n] + one.per_record[n] for n in profile.people]
        assert (found >= np.array(whole) * (1 - 1e-9)).all()
    assert 0.55 < profile.leakage(40.0, "informed").max() <= 4 * 3 * 2 / 40


def test_loci_on_the_x_chromosome_are_x_linked(tmp_path):
    file = tmp_path / "x.afreq"
    file.write_text(
        "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\trs1\tA\tG\t0.2\t100\nX\trs2\tC\tT\t0.3\t100\n"
    )
    panel = read_frequencies(file)
    assert panel.x_linked.tolist() == [False, True]
    profile = analyze_panel(TRIO, panel)
    assert profile.sensitivity == 4.0
    found = dict(zip(profile.people, profile.leakage(10.0, "prior"), strict=True))
    models = pedigree(TRIO, 0.2), pedigree(TRIO, 0.3, x_linked=True)
    noises = [query_by_name(model, "allele-count").mechanism for model in models]
    assert noises[1].deltas["dad"] == 1.0
    auto, linked = (
        leakage_of(model, noise, 10.0, adversary="prior").per_record
        for model, noise in zip(models, noises, strict=True)
    )
    for name in ("dad", "mum", "kid"):
        assert found[name] == pytest.approx(auto[name] + linked[name], rel=1e-9)


def test_nodes_are_every_frequency_or_some_with_both_ends():
    values = np.array([0.5, 0.1, np.nan, 0.1, 0.3])
    assert choose_frequencies(values, 3).tolist() == [0.1, 0.3, 0.5]
    assert choose_frequencies(values, 1).tolist() == [0.1, 0.5]
    many = np.linspace(0.01, 0.5, 500)
    nodes = choose_frequencies(many, 25)
    assert 20 <= len(nodes) <= 25
    assert (nodes[0], nodes[-1]) == (0.01, 0.5)
    assert np.isin(nodes, many).all()
    assert np.diff(np.log(nodes / (1 - nodes))).max() < 0.5
    few = np.array([0.1, 0.2, 0.3, 0.4])
    counts = np.array([3, 1, 1, 5])
    assert (
        choose_frequencies(few, 3, counts).tolist() == choose_frequencies(np.repeat(few, counts), 3).tolist()
    )
    assert choose_frequencies(np.array([np.nan]), 3).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"epsilon": 1.0, "adversary": "nobody"}, "nobody"),
        ({"epsilon": 1.0, "split": "fair"}, "split must be one of equal, least-error"),
        ({"epsilon": 1.0, "split": "least-error", "per_locus": True}, "leave the split equal"),
    ],
)
def test_calibration_refuses_what_means_nothing(arguments, said):
    with pytest.raises(InvalidArgument, match=said):
        calibrate_panel(analyze_panel(TRIO, {"a": 0.1}), **arguments)


# -- tables of frequencies ---------------------------------------------------------------------------

TABLES = {
    "panel.afreq": (
        "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\trs1\tA\tG\t0.25\t100\n1\trs2\tC\tT\t0.5\t100\n"
    ),
    "panel.frq": " CHR  SNP  A1  A2  MAF  NCHROBS\n  1  rs1  G  A  0.25  100\n  1  rs2  T  C  0.5  100\n",
    "vcftools.frq": (
        "CHROM\tPOS\tN_ALLELES\tN_CHR\t{ALLELE:FREQ}\n1\t10\t2\t8\tA:0.75\tG:0.25\n"
        "1\t20\t2\t8\tC:0.5\tT:0.5\n"
    ),
    "panel.vcf": (
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        "1\t10\trs1\tA\tG\t.\tPASS\tNS=3;AF=0.25;DP=9\n1\t20\trs2\tC\tT\t.\tPASS\tAF=0.5\n"
    ),
    "panel.bim": "1\trs1\t0\t10\tG\tA\t0.25\n1\trs2\t0\t20\tT\tC\t0.5\n",
    "panel.csv": "Marker Name,Chr,Effect allele,Other allele,EAF\nrs1,1,G,A,0.25\nrs2,1,T,C,0.5\n",
    "panel.txt": "rs1 0.25\nrs2 0.5\n",
    "panel.freq": "SNP FREQ\nrs1 0.25\nrs2 0.5\n",
}
TABLES["blanks.vcf"] = TABLES["panel.vcf"].replace("\t", "  ")
TABLES["samples.vcf"] = "\n".join(  # people called as columns are
    line + more
    for line, more in zip(
        TABLES["panel.vcf"].splitlines(),
        ("", "\tFORMAT\tid\tREF\tinfo", "\tGT\t0/1\t./.\t1/1", "\tGT\t0/1\t./.\t1/1"),
        strict=True,
    )
)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("packed", [False, True])
def test_tables_of_frequencies(name, packed, tmp_path):
    file = tmp_path / (name + ".gz" * packed)
    file.write_bytes(gzip.compress(TABLES[name].encode()) if packed else TABLES[name].encode())
    panel = read_frequencies(file)
    assert panel.frequency.tolist() == [0.25, 0.5]
    assert panel.names == (("1:10", "1:20") if name == "vcftools.frq" else ("rs1", "rs2"))
    if name not in ("panel.txt", "panel.freq"):
        assert panel.alternative == ("G", "T")
        assert panel.reference == ("A", "C")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no loci"),
        ("##only comments\n", "no loci"),
        ("#CHROM ID REF ALT ALT_FREQS OBS_CT\n", "no loci"),
        ("ID FREQ\nrs1 1.5\n", ":2: locus 'rs1': the frequency '1.5' is not a number from 0 to 1"),
        ("ID FREQ\nrs1 often\n", ":2: .*'often' is not a number"),
        ("ID FREQ\nrs1 0.1\nrs1 0.2\n", ":3: the locus 'rs1' is on line 2 already"),
        ("ID FREQ\nrs1 0.1 0.2\n", ":2: 3 columns, the lines above have 2"),
        ("FREQ x\n0.1 2\n", ":1: no locus column"),
        ("ID AF FREQ\nrs1 0.1 0.2\n", "columns 'AF' and 'FREQ' could each be the frequency"),
        ("lat lon time\n1 2 3\n", ":1: no frequency column among 'lat', 'lon', 'time'"),
        ("CHR ID ALT FREQ\nY rs1 A 0.1\n1 rs2 A,G 0.1,0.2\n", "1 loci on Y .*1 loci with more than two"),
    ],
)
def test_tables_that_are_no_panels(text, said, tmp_path):
    file = tmp_path / "panel.txt"
    file.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        read_frequencies(file)


def test_unknown_frequencies_and_unnamed_loci(tmp_path):
    file = tmp_path / "panel.afreq"
    file.write_text("#CHROM\tID\tREF\tALT\tALT_FREQS\n1\t.\tA\tG\tnan\n1\t.\tA\tG\t0.5\nMT\trs3\tA\tG\t0.5\n")
    panel = read_frequencies(file)
    assert panel.names == ("line 2", "line 3")
    assert np.isnan(panel.frequency[0])
    assert panel.notes == ("1 loci on Y or mitochondrial were left out",)
