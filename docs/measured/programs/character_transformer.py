"""A transformer that predicts the next character of a text and continues it."""

import pathlib

import torch
from torch import nn
from torch.nn import functional as F

TEXT = (pathlib.Path(__file__).parents[3] / "LICENSE-APACHE").read_text()
TIME = 32
BATCH = 16
WIDTH = 64
STEPS = 200


class CharacterTransformer(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.characters = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(TIME, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, text):
        time = text.shape[1]
        x = self.characters(text) + self.positions(torch.arange(time))
        mask = nn.Transformer.generate_square_subsequent_mask(time)
        return self.head(self.blocks(x, mask=mask, is_causal=True))


torch.manual_seed(0)
vocabulary = sorted(set(TEXT))
codes = [vocabulary.index(character) for character in TEXT]
data = torch.tensor(codes)
model = CharacterTransformer(len(vocabulary))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
losses = []
for step in range(1, STEPS + 1):
    starts = torch.randint(len(data) - TIME, (BATCH, 1))
    windows = data[starts + torch.arange(TIME + 1)]
    logits = model(windows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(f"step {step}: loss {losses[-1]:.3f}")
model.eval()
codes = codes[:TIME]
with torch.no_grad():
    for _ in range(100):
        logits = model(torch.tensor([codes[-TIME:]]))[0, -1]
        codes.append(torch.multinomial(logits.softmax(-1), 1).item())
print("".join(vocabulary[code] for code in codes))
loss = sum(losses[-20:]) / 20
assert loss < 2.2, f"the loss is {loss}"
