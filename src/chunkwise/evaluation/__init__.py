"""Error rates, evaluation on any number of ranks, its files and its report."""
