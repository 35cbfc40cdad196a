"""Publishing visits per cell: quiltdp.domains.trace.release, hours, area, and ``quiltdp trace --release``."""

import json

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.domains.trace import Points, location_study
from quiltdp.domains.trace.area import Area, parse_area
from quiltdp.domains.trace.build import study_from_past
from quiltdp.domains.trace.hours import fit_hours_of_steps, hourly_chain, hours_hint
from quiltdp.domains.trace.release import name_step, release_visits
from quiltdp.domains.trace.robust import robust_models_of_past
from quiltdp.domains.trace.times import hours_of_day, when
from quiltdp.errors import FileFormatError, InvalidArgument

GOOGLE = "models/location/trackintel_google_trajectory.csv"
BOX = Area((47.36, 8.53, 47.40, 8.56))


def walk(seed, users=("ann",), days=3, start=0.0, spread=0.02):
    """Return people who move between a few places, a point every five minutes."""
    rng = np.random.default_rng(seed)
    who, time, lat, lon = [], [], [], []
    for u, _ in enumerate(users):
        place = 0
        for k in range(days * 288):
            if rng.random() < 0.1:
                place = int(rng.integers(4))
            who.append(u)
            time.append(start + 300.0 * k)
            lat.append(47.37 + spread * (place // 2) / 2)
            lon.append(8.54 + spread * (place % 2) / 2)
    return Points(users, who, time, lat, lon)


@pytest.fixture(scope="module")
def study():
    return location_study(walk(1), "500m", "5min")


def test_the_release_is_the_counts_plus_the_calibrated_noise(study):
    class Silent:
        """Draws nothing, so that the counts can be seen."""

        def laplace(self, units, count):
            return [0] * count

    found = release_visits(study, 1.0, BOX, past=True)
    wanted = qd.calibrate(study.model, 1.0, qd.Laplace(sensitivity=2.0))
    assert found.sigma == wanted.sigma
    assert len(found.cells) == len(found.values) > len(study.steps.cells.names)
    centred = found.values - np.array(
        [dict(zip(study.steps.cells.names, study.steps.visits(), strict=True)).get(c, 0) for c in found.cells]
    )
    assert abs(centred).max() < 40 * found.sigma


def test_several_users_must_say_what_is_protected():
    two = location_study(walk(2, ("ann", "bob"), days=1), "500m", "5min")
    with pytest.raises(InvalidArgument, match="there are 2 users"):
        release_visits(two, 1.0, BOX)
    step, user = (release_visits(two, 1.0, BOX, level=x) for x in ("step", "user"))
    assert user.sigma > step.sigma
    assert user.level == "everything a user did"


def test_too_little_noise_is_refused_unless_it_is_meant(study):
    with pytest.raises(InvalidArgument, match=r"less noise than ε = 1 asks for.*insist with less_noise"):
        release_visits(study, 1.0, BOX, sigma=1.0)
    forced = release_visits(study, 1.0, BOX, sigma=1.0, less_noise=True)
    assert forced.epsilon > 1.0
    assert release_visits(study, 1.0, BOX, sigma=1000.0).epsilon < 1.0


def test_swapped_axes_are_guessed(study):
    with pytest.raises(InvalidArgument, match="look swapped"):
        release_visits(study, 1.0, Area((8.53, 47.36, 8.56, 47.40)))


def test_the_file_says_what_stands_above_its_noise(study):
    found = release_visits(study, 0.001, BOX)
    (said,) = (n for n in found.notes if "above the noise" in n)
    for text in (found.to_csv(), found.to_geojson()):
        assert "above the noise" in text
        assert '"sigma"' in text
    assert said.startswith(("none of the", "1 of the", "2 of the"))  # of 864 steps, under σ in the thousands
    features = json.loads(found.to_geojson())["features"]
    assert [f["properties"]["noisy_count"] for f in features] == found.values.tolist()


def test_steps_are_named_by_time(study):
    assert name_step(study.steps, "ann/0/13") == "ann, Thu 1970-01-01 01:05 UTC"
    assert name_step(study.steps, "ann/0/1…ann/0/6") == "ann, Thu 1970-01-01 00:05 to 00:30 UTC"
    assert name_step(study.steps, "ann") == "ann"
    window = qd.calibrate(study.model, 1.0, qd.Laplace(sensitivity=2.0), window=3).binding.unit
    assert when(study.model.provenance, window) is not None, window


def test_a_chain_of_the_past_does_not_look_at_the_present():
    past = location_study(walk(3), "500m", "5min", "additive:1")
    now, other = (
        location_study(walk(seed, start=86400.0 * 30), "500m", "5min", "additive:1") for seed in (4, 5)
    )
    a, b = (study_from_past(past, s).model for s in (now, other))
    assert np.array_equal(a.segments[0].transitions[0], b.segments[0].transitions[0])
    assert any("fitted on earlier data" in n for n in a.notes)


def test_the_states_are_those_of_the_past():
    """Whatever cells the present has, the model is the same: its noise tells nothing about them."""
    past = location_study(walk(3), "500m", "5min", "additive:0.1")
    near, far = (location_study(walk(4, start=86400.0 * 30, spread=s), "500m", "5min") for s in (0.02, 0.05))
    assert set(near.steps.cells.names) != set(far.steps.cells.names)
    a, b = (study_from_past(past, s) for s in (near, far))
    assert a.model.states[a.model.nodes[0]] == (*past.steps.cells.names, "elsewhere")
    assert a.model.fingerprint == b.model.fingerprint
    assert a.past is past.steps
    hourly = [study_from_past(past, s, time_of_day=True).model.fingerprint for s in (near, far)]
    assert hourly[0] == hourly[1]


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_cells_that_share_a_state_leak_no_more_than_the_state(adversary):
    """Brute force: split the state *elsewhere* into cells that are drawn at random for each step."""
    whole = np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.4, 0.3, 0.3]])
    first, share = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.75])
    split = np.hstack([whole[:, :2], whole[:, 2:] * share])[[0, 1, 2, 2]]
    law = np.concatenate([first[:2], first[2] * share])
    chains = [qd.markov_chain(p, length=3, initial=i) for p, i in ((whole, first), (split, law))]
    lumped, fine = (qd.leakage(m, dp_epsilon=0.4, adversary=adversary, method="exact") for m in chains)
    assert fine.epsilon == pytest.approx(lumped.epsilon, abs=1e-9)


