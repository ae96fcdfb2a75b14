"""A dots.ocr checkpoint as what runs best on Apple devices (MLX, Core ML), and the proof that nothing changed."""
