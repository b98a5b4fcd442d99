//! Kernel arguments for APIs in which a buffer is passed as its address.

use panoply_device::{Arg, Dispatch, Error, ParamType, Region, Result, Signature, Type};

/// One kernel argument: its value in little-endian order and its size in bytes.
pub struct Value {
    pub bits: u64,
    #[cfg_attr(not(feature = "oneapi"), expect(dead_code, reason = "other drivers take the size from the program"))]
    pub bytes: usize,
}

/// Returns the arguments of an entry point in order; `address` returns the device address of a region.
pub fn values(
    label: &str,
    signature: &Signature,
    dispatch: &Dispatch,
    address: impl Fn(&Region) -> Result<u64>,
) -> Result<Vec<Value>> {
    let wrong = |what: String| {
        Error::mistake(format!("{label}: a launch was given {what}; pass the arguments that the signature declares"))
    };
    if dispatch.args.len() != signature.params.len() {
        return Err(wrong(format!("{} arguments for {}", dispatch.args.len(), signature.params.len())));
    }
    let index_bytes = signature.index_bits as usize / 8;
    let mut values = Vec::with_capacity(3 * dispatch.args.len() + 3);
    for (param, arg) in signature.params.iter().zip(&dispatch.args) {
        match (param, arg) {
            (ParamType::Buffer(dtype), Arg::Buffer(region)) if signature.hidden => {
                let elem = dtype.bytes() as u64;
                values.push((address(&Region { offset: 0, ..*region })?, 8));
                values.extend([(region.offset / elem, index_bytes), (region.bytes / elem, index_bytes)]);
            }
            (ParamType::Buffer(_), Arg::Buffer(region)) => values.push((address(region)?, 8)),
            (ParamType::Scalar(Type::Index), Arg::Index(value)) => values.push((*value, index_bytes)),
            (ParamType::Scalar(ty), Arg::Scalar(scalar)) if ty.dtype() == Some(scalar.dtype) => {
                values.push((scalar.bits, scalar.dtype.bytes()));
            }
            _ => return Err(wrong(format!("{arg:?} for {param:?}"))),
        }
    }
    if signature.hidden {
        values.extend(dispatch.grid.map(|size| (size, index_bytes)));
    }
    Ok(values.into_iter().map(|(bits, bytes)| Value { bits: bits.to_le(), bytes }).collect())
}
