"""Lets a Relay process trust one authority instead of the system's: Python reads this at its start where the folder is
on its path.

The file that `TRUSTED_AUTHORITY` names is a certificate, as an administrator would put it into the system's bundle.
"""

import os
from pathlib import Path

from relay.sender import authorities

authorities.SYSTEM_BUNDLES = (Path(os.environ["TRUSTED_AUTHORITY"]),)  # type: ignore[assignment] # one instead of all
