"""Exports to ONNX: the graph, its folder, and what tells such folders from others."""
