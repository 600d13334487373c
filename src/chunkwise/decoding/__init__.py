"""Searches that turn encoder frames into tokens, with an explicit state that is carried from piece to piece."""
