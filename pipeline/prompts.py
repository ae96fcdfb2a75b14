"""The prompts models were trained on, byte for byte, each with an id and a hash that go into a page's provenance.

They are inputs the models need, not texts of ours. Sources: dots.ocr `dots_ocr/utils/prompts.py` (MIT; its final line
end belongs to the prompt), DeepSeek-OCR-2 `DeepSeek-OCR2-vllm/config.py` (Apache-2.0), GLM-OCR `glmocr/config.yaml`
(Apache-2.0), Unlimited-OCR `README.md` (MIT), PaddleOCR-VL's tasks as in mlx-vlm's and PaddleX's documentation
(Apache-2.0). The image token before them is the chat template's: mlx-vlm writes a line end behind it for
DeepSeek-OCR-2 and none for Unlimited-OCR, as their authors do. A test pins every hash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text, and the name it goes by: `family/task`."""

    id: str
    text: str

    @property
    def reference(self) -> str:
        """What a page's row keeps: id and the first 12 digits of the text's SHA-256."""
        return f"{self.id}@{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"


DOTS_LAYOUT = Prompt(
    "dots/layout",
    """Please output the layout information from the PDF image, including each layout element's bbox, its category, and the corresponding text content within the bbox.

1. Bbox format: [x1, y1, x2, y2]

2. Layout Categories: The possible categories are ['Caption', 'Footnote', 'Formula', 'List-item', 'Page-footer', 'Page-header', 'Picture', 'Section-header', 'Table', 'Text', 'Title'].

3. Text Extraction & Formatting Rules:
    - Picture: For the 'Picture' category, the text field should be omitted.
    - Formula: Format its text as LaTeX.
    - Table: Format its text as HTML.
    - All Others (Text, Title, etc.): Format their text as Markdown.

4. Constraints:
    - The output text must be the original text from the image, with no translation.
    - All layout elements must be sorted according to human reading order.

5. Final Output: The entire output must be a single JSON object.
""",  # noqa: E501
)
DOTS_LAYOUT_ONLY = Prompt(
    "dots/layout-only",
    "Please output the layout information from this PDF image, including each layout's bbox and its category. The bbox "
    "should be in the format [x1, y1, x2, y2]. The layout categories for the PDF document include ['Caption', "
    "'Footnote', 'Formula', 'List-item', 'Page-footer', 'Page-header', 'Picture', 'Section-header', 'Table', 'Text', "
    "'Title']. Do not output the corresponding text. The layout result should be in JSON format.",
)
DOTS_TEXT = Prompt("dots/text", "Extract the text content from this image.")
# The resized page's box in model pixels follows, as "[x1, y1, x2, y2]".
DOTS_REGION = Prompt(
    "dots/region",
    "Extract text from the given bounding box on the image (format: [x1, y1, x2, y2]).\nBounding Box:\n",
)
GLM_TEXT = Prompt("glm/text", "Text Recognition:")
GLM_TABLE = Prompt("glm/table", "Table Recognition:")
GLM_FORMULA = Prompt("glm/formula", "Formula Recognition:")
DEEPSEEK_LAYOUT = Prompt("deepseek/layout", "<|grounding|>Convert the document to markdown.")
DEEPSEEK_TEXT = Prompt("deepseek/text", "Free OCR.")
UNLIMITED_LAYOUT = Prompt("unlimited/layout", "document parsing.")
PADDLE_TEXT = Prompt("paddle/text", "OCR:")
PADDLE_TABLE = Prompt("paddle/table", "Table Recognition:")
PADDLE_FORMULA = Prompt("paddle/formula", "Formula Recognition:")
TINY_TEXT = Prompt("tiny/text", "")
