"""A picture of a plan's memory: steps from left to right, arena bytes from bottom to top."""

from __future__ import annotations

from html import escape

from volta.plan.steps import Buffer, Memory, Plan

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 960, 480, 72, 40, 36
COLOURS = {Memory.TEMPORARY: "#3b82c4", Memory.WORKSPACE: "#e0913a"}


def draw(plan: Plan) -> str:
    """SVG: one rectangle per arena buffer, as wide as its life and as high as its bytes."""
    steps, total = max(1, len(plan.steps)), max(1, plan.arena_bytes)
    across, up = (WIDTH - LEFT - 16) / steps, (HEIGHT - BOTTOM - TOP) / total
    parts = [
        _rectangle(buffer, across, up) for buffer in plan.buffers if buffer.in_arena and buffer.first >= 0
    ]
    axis = HEIGHT - BOTTOM
    parts += [
        f'<line x1="{LEFT}" y1="{axis}" x2="{WIDTH - 16}" y2="{axis}" class="axis"/>',
        f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{axis}" class="axis"/>',
        _text(LEFT, 22, f"arena of {plan.arena_bytes:,} bytes over {len(plan.steps)} steps", "start"),
        _text(LEFT - 8, axis, "0", "end"),
        _text(LEFT - 8, TOP + 10, f"{plan.arena_bytes / 2**20:.1f} MiB", "end"),
        _text(LEFT, axis + 20, "step 0", "start"),
        _text(WIDTH - 16, axis + 20, f"step {len(plan.steps) - 1}", "end"),
        _text(WIDTH - 16, 22, "blue: values; orange: workspace", "end"),
    ]
    style = (
        "text{font:12px sans-serif;fill:#334}.axis{stroke:#667;stroke-width:1}"
        "rect.b{stroke:#fff;stroke-width:.4;fill-opacity:.85}"
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        f'<style>{style}</style>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fbfbfd"/>\n{body}\n</svg>\n'
    )


def _rectangle(buffer: Buffer, across: float, up: float) -> str:
    x = LEFT + buffer.first * across
    width = (buffer.last - buffer.first + 1) * across
    height = buffer.nbytes * up
    y = HEIGHT - BOTTOM - buffer.offset * up - height
    said = (
        f"{buffer.name}: {buffer.nbytes:,} bytes at {buffer.offset:,}, steps {buffer.first} to {buffer.last}"
    )
    return (
        f'<rect class="b" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'fill="{COLOURS[buffer.memory]}"><title>{escape(said)}</title></rect>'
    )


def _text(x: float, y: float, said: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(said)}</text>'
