"""The only code that touches mlx-vlm: load a checkpoint, prepare a page, embed it, run the language model.

mlx-vlm changes between patch releases, so it is pinned exactly and held by contract tests (tests/pipeline/adapter).
What is used of it: `load`, `prompt_utils.apply_chat_template`, `utils.prepare_inputs`,
`Model.get_input_embeddings`, `Model.language_model`, `language_model.get_rope_index`, `cache.make_prompt_cache`,
`cache.trim`.
"""

from pipeline import blas

blas.preload()  # before the first `import mlx.core`, wherever in this package it is
