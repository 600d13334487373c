"""The Conformer-Transducer and what a frame of it may see."""
