"""Building blocks of the encoder; each one runs whole utterances and pieces with the same arithmetic."""
