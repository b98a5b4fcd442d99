//! Settings of an operation as a cache key.

use panoply_ir::routine::FourierKind;
use panoply_ir::{DType, Shape};

/// The settings of an operation besides its inputs: numbers, shapes and compounds of them.
pub trait CallAttrs {
    /// Appends words that differ if the settings differ.
    fn write_key(&self, words: &mut Vec<u64>);
}

macro_rules! attrs {
    ($($number:ty: $word:expr;)*) => {$(
        impl CallAttrs for $number {
            fn write_key(&self, words: &mut Vec<u64>) {
                let word: fn($number) -> u64 = $word;
                words.push(word(*self));
            }
        }
    )*};
}

attrs! {
    bool: |x| x.into();
    u32: |x| x.into();
    u64: |x| x;
    usize: |x| x as u64;
    i32: |x| x as u64;
    i64: |x| x as u64;
    isize: |x| x as u64;
    f32: |x| x.to_bits().into();
    f64: |x| x.to_bits();
    DType: |x| x as u64;
    FourierKind: |x| x as u64;
}

impl CallAttrs for () {
    fn write_key(&self, _: &mut Vec<u64>) {}
}

impl<T: CallAttrs> CallAttrs for [T] {
    fn write_key(&self, words: &mut Vec<u64>) {
        words.push(self.len() as u64);
        self.iter().for_each(|setting| setting.write_key(words));
    }
}

impl<T: CallAttrs, const N: usize> CallAttrs for [T; N] {
    fn write_key(&self, words: &mut Vec<u64>) {
        self.as_slice().write_key(words);
    }
}

impl<T: CallAttrs> CallAttrs for Vec<T> {
    fn write_key(&self, words: &mut Vec<u64>) {
        self.as_slice().write_key(words);
    }
}

impl<T: CallAttrs> CallAttrs for Option<T> {
    fn write_key(&self, words: &mut Vec<u64>) {
        self.as_slice().write_key(words);
    }
}

impl CallAttrs for Shape {
    fn write_key(&self, words: &mut Vec<u64>) {
        self.dims().write_key(words);
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<$($name: CallAttrs),+> CallAttrs for ($($name,)+) {
            #[allow(non_snake_case)]
            fn write_key(&self, words: &mut Vec<u64>) {
                let ($($name,)+) = self;
                $($name.write_key(words);)+
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
