"""Chunkwise: streaming and full-context Conformer-Transducer speech recognition from one set of weights."""

__version__ = "0.1.0"
