"""A cheap reading of the page as draft: aligned with what the model writes, and written on in the model's own form."""
