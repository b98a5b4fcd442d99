//! Literal sizes that do not match; each error names both layers.

use panoply::sequential;

fn main() {
    let _ = sequential![Linear(784, 128), relu, Linear(64, 10)];
    let _ = sequential![input = [1, 28, 28], Conv2d(3, 8, [3, 3]), relu];
    let _ = sequential![input = [1, 8, 8], Conv2d(1, 8, [3, 3]), MaxPool([2, 2]), flatten, Linear(64, 10)];
    let _ = sequential![input = [1, 8], Conv1d(1, 8, [3], padding = "same"), flatten, Linear(48, 10)];
    let _ = sequential![input = [1, 8], Conv1d(1, 8, [3], padding = [2]), flatten, Linear(64, 10)];
    let _ = sequential![input = [1, 8, 8], Conv2d(1, 8, [3, 3]), BatchNorm(4)];
    let _ = sequential![input = [1, 8, 8], MaxPool([16, 2])];
    let _ = sequential![input = [8, 8], Lstm(8, 32), last_time_step, Linear(31, 10)];
    let _ = sequential![Linear(12, 12), Reshape([3, 5])];
    let _ = sequential![input = [1, 8, 8], Conv2d(1, 8, [3, 3], padding = [1])];
}
