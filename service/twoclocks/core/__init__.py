"""The pure core: two clocks, a threshold, a forecast, a decision.

Everything here could be checked with pencil and paper: values in, values out, numpy, scipy and the standard
library only. Time and randomness are arguments. One model a file, its mathematics in the docstring.
n counts samples (generated responses), x is drift, D the threshold, eta0 = learning_rate / sqrt(b) with b the
responses behind one optimizer update.
"""
