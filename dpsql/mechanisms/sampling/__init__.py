"""Exact samplers: the exponential race, discrete Gaussian and Laplace, and coins."""
