//! tmp
use panoply::kernels;
use panoply_ir::{Target, verify::verify};
fn main() {
    let name = std::env::args().nth(1).unwrap();
    for (k, b) in kernels::ALL.iter().flat_map(|s| s.kernels) {
        if *k == name {
            let kernel = verify(b().unwrap()).unwrap();
            println!("{}", *kernel);
            let target = Target::opencl_minimum();
            let o = panoply_compile::opt::optimize(kernel, &target, &Default::default());
            println!("{}", *o);
            println!("{}", panoply_compile::render::render(&o, &target).unwrap().source);
        }
    }
}
