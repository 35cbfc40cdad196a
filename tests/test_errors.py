"""Errors survive a trip between processes, with what they say and what they carry."""

import pickle

import pytest

from quiltdp import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.FileFormatError("a.bif", 3, "expected a number"),
        errors.FileFormatError("a.bif", None, "empty"),
        errors.InvalidModel("rows of A do not sum to 1", node="A"),
        errors.ModelTooWide("too wide", "take a smaller quilt", f"raise {errors.option('max_entries')}"),
        errors.NoCertificate("none", "raise the limit"),
        errors.NotALedger("notes.txt is no ledger"),
        errors.WorkerLost("a worker did not finish its part"),
    ],
)
def test_errors_can_be_pickled(error):
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)
    assert other.exit_code == error.exit_code
