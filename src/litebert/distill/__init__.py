"""From a large model to a small one, by commands of litebert."""