def test_places_found_in_the_data_have_no_past():
    past, now = (location_study(walk(s), "stay", "5min") for s in (3, 4))
    with pytest.raises(InvalidArgument, match="stay points are places found in the data"):
        study_from_past(past, now)


def test_a_robust_family_of_the_past():
    past = location_study(walk(3), "500m", "5min", "additive:0.1")
    now = location_study(walk(4, start=86400.0 * 30, spread=0.05), "500m", "5min")
    family = robust_models_of_past(past, now, ("mle", "additive:0.1", "additive:1"))
    assert [m.provenance["estimator"] for m in family] == ["additive:0.1", "additive:1"]
    assert any("mle left out of the robust family" in n for n in family[0].notes)
    assert family[0].fingerprint == study_from_past(past, now).model.fingerprint


def test_new_cells_need_smoothing():
    past = location_study(walk(3), "500m", "5min")
    now = location_study(walk(4, start=86400.0 * 30, spread=0.05), "500m", "5min")
    with pytest.raises(InvalidArgument, match="never seen in the past"):
        study_from_past(past, now)


def test_hours_that_differ_are_found_and_modelled():
    """Asleep at night (one place), moving by day."""
    rng = np.random.default_rng(6)
    place, places = 0, []
    for k in range(40 * 288):
        day = 8 <= (k // 12) % 24 < 20
        if rng.random() < (0.5 if day else 0.01):
            place = int(rng.integers(2))
        places.append(place)
    points = Points(
        ("ann",),
        [0] * len(places),
        300.0 * np.arange(len(places)),
        [47.37] * len(places),
        8.54 + 0.02 * np.array(places),
    )
    study = location_study(points, "500m", "5min")
    fit = fit_hours_of_steps(study.steps)
    assert fit.hours_differ
    assert "--time-of-day" in str(hours_hint(study.steps))
    model = hourly_chain(study.steps, fit, study.model.segments[0].initial)
    night, day = (np.asarray(model.segments[0].transition(12 * h)) for h in (3, 12))
    assert night[0, 0] > 0.95 > day[0, 0]
    steady = location_study(walk(7, days=10), "500m", "5min")
    assert not fit_hours_of_steps(steady.steps).hours_differ
    assert hours_hint(steady.steps) is None


def test_hours_follow_the_clocks_of_the_zone():
    """The last Sunday of March 2024: at 01:00 UTC the clocks of Rome went from 02:00 to 03:00."""
    midnight = 1711839600.0  # 2024-03-30 23:00 UTC
    assert hours_of_day(midnight, 4, 3600.0, "Europe/Rome").tolist() == [0, 1, 3, 4]
    assert hours_of_day(midnight, 4, 3600.0).tolist() == [23, 0, 1, 2]


def test_hours_of_the_past_for_the_present():
    past, present = (
        location_study(walk(7, days=10), "500m", "5min"),
        location_study(walk(7, days=10), "500m", "5min"),
    )
    found = study_from_past(past, present, time_of_day=True)
    same = hourly_chain(present.steps, fit_hours_of_steps(past.steps), past.model.segments[0].initial)
    for one, other in zip(found.model.segments, same.segments, strict=True):
        for k in (0, 30, 200):
            assert np.asarray(one.transition(k)) == pytest.approx(np.asarray(other.transition(k)))
    assert "by hour of the day" in found.model.provenance["estimator"]
    assert any("earlier data" in n for n in found.model.notes)
    with pytest.raises(InvalidArgument, match="occupancy"):
        study_from_past(past, present, initial="stationary", time_of_day=True)


def test_an_area_may_be_a_polygon(tmp_path):
    path = tmp_path / "area.geojson"
    ring = [[8.5, 47.3], [8.6, 47.3], [8.5, 47.5], [8.5, 47.3]]
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}), encoding="utf-8")
    area = parse_area(str(path))
    assert area.holds(47.35, 8.52)
    assert not area.holds(47.45, 8.58)
    path.write_text('{"type": "Point", "coordinates": [1, 2]}', encoding="utf-8")
    with pytest.raises(FileFormatError, match="no Polygon"):
        parse_area(str(path))


