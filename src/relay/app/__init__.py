"""The composition root: the one place that knows all rooms and where clocks, chance, sockets and pools are made.

Owns what a process is made of (`gateway`, `dispatcher`, `receiver`), how several processes are one service (`crew`,
`worker`, `tether`), where the installation's database and keys are (`installation`), and `up`, which runs everything on
one machine. It leaves words for a person to the commands. Invariant: whatever is started here is stopped here, in order
and within a bound."""
