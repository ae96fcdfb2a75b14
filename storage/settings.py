"""One frozen `Settings`: flag over environment over file over default, each value knowing where it came from."""