def test_no_release_without_a_public_area(cli, tmp_path):
    out = tmp_path / "visits.csv"
    done = cli("trace", GOOGLE, "--epsilon", 1, "--release", out)
    assert done.code == 2
    assert "would tell where people were" in done.err
    assert not out.exists()
    noisy = cli("trace", GOOGLE, "-o", tmp_path / "m.png", "--sigma", 5)  # a release without an account
    assert (noisy.code, "--sigma belongs to a release" in noisy.err) == (2, True)


def test_release_from_the_command_line(cli, tmp_path):
    out = tmp_path / "visits.geojson"
    done = cli(
        "trace", GOOGLE, "--cell", "2km", "--estimator", "additive:1", "--epsilon", 1,
        "--area", "47.3,8.3,47.6,8.7", "--release", out, "--ledger", "none", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)["release"]
    held = json.loads(out.read_text(encoding="utf-8"))
    assert held["quiltdp"]["sigma"] == told["sigma"]
    assert len(held["features"]) > 100
    between = cli(
        "trace", GOOGLE, "--cell", "2km", "--estimator", "additive:1", "--epsilon", 1,
        "--area", "47.3,8.3,47.6,8.7", "--release", tmp_path / "v.csv", "--adversary", "knows:2",
        "--ledger", "none", "--json",
    )  # fmt: skip
    assert json.loads(between.out)["release"]["adversary"] == "knows:2"
    assert json.loads(between.out)["release"]["sigma"] <= told["sigma"]
