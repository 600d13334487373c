"""Corpora made ready for training: one module each, behind `prepare.prepare_corpus`."""
