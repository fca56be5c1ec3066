"""The errors of `huggingface_hub` as sentences that say what to do."""

from __future__ import annotations

from litebert.hub.names import HubName
from litebert.storage import FULL


def is_unreachable(error: BaseException) -> bool:
    """Return whether an error means that the Hub cannot be reached now."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # httpx's errors are TransportErrors, those of requests are ConnectionErrors and Timeouts.
    unreachable = {"TransportError", "ConnectionError", "Timeout", "TimeoutError"}
    return isinstance(error, LocalEntryNotFoundError) or not kinds.isdisjoint(unreachable)


def get_reason(error: BaseException) -> str:
    """The first line of what an error says, or of the error behind it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split("\n\n")[0].split())
    return text or type(error).__name__


def explain(name: HubName, error: Exception) -> str:
    """Say in one sentence why a model cannot be fetched, and what to do."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{name.repository}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its terms at {page}, then log in with `hf auth login` or set "
            "HF_TOKEN"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"the Hub has no model {name} that this machine may see; check its name, and for a "
            "private model log in with `hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"{name} has no revision '{name.revision}'; name a branch, a tag or a commit of {page}"
        )
    if is_unreachable(error):
        return _explain_unreachable(name, error)
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return (
                f"the Hub refuses this machine's token for {name}; log in again with "
                "`hf auth login`, or set HF_TOKEN to a token that may do this"
            )
        return f"the Hub answers with status {status} for {name} ({get_reason(error)}); try again"
    if isinstance(error, OSError) and error.errno is not None:
        free = "free some space there" if error.errno in FULL else "make it writable"
        return (
            f"{name} cannot be kept in {constants.HF_HUB_CACHE} ({error.strerror}); {free}, or set "
            "HF_HOME to another folder"
        )
    return f"{name} cannot be fetched ({get_reason(error)}); give the same command again"


def _explain_unreachable(name: HubName, error: Exception) -> str:
    from huggingface_hub import constants

    copy = f"or copy a folder of it (hf download {name.repository} --local-dir FOLDER) and give it"
    if constants.HF_HUB_OFFLINE:
        return (
            f"{name} is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it; "
            f"unset that, {copy}"
        )
    return (
        f"{name} is not wholly in {constants.HF_HUB_CACHE}, and {constants.ENDPOINT} cannot be "
        f"reached ({get_reason(error)}); give the same command again with a connection, {copy}"
    )


def explain_push(name: HubName, error: Exception) -> str:
    """Say in one sentence why a model cannot be pushed, and what to do."""
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE:
        return f"{name} cannot be pushed, for HF_HUB_OFFLINE forbids connections; unset it"
    if is_unreachable(error):
        return (
            f"{name} cannot be pushed, for {constants.ENDPOINT} cannot be reached "
            f"({get_reason(error)}); give the same command again with a connection"
        )
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code in (401, 403, 404):
        return (
            f"the Hub does not let this machine write to {name}; log in with `hf auth login`, or "
            "set HF_TOKEN to a token that may write there"
        )
    return f"{name} cannot be pushed ({get_reason(error)}); give the same command again"
