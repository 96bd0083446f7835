"""`python -m tosnative` is the command `tosnative`."""

import sys

from tosnative.cli import main

sys.exit(main())
