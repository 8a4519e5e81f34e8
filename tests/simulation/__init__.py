"""The coordinator's core in a world of one thread: its clock, its network, its catalog and its deaths are the seed's.

Services, store, state machines, scheduling, keeper and the loops' steps are the real ones. In memory are the tables
(`lake`, with a model of every row), optimizers (`coordinator`) and the network.
At each effect of the coordinator, a write or a call of the catalog, others may slip in or it may die.
`simulation` draws the events, `invariants` says what must hold after each of them, and how everything must end.
"""
