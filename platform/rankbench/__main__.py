"""python -m rankbench"""

from rankbench.cli import main

main()
