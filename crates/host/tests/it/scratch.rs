//! Scratch memory is kept from one call to the next, up to a limit.

use panoply_host::scratch::Scratch;

#[test]
fn memory_is_kept_and_reused() {
    let scratch = Scratch::default();
    let first = scratch.take::<f32>(1000).start() as usize;
    assert_eq!((first % 64, scratch.bytes()), (0, 4032));
    assert_eq!(scratch.take::<f64>(500).start() as usize, first, "it is large enough");
    scratch.take::<f32>(2000);
    assert_eq!(scratch.bytes(), 8000, "the larger block replaced the smaller one");
    scratch.take::<f32>(32 << 20);
    assert_eq!(scratch.bytes(), 0, "a block above the limit is not kept");
}
