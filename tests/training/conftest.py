"""Lets worker processes import `training_workers`: they inherit this process's search path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
