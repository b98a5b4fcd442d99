//! Conditions that `prove!` does not accept.

use panoply::Tensor;
use panoply::verify::{InputBox, prove};

fn model(x: &Tensor) -> Tensor {
    x.relu()
}

fn main() {
    let set = || InputBox::new([2], 0.0, 1.0);
    let _ = prove!(|x in set()| model(x));
    let _ = prove!(|x in set()| model(x) == 3);
    let _ = prove!(|x in set()| model(x) <= 1 || model(x) >= 2);
    let _ = prove!(|x in set()| model(x).argmax(0, 1) == 3);
    let _ = prove!(|x in set()| 3 == model(x).sum(0));
    let _ = prove!(|x in set(), x in set()| model(x) <= 1);
    let _ = prove!(|| 1 <= 2);
    let _ = prove!(|x in set()| { let y = model(x); });
}
