"""Writing a folder to a repository of the Hub, as one commit."""

from __future__ import annotations

from pathlib import Path

from litebert import progress
from litebert.errors import ModelError
from litebert.hub.fetching import SETTINGS, TOKENIZER, WEIGHTS, silence
from litebert.hub.names import HubName
from litebert.hub.refusals import explain_push

_REPLACED = (*SETTINGS, *TOKENIZER, *WEIGHTS, "tokenizer/*")
"""Files of an earlier model that are deleted where the new one has none of that name, because they
would be read with it.
"""


def push_folder(folder: Path, name: HubName, *, private: bool, message: str) -> str:
    """Write the files of a folder to a repository, which is created if need be.

    Args:
        private: create a private repository, and write to no public one.

    Returns:
        The address of the commit's page.

    Raises:
        ModelError: the Hub cannot be reached or refuses, or the repository is public and must not
            be.
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
            raise ModelError(explain_push(name, error)) from None
    return str(commit.commit_url)
