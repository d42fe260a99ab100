"""The mutants themselves, one file a theme. None of these files imports the runtime: a patch is handed the module
that it breaks, right after its import or in a process that has long had it.
"""
