"""What the planner makes of a function: its steps, where every byte lies, and that the peak is exact."""

import volta as vt


def attention_block(x: vt.Tensor, w: vt.Tensor, out: vt.Tensor) -> vt.Tensor:
    """x [B, T, C], w [C, 3C], out [C, C] -> [B, T, C], with 4 heads."""
    batch, time, width = x.shape
    packed = (x @ w).reshape(batch, time, 12, width // 4)
    q, k, v = (part.transpose(0, 2, 1, 3) for part in vt.split(packed, (4, 4, 4), axis=2))
    mixed = vt.attention(q, k, v).transpose(0, 2, 1, 3).reshape(batch, time, width)
    return x + vt.gelu(mixed @ out)


x, w, out = vt.zeros((2, 16, 64)), vt.zeros((64, 192)), vt.zeros((64, 64))
bound = vt.compile(attention_block).bind(x, w, out)  # one verified plan, its memory bound
plan = bound.executable.plan
for index, step in enumerate(plan.steps):
    chain = " + ".join(instruction.op for instruction in step.code)
    print(f"{index}  {step.kernel:10} {'then ' + chain if chain else ''}")
for memory, count in plan.bytes_by_memory().items():
    print(f"{memory:10} {count:8,} bytes")
bound.run()
print(
    f"arena: {plan.arena_bytes:,} bytes planned, {bound.executable.program.measured_arena_bytes:,} measured"
)
