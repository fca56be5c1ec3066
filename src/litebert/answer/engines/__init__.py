"""The engines: what computes the logits or the states of padded rows, with PyTorch, ONNX Runtime,
OpenVINO or the kernels.
"""
