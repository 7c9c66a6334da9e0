"""The demonstration: a real service, real GRPO on the CPU, a real forecast and the switch it asks for.

It joins the rooms as a user would, by their commands and over HTTP: `twoclocks serve` in one process, a
`twoclocks-train` process for each run, and this one only watching. `recipe` holds every number, `run` the
order of things, `screen` what the terminal shows, `summary` what came of it, `claim` the same over seeds.
"""
