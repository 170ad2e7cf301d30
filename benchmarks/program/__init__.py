"""What all benchmarks share.

main        the command line: run, report
suites      the registry: which suites there are
row         what a suite yields, one line of a table at a time
times       the one way to take time: formulations in turns, CPU and wall, medians with spread
machine     what the figures were taken on
results     rows in a file, a JSON object a line
tables      rows as Markdown, ratios side by side
laws        the power with which a figure grows
plots       rows as SVG
"""
