"""Learn: the demos step by step, and a playground. Each has an embedded broker of its own, and needs no cluster.

demos        which demos there are, and how each plays
stepping     a demo that pauses after each step
watching     what an embedded broker did since the last step: requests, states, records
sessions     the runs and playgrounds that are open: few, and not for ever
playground/  a producer with buttons, and the recipes for every error
pages        the addresses
"""

from __future__ import annotations
