//! Unknown layers, and layers with invalid arguments.

use panoply::sequential;

fn main() {
    let _ = sequential![Linear(784)];
    let _ = sequential![Linear(784, 128), rleu];
    let _ = sequential![relu, Linear(784, 128)];
    let _ = sequential![input = [1, 8, 8], Conv2d(1, 8, 3)];
    let _ = sequential![input = [1, 8, 8], Conv2d(1, 8, [3, 3], padding = "valid")];
    let _ = sequential![inputs = [1, 8, 8], relu];
}
