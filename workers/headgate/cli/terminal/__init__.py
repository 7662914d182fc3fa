"""Progress, keys and the screen of `headgate top`: what commands show on a terminal beyond lines.

Rich is imported below this package alone.
"""
