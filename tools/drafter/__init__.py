"""Training a neural drafter for a model that ocrd reads with: harvest its hidden states, train a head, store it."""
