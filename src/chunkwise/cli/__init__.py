"""The commands: each composes its config, builds the objects and hands over."""
