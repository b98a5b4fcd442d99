//! Runs a kernel on the interpreter, and compares it with rustc's compilation of the same source.

use panoply::Element;
use panoply_ir::interpret::{self, Arg};
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify;

/// Returns the bytes of elements.
pub fn bytes<T: Element>(elements: &[T]) -> Vec<u8> {
    let each = elements.iter().map(|element| {
        let scalar: panoply_ir::Scalar = (*element).into();
        scalar.bits.to_ne_bytes()[..T::DTYPE.bytes()].to_vec()
    });
    each.flatten().collect()
}

/// Returns the bits of elements, each in a u64.
pub fn bits(bytes: &[u8], size: usize) -> Vec<u64> {
    let widen = |element: &[u8]| {
        let mut all = [0; 8];
        all[..size].copy_from_slice(element);
        u64::from_ne_bytes(all)
    };
    bytes.chunks(size).map(widen).collect()
}

/// Verifies a kernel and runs it over a grid.
#[track_caller]
pub fn interpret(kernel: Kernel, grid: [u64; 3], args: &mut [Arg<'_>]) {
    let text = kernel.to_string();
    let kernel = verify(kernel).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let group = kernel.group_size.unwrap_or([4, 1, 1]);
    interpret::run(&kernel, grid, group, args, &mut ()).unwrap_or_else(|error| panic!("{error}\n{text}"));
}

/// Returns all combinations of indices into lists of these lengths.
pub fn product(lens: &[usize]) -> Vec<Vec<usize>> {
    let total: usize = lens.iter().product();
    let digits = |mut rest: usize| {
        let digit = |len: &usize| {
            let digit = rest % len;
            rest /= len;
            digit
        };
        lens.iter().map(digit).collect()
    };
    (0..total).map(digits).collect()
}

/// Tests that a function gives the same bits when compiled by rustc and as a kernel, for every combination of the
/// listed values.
macro_rules! as_rust {
    ($(fn $name:ident($($arg:ident: $ty:ty = $values:expr),*) -> $result:ty { $($body:tt)* })*) => {$(
        #[test]
        fn $name() {
            #[panoply::kernel_fn]
            fn function($($arg: $ty),*) -> $result { $($body)* }

            #[panoply::kernel]
            fn run($($arg: &[$ty],)* out: &mut [$result]) {
                let i = global_index();
                out[i] = function($($arg[i]),*);
            }

            $(let $arg: &[$ty] = &$values;)*
            let choices = $crate::kernel::oracle::product(&[$($arg.len()),*]);
            let mut position = 0..;
            $(
                let at = position.next().expect("endless");
                let $arg: Vec<$ty> = choices.iter().map(|choice| $arg[choice[at]]).collect();
            )*
            let by_rustc: Vec<$result> = (0..choices.len()).map(|i| function($($arg[i]),*)).collect();
            let mut out = $crate::kernel::oracle::bytes(&vec![<$result>::default(); choices.len()]);
            let ($($arg),*,) = ($($crate::kernel::oracle::bytes(&$arg)),*,);
            let mut args = [$(panoply_ir::interpret::Arg::Read(&$arg),)* panoply_ir::interpret::Arg::Write(&mut out)];
            let kernel = run::build().expect("the kernel is built");
            let text = kernel.to_string();
            $crate::kernel::oracle::interpret(kernel, [choices.len() as u64, 1, 1], &mut args);
            let size = size_of::<$result>();
            let (have, want) = ($crate::kernel::oracle::bits(&out, size), $crate::kernel::oracle::bits(&$crate::kernel::oracle::bytes(&by_rustc), size));
            for (i, choice) in choices.iter().enumerate() {
                assert_eq!(have[i], want[i], "rustc gives {:?} at {choice:?}\n{text}", by_rustc[i]);
            }
        }
    )*};
}
