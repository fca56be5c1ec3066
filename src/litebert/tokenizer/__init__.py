"""Text to token ids and back: engines, training, words, offsets and inspection."""

from litebert.tokenizer.tokenizer import Inspection as Inspection
from litebert.tokenizer.tokenizer import Tokenizer as Tokenizer
from litebert.tokenizer.tokenizer import inspect as inspect
from litebert.tokenizer.tokenizer import train_tokenizer as train_tokenizer
