"""What engines have in common whose training is another program, in an environment of its own:

`engine.py`.
"""
