"""Charts as SVG with a table of the same numbers: pure functions of values.

They carry no colours, styles or scripts: classes say what a mark is, the style sheet says how it looks. Positions are
percentages of the width, so texts keep their size at every width.
"""
