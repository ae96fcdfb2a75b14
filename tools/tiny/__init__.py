"""Training of the tiny model: rendered text in, a checkpoint in dots.ocr's on-disk layout out.

Entry point: `tools/train_tiny.py`. What the model is, how good, and why it looks as it does: docs/tiny-model.md.
Only `model`, `objectives`, `reading`, `training`, `parallel` and what uses them need torch.
"""
