"""The HTTP API as values: its operations, the shape of each answer, its OpenAPI document.

What the commands print with `--json` has these shapes too, so a shape is declared once. This room
knows no server and no store: `web/api/` answers.
"""
