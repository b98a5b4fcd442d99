"""A variational autoencoder of handwritten digits, which then draws new ones."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

LATENT = 8
EPOCHS = 20


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, 128), nn.ReLU(), nn.Linear(128, 64))

    def loss(self, images):
        """Returns the negative evidence lower bound (ELBO) of images, in nats per image."""
        mean, log_var = self.encoder(images).chunk(2, -1)
        logits = self.decoder(mean + (log_var * 0.5).exp() * torch.randn_like(mean))
        reconstruction = F.binary_cross_entropy_with_logits(logits, images, reduction="none").sum(-1)
        kl = (log_var.exp() + mean.square() - 1 - log_var).sum(-1) * 0.5
        return (reconstruction + kl).mean()


torch.manual_seed(0)
digits = torch.tensor(load_digits().data / 16, dtype=torch.float32)
model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(1, EPOCHS + 1):
    total = 0.0
    for images in DataLoader(digits, 64, shuffle=True):
        loss = model.loss(images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(images)
    mean_loss = total / len(digits)
    if epoch % 10 == 0:
        print(f"epoch {epoch}: loss {mean_loss:.2f}")
with torch.no_grad():
    image = model.decoder(torch.randn(1, LATENT)).sigmoid()
for row in image.reshape(8, 8).tolist():
    print("".join(" .:-=+*#%@"[int(light * 9.99)] for light in row))
assert mean_loss < 26.0, f"the loss is {mean_loss}"
