"""How good and how fast real speech is, end to end: `lingua bench speech`.

    material (recordings, their texts) ──> run (a private service, a client) ──> report
                                      └──> chaos (killed while people speak) ──> chaos_report

Real recordings are spoken into a private scheduler with a node of real engines; what comes back is
compared with what was said. Nothing is simulated. docs/speech.md has the figures and their limits.
"""
