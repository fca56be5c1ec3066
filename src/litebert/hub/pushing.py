"""Writing a folder to a repository of the Hub, as one commit."""

from __future__ import annotations

from pathlib import Path

from litebert.base import progress
from litebert.base.errors import ModelError
from litebert.hub.fetching import (
    SETTINGS,
    TOKENIZER,
    WEIGHTS,
    get_reason,
    is_unreachable,
    silence,
)
from litebert.hub.names import HubName

_REPLACED = (*SETTINGS, *TOKENIZER, *WEIGHTS, "tokenizer/*")
"""Files of an earlier model that are deleted, because they would be read with the new one."""


def push_folder(folder: Path, name: HubName, *, private: bool, message: str) -> str:
    """Write the files of a folder to a repository, created if need be, and return the address of
    the commit's page. With `private` it is created as private, and must not be public.
    """
    with silence(), progress.task(f"pushing to {name}"):
        from huggingface_hub import HfApi  # late: its import takes time

        api = HfApi(library_name="litebert")
        try:
            api.create_repo(name.repository, private=private or None, exist_ok=True)
            if private and not api.model_info(name.repository).private:
                raise ModelError(
                    f"{name} exists and everyone can read it; make it private in its settings on "
                    "the Hub, name another repository, or leave --private out"
                )
            commit = api.upload_folder(
                repo_id=name.repository,
                folder_path=folder,
                commit_message=message,
                delete_patterns=list(_REPLACED),
            )
        except (ModelError, MemoryError):
            raise
        except Exception as error:  # each version of the library has errors of another one
            raise ModelError(_explain(name, error)) from None
    return str(commit.commit_url)


def _explain(name: HubName, error: Exception) -> str:
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
