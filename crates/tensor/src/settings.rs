//! What an operation depends on besides its inputs, as a key.

use panoply_ir::routine::FourierKind;
use panoply_ir::{DType, Shape};

/// What an operation depends on besides its inputs: numbers, shapes and what is made of them.
pub trait Settings {
    /// Appends words that differ if the settings differ.
    fn words(&self, words: &mut Vec<u64>);
}

macro_rules! settings {
    ($($number:ty: $word:expr;)*) => {$(
        impl Settings for $number {
            fn words(&self, words: &mut Vec<u64>) {
                let word: fn($number) -> u64 = $word;
                words.push(word(*self));
            }
        }
    )*};
}

settings! {
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

impl Settings for () {
    fn words(&self, _: &mut Vec<u64>) {}
}

impl<T: Settings> Settings for [T] {
    fn words(&self, words: &mut Vec<u64>) {
        words.push(self.len() as u64);
        self.iter().for_each(|setting| setting.words(words));
    }
}

impl<T: Settings, const N: usize> Settings for [T; N] {
    fn words(&self, words: &mut Vec<u64>) {
        self.as_slice().words(words);
    }
}

impl<T: Settings> Settings for Vec<T> {
    fn words(&self, words: &mut Vec<u64>) {
        self.as_slice().words(words);
    }
}

impl<T: Settings> Settings for Option<T> {
    fn words(&self, words: &mut Vec<u64>) {
        self.as_slice().words(words);
    }
}

impl Settings for Shape {
    fn words(&self, words: &mut Vec<u64>) {
        self.dims().words(words);
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<$($name: Settings),+> Settings for ($($name,)+) {
            #[allow(non_snake_case)]
            fn words(&self, words: &mut Vec<u64>) {
                let ($($name,)+) = self;
                $($name.words(words);)+
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
