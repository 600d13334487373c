"""Transcripts: one normaliser, one tokenizer."""
