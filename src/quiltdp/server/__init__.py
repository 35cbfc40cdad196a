"""The holdout service: one study, many analysts, one account; nobody who asks can read the holdout."""
