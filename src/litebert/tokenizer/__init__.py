"""Text to token ids and back: engines, training, words, offsets and inspection."""

from litebert.tokenizer.tokenizer import Tokenizer as Tokenizer
