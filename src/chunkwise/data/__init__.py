"""Corpora, and the batches that are made of them, on lhotse."""
