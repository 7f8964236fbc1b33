"""The head of a recipe that needs neither a browser nor more than one thread."""

SCRIPTED = """
[environment]
name = "scripted"
templates = ["count"]
[policy]
threads = 1
dtype = "float32"
"""
