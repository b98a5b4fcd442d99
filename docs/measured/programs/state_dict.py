"""A `state_dict` in a safetensors file, loaded into a model whose outputs are known."""

import os
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        output, _ = self.lstm(x)
        return self.head(output[:, -1])


def sines(shape):
    """Returns sin(0), sin(1), … in a shape."""
    return torch.arange(torch.Size(shape).numel()).float().sin().reshape(shape)


file = os.path.join(tempfile.gettempdir(), f"state-dict-{os.getpid()}.safetensors")
save_file({name: sines(value.shape) for name, value in Model().state_dict().items()}, file)

model = Model()
model.load_state_dict(load_file(file))
with torch.no_grad():
    outputs = model(sines([2, 5, 3]))
print(f"outputs of the loaded model: {outputs}")
expected = torch.tensor([[-0.020386, 0.499075], [-0.027921, -0.040785]])
assert (outputs - expected).abs().max() < 1e-5, "the outputs differ"
os.remove(file)
