"""Text to token ids and back: engines, training, words, offsets and inspection."""

from litebert.tokenizer.inspection import Inspection as Inspection
from litebert.tokenizer.inspection import inspect as inspect
from litebert.tokenizer.tokenizer import Tokenizer as Tokenizer
from litebert.tokenizer.training import train_tokenizer as train_tokenizer
