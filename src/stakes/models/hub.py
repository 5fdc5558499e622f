"""Can the hub be asked for a model at all? One short question before transformers' own, which go on for 23 seconds.

    ask_hub("owner/model")      # "looking for owner/model on the hub" on stderr; BadInput where nobody can be reached

The hub's library asks six times, with pauses of 1, 2, 4, 8 and 8 seconds, for a file of which no copy is here. Where
its name has no address, or nobody listens there, twice is enough. A hub that is slow, or that answers anything at all,
is left to transformers and its patience, and so is a model of which a copy is here.
"""

from __future__ import annotations

import errno
import socket
import sys
import time

from stakes.errors import BadInput

TIMEOUT_S = 5.0  # of the short question alone: who is slower is asked again with the hub's own
PAUSE_S = 1.0  # a name server may miss one question
_NO_WAY = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL}


def ask_hub(name: str) -> None:
    """Say that the hub is asked for this model, and fail now where it cannot be reached."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        url = hf_hub_url(name, "config.json")
        if constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
    except ValueError:  # no name that the hub could have; transformers says what is wrong with it
        return
    print(f"looking for {name} on the hub ({constants.ENDPOINT})", file=sys.stderr, flush=True)
    for last in (False, True):
        try:
            get_hf_file_metadata(url, timeout=TIMEOUT_S)
        except Exception as error:  # whichever client the hub's library has; what it says is transformers' to tell
            why = _unreachable(error)
            if why is None:
                return
            if last:
                raise BadInput(
                    f"no model at {name!r}: could not connect to {constants.ENDPOINT} ({why}), and there is no copy "
                    "here; give a folder that has the weights, or try again with a network"
                ) from error
        else:
            return
        time.sleep(PAUSE_S)


def _unreachable(error: BaseException) -> str | None:
    """What the system said, where the host has no address or takes no connection; else None."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, socket.gaierror) or (isinstance(at, OSError) and at.errno in _NO_WAY):
            return at.strerror or str(at)
        at = at.__cause__ or at.__context__
    return None
