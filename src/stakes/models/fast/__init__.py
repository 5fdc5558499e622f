"""The GPU engine: the stock model's arithmetic in fewer and faster kernels."""
