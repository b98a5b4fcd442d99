"""A generative adversarial network that learns to place points on a circle."""

import math

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 128
NOISE = 4
STEPS = 1000


def circle():
    """Draws points near the unit circle."""
    angle = torch.rand(BATCH, 1) * math.tau
    return torch.cat([angle.cos(), angle.sin()], 1) + torch.randn(BATCH, 2) * 0.05


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


torch.manual_seed(0)
generator = mlp(NOISE, 2)
discriminator = mlp(2, 1)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.9))
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
for step in range(1, STEPS + 1):
    fake = generator(torch.randn(BATCH, NOISE)).detach()
    discriminator_loss = F.softplus(-discriminator(circle())).mean() + F.softplus(discriminator(fake)).mean()
    discriminator_optimizer.zero_grad()
    discriminator_loss.backward()
    discriminator_optimizer.step()

    fake = generator(torch.randn(BATCH, NOISE))
    generator_loss = F.softplus(-discriminator(fake)).mean()
    generator_optimizer.zero_grad()
    generator_loss.backward()
    generator_optimizer.step()
    if step % 250 == 0:
        print(f"step {step}: discriminator {discriminator_loss:.3f}, generator {generator_loss:.3f}")
with torch.no_grad():
    points = generator(torch.randn(1000, NOISE))
radius = points.norm(dim=-1).mean().item()
center = points.mean(0).norm().item()
print(f"mean distance from the origin {radius:.3f}, of the mean point {center:.3f}")
assert 0.9 < radius < 1.1 and center < 0.3, "the points are not on the circle"
