"""Where draft tokens come from: one module per proposer, all behind `base.Proposer`."""
