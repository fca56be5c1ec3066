"""The encoder in compiled C for CPUs: the kernels, their loader, and the network that answers."""
