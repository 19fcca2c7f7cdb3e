"""Pages of the documentation site that are generated, and links that leave docs/.

- the help of every command, from the program that ADJOIN names
- the paths of the server, from its OpenAPI document
- the list of decisions, which are pages without a place in the navigation
"""

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPENAPI = ROOT / "crates/adjoin-server/assets/openapi.json"
# Links of pages to documents outside of docs/, and the pages that stand for them.
OUTSIDE = {"../../python/README.md": "../reference/python.md"}


def help_of(*command: str) -> str:
    """Returns the help of a command."""
    program = os.environ["ADJOIN"]
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "80"}
    run = subprocess.run([program, *command, "--help"], env=environment, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def commands_in(text: str) -> list:
    """Returns the names of the subcommands that a help lists."""
    section = re.search(r"^Commands:\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^  (\S+) ", section[1], re.MULTILINE) if section else []
    return [name for name in names if name != "help"]


def commands_page() -> str:
    """Returns a section for each command."""
    parts = []
    waiting = [(name,) for name in commands_in(help_of())]
    while waiting:
        command = waiting.pop(0)
        text = help_of(*command)
        waiting = [(*command, name) for name in commands_in(text)] + waiting
        level = "#" * (len(command) + 1)
        parts.append(f"{level} adjoin {' '.join(command)}\n\n```text\n{text}\n```")
    return "\n\n".join(parts)


def type_of(schema: dict) -> str:
    """Returns the type of a value in a word or a link."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type") or [type_of(one) for one in schema.get("oneOf", schema.get("anyOf", []))]
    return kinds if isinstance(kinds, str) else " or ".join(kinds) or "any"


def rows(members: list) -> str:
    """Returns a table of names, types and meanings."""
    lines = [f"| `{name}` | {type_of(schema)} | {text} |" for name, schema, text in members]
    return "\n".join(["| name | type | meaning |", "| --- | --- | --- |", *lines])


def http_page() -> str:
    """Returns a section for each path and each schema of the OpenAPI document."""
    api = json.loads(OPENAPI.read_text())
    parts = []
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## {method.upper()} {path}\n\n{operation['summary']}. {operation.get('description', '')}")
            parameters = [parameter for parameter in operation.get("parameters", []) if "name" in parameter]
            if parameters:
                found = [(one["name"], one.get("schema", {}), one.get("description", "")) for one in parameters]
                parts.append("Parameters of the URL:\n\n" + rows(found))
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                parts.append(f"Body `{kind}`: {type_of(content.get('schema', {}))}")
            answers = [(code, answer) for code, answer in operation["responses"].items() if "description" in answer]
            lines = [f"| {code} | {answer['description']} |" for code, answer in answers]
            if lines:
                parts.append("\n".join(["| status | meaning |", "| --- | --- |", *lines]))
    for name, schema in api["components"]["schemas"].items():
        members = [(key, one, one.get("description", "")) for key, one in schema.get("properties", {}).items()]
        parts.append(f"## {name}\n\n{schema.get('description', '')}" + ("\n\n" + rows(members) if members else ""))
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page, **_) -> str:
    """Completes generated pages, and follows links that leave docs/."""
    for outside, inside in OUTSIDE.items():
        markdown = markdown.replace(f"({outside})", f"({inside})")
    if page.file.src_uri == "reference/commands.md":
        return f"{markdown}\n\n{commands_page()}\n"
    if page.file.src_uri == "reference/http.md":
        return f"{markdown}\n\n{http_page()}\n"
    return markdown


def on_files(files, **_):
    """Takes the decisions out of the check that every page is in the navigation: their list links to them."""
    from mkdocs.structure.files import InclusionLevel

    for file in files:
        if file.src_uri.startswith("decisions/0"):
            file.inclusion = InclusionLevel.NOT_IN_NAV
    return files
