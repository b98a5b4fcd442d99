//! The numbers of `onnx.proto`, which reading and writing of files share: the fields of each message and the values of enumerations, under
//! the names of that file.
//!
//! Messages are not derived from a schema (`prost`): the reader counts the memory of each message before it is allocated and copies no tensor
//! data, and the writer copies constants to host memory one at a time.

/// Fields of `ModelProto`.
pub mod model {
    pub const IR_VERSION: u64 = 1;
    pub const PRODUCER_NAME: u64 = 2;
    pub const PRODUCER_VERSION: u64 = 3;
    pub const GRAPH: u64 = 7;
    pub const OPSET_IMPORT: u64 = 8;
    pub const METADATA_PROPS: u64 = 14;
    pub const FUNCTIONS: u64 = 25;
}

/// Fields of `OperatorSetIdProto`.
pub mod opset {
    pub const DOMAIN: u64 = 1;
    pub const VERSION: u64 = 2;
}

/// Fields of `StringStringEntryProto`.
pub mod entry {
    pub const KEY: u64 = 1;
    pub const VALUE: u64 = 2;
}

/// Fields of `FunctionProto`.
pub mod function {
    pub const NAME: u64 = 1;
    pub const INPUT: u64 = 4;
    pub const OUTPUT: u64 = 5;
    pub const NODE: u64 = 7;
    pub const OPSET_IMPORT: u64 = 9;
    pub const DOMAIN: u64 = 10;
    pub const ATTRIBUTE_PROTO: u64 = 11;
}

/// Fields of `GraphProto`.
pub mod graph {
    pub const NODE: u64 = 1;
    pub const NAME: u64 = 2;
    pub const INITIALIZER: u64 = 5;
    pub const INPUT: u64 = 11;
    pub const OUTPUT: u64 = 12;
    pub const SPARSE_INITIALIZER: u64 = 15;
}

/// Fields of `NodeProto`.
pub mod node {
    pub const INPUT: u64 = 1;
    pub const OUTPUT: u64 = 2;
    pub const NAME: u64 = 3;
    pub const OP_TYPE: u64 = 4;
    pub const ATTRIBUTE: u64 = 5;
    pub const DOC_STRING: u64 = 6;
    pub const DOMAIN: u64 = 7;
    pub const METADATA_PROPS: u64 = 9;
}

/// Fields of `AttributeProto`.
pub mod attribute {
    pub const NAME: u64 = 1;
    pub const F: u64 = 2;
    pub const I: u64 = 3;
    pub const S: u64 = 4;
    pub const T: u64 = 5;
    pub const G: u64 = 6;
    pub const FLOATS: u64 = 7;
    pub const INTS: u64 = 8;
    pub const STRINGS: u64 = 9;
    pub const TYPE: u64 = 20;
    pub const REF_ATTR_NAME: u64 = 21;
}

/// Fields of `TensorProto`.
pub mod tensor {
    pub const DIMS: u64 = 1;
    pub const DATA_TYPE: u64 = 2;
    pub const FLOAT_DATA: u64 = 4;
    pub const INT32_DATA: u64 = 5;
    pub const INT64_DATA: u64 = 7;
    pub const NAME: u64 = 8;
    pub const RAW_DATA: u64 = 9;
    pub const DOUBLE_DATA: u64 = 10;
    pub const UINT64_DATA: u64 = 11;
    pub const EXTERNAL_DATA: u64 = 13;
    pub const DATA_LOCATION: u64 = 14;
}

/// Fields of `ValueInfoProto`.
pub mod value_info {
    pub const NAME: u64 = 1;
    pub const TYPE: u64 = 2;
}

/// Fields of `TypeProto`.
pub mod value_type {
    pub const TENSOR_TYPE: u64 = 1;
}

/// Fields of `TypeProto.Tensor`.
pub mod tensor_type {
    pub const ELEM_TYPE: u64 = 1;
    pub const SHAPE: u64 = 2;
}

/// Fields of `TensorShapeProto`.
pub mod shape {
    pub const DIM: u64 = 1;
}

/// Fields of `TensorShapeProto.Dimension`.
pub mod dimension {
    pub const DIM_VALUE: u64 = 1;
    pub const DIM_PARAM: u64 = 2;
}

/// Values of `AttributeProto.AttributeType`.
pub mod attribute_type {
    pub const FLOAT: i64 = 1;
    pub const INT: i64 = 2;
    pub const STRING: i64 = 3;
    pub const INTS: i64 = 7;
    pub const STRINGS: i64 = 8;
}

/// Values of `TensorProto.DataType`.
pub mod data_type {
    pub const FLOAT: i64 = 1;
    pub const UINT8: i64 = 2;
    pub const INT8: i64 = 3;
    pub const UINT16: i64 = 4;
    pub const INT16: i64 = 5;
    pub const INT32: i64 = 6;
    pub const INT64: i64 = 7;
    pub const BOOL: i64 = 9;
    pub const FLOAT16: i64 = 10;
    pub const DOUBLE: i64 = 11;
    pub const UINT32: i64 = 12;
    pub const UINT64: i64 = 13;
    pub const BFLOAT16: i64 = 16;
}
