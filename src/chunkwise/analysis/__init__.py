"""Which input a result depends on: measured by gradients and by pokes, held against what the design allows."""
