"""Turns docstrings of the Python package, which are written for the interpreter's help, into Markdown."""

import re

import griffe

ROLE = re.compile(r":(?:attr|class|func|meth|mod|exc|data):(`~?[^`]+`)")


def in_markdown(text: str) -> str:
    """Returns the text with roles as code, and with examples of the interpreter in fences."""
    text = ROLE.sub(lambda role: role[1].replace("~", ""), text).replace("``", "`")
    lines, is_inside = [], False
    for line in text.splitlines():
        starts = line.lstrip().startswith(">>>")
        if starts and not is_inside:
            lines += ["", "```pycon"]
            is_inside = True
        elif is_inside and not line.strip():
            lines += ["```"]
            is_inside = False
        lines.append(line.strip() if starts else line)
    return "\n".join(lines + ["```"] * is_inside)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring when it is found."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = in_markdown(obj.docstring.value)
