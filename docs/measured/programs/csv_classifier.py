"""A classifier of the rows of a CSV file, with text labels and a fifth of the rows held out."""

import os
import sys
import tempfile

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def accuracy(path):
    """Trains on a table and returns the accuracy on the rows that are held out."""
    torch.manual_seed(0)
    table = pd.read_csv(path)
    labels, classes = pd.factorize(table.pop(table.columns[-1]))
    inputs = torch.tensor(pd.get_dummies(table).to_numpy("float32"))
    train, held_out = random_split(TensorDataset(inputs, torch.tensor(labels)), [0.8, 0.2])
    size = inputs.shape[1]
    model = nn.Sequential(nn.BatchNorm1d(size), nn.Linear(size, 32), nn.ReLU(), nn.Linear(32, len(classes)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for epoch in range(40):
        for x, y in DataLoader(train, 64, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-10:]) < np.mean(losses[:10]), "the network did not learn"
    model.eval()
    x, y = next(iter(DataLoader(held_out, len(held_out))))
    return (model(x).argmax(1) == y).float().mean().item()


def example_table():
    """Writes a table of points that are labeled by whether they are inside a circle, and returns its path."""
    x, y = np.random.default_rng(1).random((2, 800))
    label = np.where(np.hypot(x - 0.5, y - 0.5) < 0.4, "inside", "outside")
    path = os.path.join(tempfile.gettempdir(), f"points-{os.getpid()}.csv")
    pd.DataFrame({"x": x, "y": y, "label": label}).to_csv(path, index=False)
    return path


table = sys.argv[1] if len(sys.argv) > 1 else example_table()
print(f"{accuracy(table):.1%} of the held-out rows of {table} are correct")
