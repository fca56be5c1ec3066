"""Names of other programs' weights, as tables, and one interpreter; opening and writing model folders."""

from litebert.interop.hf_writing import save_hf
from litebert.interop.loaded import LoadedModel
from litebert.interop.models import Conversion, convert, read_folder, save_litebert

__all__ = ["Conversion", "LoadedModel", "convert", "read_folder", "save_hf", "save_litebert"]
