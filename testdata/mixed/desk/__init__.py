import sys
from pathlib import Path

# The Python client is used from where it lies; a project of its own installs it.
sys.path.append(str(Path(__file__).resolve().parents[3] / "clients" / "python"))
