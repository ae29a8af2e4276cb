"""Makes ``scenes`` importable for the core tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
