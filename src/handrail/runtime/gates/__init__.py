"""The gates, one per file. Each module has a `NAME` and `gate_for(tool, policy)`: the check for one tool, or None where it
could never refuse. So the plan of a tool holds only the gates that matter to it.
"""
