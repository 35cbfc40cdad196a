"""The source papers' statements as printed: comparisons that no answer of the engine rests on.

Each is reached by its name as ``method=``; nothing here is loaded before it is asked for.
"""
