"""The benchmarks as one program; `program/main.py` says what it takes."""

import sys
from pathlib import Path

# By these names a suite finds the program and its neighbours, whether it runs from here or as a file of its own.
sys.path.insert(0, str(Path(__file__).parent))

from program.main import main

if __name__ == "__main__":
    main(sys.argv[1:])
