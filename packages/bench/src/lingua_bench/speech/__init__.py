"""The quality and the speed of real speech, end to end: `lingua bench speech`.

    material (recordings, their texts) ──> run (a private service, a client) ──> report
                                      └──> chaos (processes are killed) ──> chaos_report

Real recordings are spoken into a private scheduler with a node of real engines, and the outcomes
are compared with the texts of the recordings. Nothing is simulated. docs/speech.md has the figures
and their limits.
"""
