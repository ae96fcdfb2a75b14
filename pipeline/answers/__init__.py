"""From a model's answer to blocks: one parser per form of answer, chosen by the preset's `Output`."""
