"""A custom kernel as a layer, with its gradient. With `TRITON_INTERPRET=1` it runs without a GPU."""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

BLOCK = 256
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def signed_square(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < count)
    tl.store(y_ptr + i, x * tl.abs(x), mask=i < count)


class Signed(torch.autograd.Function):
    """The kernel as a differentiable operation: its output and its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        signed_square[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK)
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.abs() * 2.0


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 8)
        self.second = nn.Linear(8, 1)

    def forward(self, x):
        return self.second(Signed.apply(self.first(x)))


torch.manual_seed(0)
x = torch.randn(256, 2, device=DEVICE)
# x₀ |x₀| - x₁: a network without a nonlinearity cannot learn it.
target = (x[:, 0] * x[:, 0].abs() - x[:, 1]).unsqueeze(1)
model = Network().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.0)
for step in range(300):
    loss = F.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:>3}: loss {loss:.4f}")
print(f"after 300 steps: loss {loss:.4f} on {DEVICE}")
assert loss < 0.02, "the network did not learn"
