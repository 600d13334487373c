"""Recognition of audio that arrives in pieces."""
