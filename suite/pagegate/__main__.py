"""`python -m pagegate`, for machines where the console script is not installed."""

import sys

from pagegate.cli import main

sys.exit(main())
