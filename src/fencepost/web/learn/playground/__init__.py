"""The playground: two producers with buttons, on a broker of their own that can be killed, cut off and told to lie.

buttons    what can be clicked, and with which mistakes
producer   a producer that sends each request once, and keeps request and answer
batches    record batches, also wrong ones
messages   requests and answers as plain values, for the page
partition  the log of a partition, and what readers get of it
session    one playground: its broker, its producers, and what a click does
recipes    which clicks cause which error
guide      the clicks of the first minute
"""

from __future__ import annotations
