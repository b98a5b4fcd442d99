"""Linear algebra: a polynomial fit by QR, principal components by SVD and by eigenvectors, and ridge regression."""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

# A cubic polynomial from noisy values: the least-squares solution of R x = Qᵀ y.
torch.manual_seed(0)
x = torch.linspace(-1, 1, 200, dtype=torch.float64)
powers = torch.stack([x**p for p in range(4)], 1)
truth = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
values = powers @ truth + torch.randn(200) * 0.01
q, r = torch.linalg.qr(powers)
fitted = torch.linalg.solve_triangular(r, (q.T @ values).unsqueeze(1), upper=True).squeeze(1)
print(f"coefficients {fitted}")
assert (fitted - truth).abs().max() < 0.01, "the fit is wrong"

# Principal components of the digits: singular values, and eigenvalues of the covariance.
digits = load_digits()
images = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
centered = images - images.mean(0)
degrees_of_freedom = len(images) - 1
variances = torch.linalg.svdvals(centered).square() / degrees_of_freedom
covariance = centered.T @ centered / degrees_of_freedom
difference = (torch.linalg.eigvalsh(covariance).flip(0) - variances).abs().max().item()
explained = (variances[:10].sum() / variances.sum()).item()
print(f"ten components explain {explained:.1%} of the variance; SVD and eigh differ by {difference:.0e}")
assert abs(explained - 0.738) < 1e-3 and difference < 1e-4, "the components are wrong"

# Ridge regression of the class: (XᵀX + λI) W = XᵀY.
classes = F.one_hot(labels, 10).float()
gram = images.T @ images + torch.eye(64) * 0.1
weights = torch.linalg.solve(gram, images.T @ classes)
accuracy = ((images @ weights).argmax(1) == labels).float().mean().item()
print(f"ridge regression: {accuracy:.1%} of the digits correct")
assert accuracy > 0.9, "the regression is wrong"
